"""Compare TCP with MPI and with bare sockets, between hosts that it makes (horovod.made_hosts, as root).

    python benchmarks/transports.py --hosts 2 --rate 1gbit            # 1 KB to 100 MB, some minutes
    python benchmarks/transports.py --latency                         # 8 bytes, to and fro
    python benchmarks/transports.py --shown docs/measured/transports.csv

Allreduces: jobs of horovodrun with HOROVOD_TRANSPORT=mpi and =tcp take turns. The table has medians over all
calls, their ratio with the range over rounds, and processor time of the engine for each GB of float32.
Latency: two processes on two hosts take turns over a plain socket and over the transport, in one run; once at
full speed, and once with pauses in which the other side falls asleep.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import socket
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jobs
import report
from report import Record

from horovod.made_hosts import MadeHosts

SIZES = (1000, 64_000, report.MEGA, 25 * report.MEGA, 100 * report.MEGA)
COMPRESSIONS = ("none", "bit8", "int4")
SECONDS_OF_A_CELL = 1.0  # roughly; at least three calls
PINGS, BURSTS, PAUSE = 200, 15, 0.01
LIMIT = 600.0  # seconds of a job
HEADINGS = [
    *("hosts", "rate", "bytes", "compression", "transport"),
    *("seconds", "mpi_over_it", "lowest", "highest", "engine_seconds_per_gb"),
]
Cells = dict[str, list[float]]  # "1000 none" -> seconds of a call, seconds of the engine for each GB


def rank(task: Record) -> Record | None:
    return pings(task) if task["is_ping"] else reductions(task["bytes"])


def reductions(sizes: list[int]) -> Cells:
    """Return the times of calls, and their cost in this rank's engine."""
    import torch

    import horovod.torch as hvd

    torch.set_num_threads(1)
    hvd.init()
    cells = {}
    for size in sizes:
        for name in COMPRESSIONS:
            x, compression = torch.randn(size // 4), getattr(hvd.Compression, name)

            def call(x: torch.Tensor = x, name: str = f"{size} {name}", by: object = compression) -> float:
                begin = time.perf_counter()
                hvd.allreduce_(x, op=hvd.Average, name=name, compression=by)
                return time.perf_counter() - begin

            longest = hvd.allreduce(torch.tensor(max(call(), call())), op=hvd.Max, name="longest")
            count = max(3, min(300, int(SECONDS_OF_A_CELL / float(longest))))
            before = hvd.metrics()["engine_cpu_microseconds"]
            took = statistics.median(call() for _ in range(count))
            cost = (hvd.metrics()["engine_cpu_microseconds"] - before) / 1e6 / (count * size / report.GIGA)
            cells[f"{size} {name}"] = [took, cost]
    hvd.barrier()  # read before the end of the engine, whose processor time is then gone
    hvd.shutdown()
    return cells


def swapped(folder: Path, rank: int, name: str, value: list[str]) -> list[str]:
    """Write ``value`` for the other of two processes, and return the value that it wrote under ``name``."""
    mine, theirs = (folder / f"{name}.{each}" for each in (rank, 1 - rank))
    mine.with_suffix(f".{rank}.part").write_text(json.dumps(value))
    mine.with_suffix(f".{rank}.part").rename(mine)
    while not theirs.exists():
        time.sleep(0.01)
    answer: list[str] = json.loads(theirs.read_text())
    return answer


def pings(task: Record) -> dict[str, list[float]]:
    """Run one of two processes: bursts of pings over a socket, and over the transport, in turn."""
    from horovod import _native as native
    from horovod import _native_testing as testing

    rank, folder = jobs.rank_number(), Path(task["results"])
    address = f"10.77.0.{rank + 1}"
    server = socket.create_server((address, 0))
    other = swapped(folder, rank, "socket", [str(server.getsockname()[1])])
    if rank == 0:
        bare = socket.create_connection((f"10.77.0.{2 - rank}", int(other[0])))
    else:
        bare = server.accept()[0]
    bare.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    listener = native.TcpListener([address])
    theirs = swapped(folder, rank, "listener", listener.endpoints)
    ends = [listener.endpoints, theirs][:: 1 if rank == 0 else -1]
    settings = native.Settings()
    settings.deterministic = True
    world = native.open_world_over_tcp(settings, listener, rank, ["h1", "h2"], ["", ""], ends, bytes(32))

    def by_socket() -> None:
        if rank == 0:
            bare.send(b"12345678")
        bare.recv(8)
        if rank == 1:
            bare.send(b"12345678")

    def by_transport() -> None:
        if rank == 0:
            testing.post(world, 1, b"12345678")
        testing.next_message(world, 60.0)
        if rank == 1:
            testing.post(world, 0, b"12345678")

    def burst(way: Callable[[], None], count: int, pause: float) -> float:
        took = []
        for _ in range(count):
            if rank == 0 and pause:
                time.sleep(pause)
            begin = time.perf_counter()
            way()
            took.append(time.perf_counter() - begin)
        return statistics.median(took) / 2  # one way

    found: dict[str, list[float]] = {}
    for _ in range(BURSTS):
        for name, way in (("socket", by_socket), ("tcp", by_transport)):
            found.setdefault(name, []).append(burst(way, PINGS, 0.0))
            found.setdefault(f"{name}, asleep", []).append(burst(way, 10, PAUSE))
    return found


def latency(hosts: MadeHosts) -> None:
    try:
        from horovod import _native_testing  # noqa: F401
    except ImportError:
        needed = "--latency needs horovod._native_testing: HOROVOD_DEVELOPER=1 make test"
        raise SystemExit(f"transports.py: {needed}") from None
    found = jobs.run(hosts, [1, 1], "torch", __file__, {"is_ping": True}, 120)[0]
    for kind in ("", ", asleep"):
        bare, ours = found[f"socket{kind}"], found[f"tcp{kind}"]
        ratio = statistics.median(a / b for a, b in zip(ours, bare, strict=True))
        times = [report.time_text(statistics.median(each)) for each in (bare, ours)]
        print(f"8 bytes{kind}: socket {times[0]}, tcp {times[1]}, {ratio:.2f}x")


def cells_of(hosts: MadeHosts, chosen: argparse.Namespace, settings: dict[str, str]) -> Cells:
    """Return the figures of one job. MPI carries the ranks' bytes if mpirun has started them."""
    ranks = [chosen.ranks] * len(hosts.names)
    launcher = f"horovodrun --launcher {settings['HOROVOD_TRANSPORT']}"
    task = {"is_ping": False, "bytes": chosen.bytes}
    own = {**jobs.environment(), **settings}
    return dict(jobs.run(hosts, ranks, launcher, __file__, task, LIMIT, own)[0])


def allreduces(hosts: MadeHosts, chosen: argparse.Namespace) -> None:
    ways = {"mpi": {"HOROVOD_TRANSPORT": "mpi"}, "tcp": {"HOROVOD_TRANSPORT": "tcp"}}
    for lanes in chosen.connections:
        ways[f"tcp, {lanes} connections"] = ways["tcp"] | {"HOROVOD_TCP_CONNECTIONS": str(lanes)}
    rounds: list[dict[str, Cells]] = [{} for _ in range(chosen.rounds)]
    for number, name in report.in_turn([*ways], chosen.rounds):
        rounds[number][name] = cells_of(hosts, chosen, ways[name])
    rows = [
        [len(hosts.names), chosen.rate, *cell.split(), name, *figures(rounds, name, cell)]
        for cell in rounds[0]["mpi"]
        for name in ways
    ]
    print(table_of(rows))
    if chosen.out:
        report.write_csv(chosen.out, HEADINGS, rows)


def figures(rounds: list[dict[str, Cells]], name: str, cell: str) -> list[float]:
    """Return medians over rounds: seconds, MPI's over these, their range, the engine's seconds per GB."""
    ratios = [row["mpi"][cell][0] / row[name][cell][0] for row in rounds]
    seconds, cost = (statistics.median(row[name][cell][each] for row in rounds) for each in (0, 1))
    return [seconds, statistics.median(ratios), min(ratios), max(ratios), cost]


def table_of(rows: list[list[Any]]) -> str:
    """Return a line for each size and compression, a column for each way; rows are those of the CSV file."""
    lines: dict[tuple[str, ...], dict[str, str]] = {}
    for hosts, rate, size, compression, way, seconds, ratio, lowest, highest, cost in rows:
        against = "" if way == "mpi" else f" {float(ratio):.2f}x ({float(lowest):.2f}-{float(highest):.2f})"
        engine = f", {float(cost):.2f} s/GB" if cost != "" else ""
        line = lines.setdefault((f"{hosts} hosts, {rate}", report.size_text(int(size)), compression), {})
        line[way] = f"{report.time_text(float(seconds))}{against}{engine}"
    ways = list(next(iter(lines.values())))
    cells = [[*place, *(line[way] for way in ways)] for place, line in lines.items()]
    return report.table(["cables", "size", "compression", *ways], cells, 3)


def main(words: list[str]) -> int:
    if jobs.ran_as_rank(words, rank):
        return 0
    parser = report.options("TCP beside MPI and bare sockets, between made hosts.", "rounds out", rounds=5)
    option = parser.add_argument
    option("--hosts", type=int, default=2)
    option("--ranks", type=int, default=1, help="on each host")
    option("--rate", default="1gbit", help="of the cables; none: as fast as the machine")
    option("--rtt", default="none", help="of a round trip between hosts, as 20ms")
    option("--bytes", type=int, nargs="+", default=list(SIZES), help="of the tensors")
    option("--connections", type=int, nargs="*", default=[], help="also with so many connections")
    option("--latency", action="store_true", help="of 8 bytes instead")
    option("--shown", metavar="FILE", help="measure nothing: show what --out has written")
    chosen = parser.parse_args(words)
    if chosen.shown:
        with open(chosen.shown, newline="") as file:
            print(table_of([*csv.reader(file)][1:]))
        return 0
    rate = "none" if chosen.latency else chosen.rate
    with MadeHosts(chosen.hosts, rate=rate, rtt=chosen.rtt) as hosts:
        if chosen.latency:
            latency(hosts)
        else:
            allreduces(hosts, chosen)
        if chosen.rtt != "none":
            print(f"switch: {hosts.switch_seconds():.1f} s of processor")
    return 0


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main(sys.argv[1:]))
