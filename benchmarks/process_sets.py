"""An allreduce of a process set whose ranks are several on each host, by every algorithm that serves it.

    python benchmarks/process_sets.py --hosts 2 --ranks 2 --rate 1gbit --bytes 104857600

The set has all ranks but one, so that those of a host share no window and every way is by messages. Makes the
hosts itself (horovod.made_hosts, as root). Jobs of all algorithms take turns; printed are medians over all
calls, the range, and the bytes that left the first host for each call.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path

from on_hosts.jobs import environment

from horovod.made_hosts import MadeHosts

ALGORITHMS = ("gather", "scatter", "ring")
CALLS = 5


def rank(count: int, in_set: int) -> None:
    """Prints, on the set's first rank, what its calls took."""
    import torch

    import horovod.torch as hvd

    torch.set_num_threads(1)
    some = hvd.ProcessSet(range(in_set))
    hvd.init(process_sets=[some])
    if hvd.rank() in some.ranks:
        x = torch.ones(count)
        for call in range(CALLS + 1):
            hvd.barrier(process_set=some)
            begin = time.perf_counter()
            hvd.allreduce_(x, op=hvd.Average, name="x", process_set=some)
            if call and some.rank() == 0:
                print(f"took {time.perf_counter() - begin}", flush=True)
        assert bool((x == 1).all())
    hvd.barrier()
    hvd.shutdown()


def job(
    hosts: MadeHosts, algorithm: str, places: str, ranks: int, count: int, in_set: int
) -> tuple[list[float], float]:
    """Seconds of each call, and bytes that the first host has sent, for each."""
    words = ["horovodrun", "-np", str(ranks), "-H", places, "--allreduce-algorithm", algorithm]
    words += [sys.executable, str(Path(__file__).resolve()), "--rank", str(count), str(in_set)]
    before = hosts.bytes("h1")[1]
    done = hosts.run("h1", words, 300, environment())
    sent = hosts.bytes("h1")[1] - before
    took = [float(line.split("took ")[1]) for line in done.stdout.splitlines() if "took " in line]
    assert len(took) == CALLS, done.stdout + done.stderr
    return took, sent / (CALLS + 1)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    option = parser.add_argument
    option("--hosts", type=int, default=2)
    option("--ranks", type=int, default=2, help="of the set, on each host")
    option("--rate", default="1gbit", help="of the cables")
    option("--bytes", type=int, default=100 << 20, help="of the tensor of a rank")
    option("--rounds", type=int, default=3)
    option("--rank", nargs=2, type=int, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.rank:
        return rank(*chosen.rank)
    names = [f"h{number + 1}" for number in range(chosen.hosts)]
    in_set = chosen.hosts * chosen.ranks
    places = ",".join(f"{name}:{chosen.ranks + (name == names[-1])}" for name in names)
    times: dict[str, list[float]] = {algorithm: [] for algorithm in ALGORITHMS}
    sent: dict[str, float] = {}
    with MadeHosts(chosen.hosts, rate=chosen.rate) as hosts:
        for _ in range(chosen.rounds):
            for algorithm in ALGORITHMS:
                took, sent[algorithm] = job(hosts, algorithm, places, in_set + 1, chosen.bytes // 4, in_set)
                times[algorithm] += took
    for algorithm in ALGORITHMS:
        middle, low, high = statistics.median(times[algorithm]), min(times[algorithm]), max(times[algorithm])
        print(
            f"{algorithm:8} {middle * 1e3:8.0f} ms  ({low * 1e3:.0f} to {high * 1e3:.0f})"
            f"  {sent[algorithm] / 1e6:8.1f} MB"
        )
    print(f"scatter / ring: {statistics.median(times['scatter']) / statistics.median(times['ring']):.2f}")


if __name__ == "__main__":
    main()
