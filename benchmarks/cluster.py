"""Measure allreduce and training between hosts at 1 Gbit/s: Horovod, MPI, gloo and DDP in one run.

    python benchmarks/cluster.py                                    # everything; about half an hour, as root
    python benchmarks/cluster.py --parts allreduce --hosts 2 --sizes 104857600 --only gloo bit8
    python benchmarks/cluster.py --out docs/measured/cluster.json --plots docs
    python benchmarks/cluster.py --shown docs/measured/cluster.json

Makes the hosts out of namespaces (horovod.made_hosts). docs/benchmarks.md defines every column.
"""

from __future__ import annotations

import argparse
import sys
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import contenders
import jobs
import report
import tables
import torch
import trained_models
from contenders import ALONE, DDP_WAYS
from report import Record
from torch import nn
from torch.nn import functional

PARTS = ("allreduce", "training", "scaling")
OURS = ("none", "bit16", "bit8", "int8", "int4")
# Other contenders of allreduce, and their launchers
RIVALS = {"MPI": "mpirun", "MPI, 2 links": "mpirun, 2 links", "gloo": "torch", "gloo half": "torch"}
RATIOS = (5.0, 1.0)  # of float32's time on the wire to computing, W/C
WORST_ERROR = 0.05  # the NMSE of a correct sum lies well below, that of a wrong sum is near 1
CHECKED = 1 << 20  # elements at the start of each tensor that are compared with NumPy's sum


@dataclass
class Bench:
    """The hosts, the number of measurements, and the payload rate of cables by (rate, number of hosts)."""

    hosts: Any
    chosen: argparse.Namespace
    link_samples: dict[tuple[str, int], list[float]] = field(default_factory=dict)

    def measure_link(self, count: int) -> None:
        rate = jobs.payload_rate(self.hosts, count, self.chosen.link_seconds)
        self.link_samples.setdefault((self.hosts.rate_limit, count), []).append(rate)

    def link(self, count: int) -> float:
        """Return bytes per second and direction, measured in this run."""
        return median(self.link_samples[self.hosts.rate_limit, count])

    def link_rows(self) -> list[Record]:
        rows = []
        for (rate, count), samples in self.link_samples.items():
            found = {"bytes_per_second": median(samples), "spread": report.spread(samples)}
            rows.append({"rate": rate, "hosts": count} | found)
        return rows

    def job(self, count: int, launcher: str, task: Record) -> list[Any]:
        begin = time.monotonic()
        own = task | {"launcher": launcher}
        documents = jobs.run(self.hosts, [1] * count, launcher, __file__, own, self.chosen.limit)
        what = task.get("contender") or ", ".join(task["contenders"])
        said = f"  {what} on {count} hosts: {time.monotonic() - begin:.0f} s"
        print(said, file=sys.stderr, flush=True)
        return documents


def allreduce_rows(bench: Bench, count: int) -> list[Record]:
    """Measure every contender at every size on `count` hosts, at the present rate; return a record each."""
    chosen = bench.chosen
    groups: dict[str, list[str]] = {}
    for contender in chosen.only:
        groups.setdefault(RIVALS.get(contender, "horovodrun"), []).append(contender)
    task = {"part": "allreduce", "sizes": chosen.sizes, "warm_up": 2, "repeats": chosen.repeats}
    found: dict[tuple[int, str], Record] = {}
    for _, order in report.rounds_of([*groups], chosen.rounds):
        bench.measure_link(count)
        for launcher in order:
            documents = bench.job(count, launcher, {**task, "contenders": groups[launcher]})
            for records in zip(*documents, strict=True):
                add_samples(found, records)
    bench.measure_link(count)
    return [finished(bench, count, row) for _, row in sorted(found.items(), key=lambda item: -item[0][0])]


def add_samples(found: dict[tuple[int, str], Record], records: tuple[Record, ...]) -> None:
    """Add one contender's records of all ranks at one size, from one job."""
    first = records[0]
    what = f"{first['contender']}, {first['bytes']} bytes"
    tables.same_everywhere((record["digest"] for record in records), what, "bytes")
    if not first["nmse"] < WORST_ERROR:
        raise tables.WrongResult(f"{what}: the sum has an NMSE of {first['nmse']:.2g}")
    row = {name: first[name] for name in ("bytes", "contender", "nmse")}
    row = found.setdefault(
        (first["bytes"], first["contender"]), row | {"samples": [], "sent": [], "out_of_place_samples": []}
    )
    row["samples"] += tables.slowest(record["seconds"] for record in records)
    row["sent"] += tables.slowest(record["sent"] for record in records)
    row["out_of_place_samples"] += tables.slowest(record["seconds_out_of_place"] for record in records)


def finished(bench: Bench, count: int, row: Record) -> Record:
    row |= tables.typical(row["samples"], row["sent"])
    needed, apart = bytes_needed(row["contender"], row["bytes"] // 4, count), row["out_of_place_samples"]
    return row | {
        "rate": bench.hosts.rate_limit,
        "hosts": count,
        "needed": needed,
        "limit": needed / bench.link(count),
        "times_limit": row["seconds"] * bench.link(count) / needed,
        "out_of_place": median(apart) / row["seconds"] if apart else None,
    }


def bytes_needed(contender: str, count: int, hosts: int) -> float:
    """Return the bytes that the best route sends from each host: one rank per host, `count` float32 elements.

    Between two hosts each sends all of its data once. Among n hosts each sends its contribution to the shards
    of the others, and to all hosts the sum of its own shard: 2(n-1)/n of the tensor, which is the same for n
    = 2.
    """
    encoded = count * (2 if contender == "gloo half" else 4)
    if contender in OURS and contender != "none":
        import horovod.torch as hvd

        encoded = int(getattr(hvd.Compression, contender).codec.encoded_bytes(count))
    return encoded * 2 * (hosts - 1) / hosts


def training_job(bench: Bench, count: int, contender: str, task: Record) -> list[Record]:
    launcher = "torch" if contender in (ALONE, *DDP_WAYS) else "horovodrun"
    return bench.job(count, launcher, {**task, "part": "training", "contender": contender})


def training_rows(bench: Bench, count: int, task: Record, names: list[str]) -> list[Record]:
    """Measure one training step under every contender; return a record each."""
    found: dict[str, Record] = {}
    for _, contender in report.in_turn(names, bench.chosen.rounds):
        documents = training_job(bench, count, contender, {**task, "steps": bench.chosen.steps})
        if contender != ALONE:
            tables.same_everywhere((document["digest"] for document in documents), contender, "bytes")
        row = found.setdefault(contender, {"samples": [], "sent": []})
        row["samples"] += tables.slowest(document["seconds"] for document in documents)
        row["sent"] += tables.slowest(document["sent"] for document in documents)
        row["parameters"] = documents[0]["parameters"]
    return [steps_row(bench, count, task, name, found[name]) for name in names]


def steps_row(bench: Bench, count: int, task: Record, name: str, row: Record) -> Record:
    row |= tables.typical(row["samples"], row["sent"])
    return row | {
        "contender": name,
        "model": task["model"],
        "batch": task["batch"],
        "rate": bench.hosts.rate_limit,
        "hosts": count,
        "samples_per_second": count * task["batch"] / row["seconds"],
        "wire": tables.wire_seconds(row["parameters"], count, bench.link(count)) if count > 1 else 0.0,
    }


def batch_for(bench: Bench, count: int, ratio: float, task: Record) -> int:
    """Return the batch with which computing gradients takes 1/`ratio` of their float32 time on the wire."""
    seconds = []
    for batch in (1, 2):
        documents = training_job(bench, count, ALONE, {**task, "batch": batch, "steps": 3})
        seconds.append(median(tables.slowest(document["seconds"] for document in documents)))
    wire = tables.wire_seconds(documents[0]["parameters"], count, bench.link(count))
    return tables.batch_for(seconds, 1, wire, ratio)[0]


# In a rank

World = contenders.HorovodWorld | contenders.MpiWorld | contenders.TorchWorld
WORLDS = {"horovodrun": contenders.HorovodWorld, "torch": contenders.TorchWorld}  # by launcher


def rank(task: Record) -> Any:
    if task.get("pinned"):
        jobs.pin(jobs.rank_number())
    torch.set_num_threads(1)
    world = WORLDS.get(task["launcher"], contenders.MpiWorld)()
    found = sums(world, task) if task["part"] == "allreduce" else steps(world, task)
    world.close()
    return found


def sums(world: World, task: Record) -> list[Record]:
    """Measure on one rank: `repeats` timed calls of every contender at every size, in turn.

    Returns a record per contender and size: seconds and bytes sent of each call, a digest of the sum, the
    NMSE of its beginning, and, for ours, the seconds of as many out-of-place calls, each made after an
    in-place call.
    """
    records = []
    for size in task["sizes"]:
        count = size // 4
        source = torch.from_numpy(contenders.normal(world.rank, count))
        work = torch.empty(count).fill_(0.0)
        tensors = contenders.Tensors(source, work, work)
        calls = {name: world.sums(name, tensors) for name in task["contenders"]}
        kinds = ("seconds", "sent", "seconds_out_of_place")
        found = {name: {"contender": name, "bytes": size} | {kind: [] for kind in kinds} for name in calls}
        for number in range(-task["warm_up"], task["repeats"]):
            for name, (in_place, out_of_place) in calls.items():
                work.copy_(source)
                elapsed, sent, _ = timed(world, in_place)
                if number == -task["warm_up"]:
                    found[name] |= judged(work, world.size)
                if number >= 0:
                    found[name]["seconds"].append(elapsed)
                    found[name]["sent"].append(sent)
                if name not in OURS:
                    continue
                elapsed, _, total = timed(world, out_of_place)
                if number == -task["warm_up"] and not torch.equal(total, work):
                    what = f"rank {world.rank}: {name}, {size} bytes"
                    raise tables.WrongResult(f"{what}: out of place the sum is another one")
                del total  # the next call may use its memory
                if number >= 0:
                    found[name]["seconds_out_of_place"].append(elapsed)
        records += found.values()
    return records


def timed(world: World, call: Callable[[], Any]) -> tuple[float, int, Any]:
    """Return seconds and bytes sent of a call that all ranks make at the same moment, and its result."""
    world.barrier()
    before, begin = jobs.bytes_sent(), time.perf_counter()
    result = call()
    elapsed = time.perf_counter() - begin
    world.barrier()  # all bytes of this call have arrived
    return elapsed, jobs.bytes_sent() - before, result


def judged(total: torch.Tensor, ranks: int) -> Record:
    """Return the NMSE against NumPy's sum in float64, and a digest to compare ranks by."""
    ours = total.numpy()[:CHECKED]
    exact = contenders.exact_sum(ranks, len(ours))
    return {"nmse": contenders.nmse(exact, ours), "digest": zlib.crc32(total.numpy().data)}


def steps(world: World, task: Record) -> Record:
    """Measure on one rank: `warm_up` steps, then `steps` timed steps of one contender.

    Returns seconds and bytes sent of each step, the number of parameters, and a digest of them at the end.
    """
    model, inputs, labels = model_of(task, world.rank)
    name = task["contender"]
    trained = contenders.opened(f"{contenders.HOROVOD} {name}" if name in OURS else name, model)

    def loss_of(outputs: torch.Tensor) -> torch.Tensor:
        return outputs.mean() if labels is None else functional.cross_entropy(outputs, labels)

    for _ in range(task["warm_up"]):
        trained.step(inputs, loss_of)
    world.barrier()
    seconds, sent = [], []
    for _ in range(task["steps"]):
        before, begin = jobs.bytes_sent(), time.perf_counter()
        trained.step(inputs, loss_of)
        seconds.append(time.perf_counter() - begin)
        sent.append(jobs.bytes_sent() - before)
    world.barrier()  # no rank leaves while another still works
    count = sum(parameter.numel() for parameter in model.parameters())
    return {"seconds": seconds, "sent": sent, "parameters": count, "digest": trained_models.digest_of(model)}


def model_of(task: Record, rank: int) -> tuple[nn.Module, torch.Tensor, torch.Tensor | None]:
    """Return a task's model, equal on all ranks, and a batch of this rank: pictures and labels.

    The transformer takes any input and has no labels: its loss is the mean of its output.
    """
    small = task["model"].endswith("small")
    torch.manual_seed(1)
    if task["model"].startswith("transformer"):
        width = 64 if small else 512
        model = trained_models.waiting(trained_models.block_shapes(width) * 8, task["compute"], 8)
        torch.manual_seed(2 + rank)
        return model, torch.randn(task["batch"], width, requires_grad=True), None
    model = trained_models.build("vgg16", small)
    return model, *trained_models.batch("vgg16", task["batch"], 2 + rank, small)


def arguments(words: list[str]) -> argparse.Namespace:
    common = "link-seconds limit out plots shown quick rounds"
    parser = report.options(
        "Allreduce and training between hosts made on this machine.", common, limit=600.0, rounds=3
    )
    option = parser.add_argument
    option("--parts", nargs="+", choices=PARTS, default=list(PARTS), help="what to measure (default: all)")
    option("--hosts", type=int, nargs="+", default=[2, 4], metavar="N", help="numbers of hosts (default 2 4)")
    option("--rates", nargs="+", default=["1gbit"], help="of the cables (default 1gbit); training: the first")
    sizes = [100 << 20, 10 << 20, 1 << 20]
    option("--sizes", type=int, nargs="+", default=sizes, metavar="BYTES", help="of the tensor of a rank")
    everyone = [*RIVALS, *OURS]
    option("--only", nargs="+", choices=everyone, default=everyone, help="contenders of allreduce")
    trained = [*DDP_WAYS, *OURS]
    option("--trained", nargs="+", choices=trained, default=trained, help="contenders of training")
    option("--ratios", type=float, nargs="+", default=list(RATIOS), help="W/C of training (default 5 1)")
    option("--batch", type=int, help="of training, instead of those that --ratios ask for")
    option("--repeats", type=int, default=3, help="allreduces timed in each job (default 3)")
    option("--steps", type=int, default=2, help="training steps timed in each job (default 2)")
    option("--compute", type=float, default=0.4, help="seconds of an accelerator in scaling (default 0.4)")
    chosen = parser.parse_args(words)
    if chosen.quick:
        chosen.hosts, chosen.sizes, chosen.link_seconds = [2], [1 << 20], 0.2
        chosen.rounds, chosen.repeats, chosen.steps, chosen.compute, chosen.batch = 1, 1, 1, 0.01, 1
    if any(size < 4 or size % 4 for size in chosen.sizes):
        parser.error("--sizes are bytes of float32: multiples of 4, at least 4")
    if min(chosen.hosts) < 2:
        parser.error("--hosts: at least 2, as one host has nobody to send to")
    return chosen


def measure(hosts: Any, chosen: argparse.Namespace, document: Record) -> None:
    """Add everything that the options request to the document.

    Each figure is in the document, and in the file that --out names, as soon as it is known.
    """
    bench = Bench(hosts, chosen)

    def done(part: str, found: Any, what: str) -> None:
        document[part] += [found] if part == "training" else found  # training: a list for each batch
        document["links"] = bench.link_rows()
        report.write_json(chosen.out, document)
        print(f"{part}, {what}: done", file=sys.stderr, flush=True)

    small = "-small" if chosen.quick else ""
    for count in sorted({2, *chosen.hosts}):
        bench.measure_link(count)
    if "training" in chosen.parts:
        task = {"model": f"vgg16{small}", "warm_up": 2, "pinned": True}
        asked = [chosen.batch] if chosen.batch else [None] * len(chosen.ratios)
        for batch, ratio in zip(asked, chosen.ratios, strict=False):
            own = {**task, "batch": batch or batch_for(bench, 2, ratio, task)}
            rows = training_rows(bench, 2, own, [ALONE, *chosen.trained])
            done("training", rows, f"batch of {own['batch']}")
    if "scaling" in chosen.parts:
        task = {"model": f"transformer{small}", "warm_up": 2, "compute": chosen.compute, "batch": 8}
        done("scaling", training_rows(bench, 1, task, [ALONE]), "1 host")
        for count in chosen.hosts:
            done("scaling", training_rows(bench, count, task, chosen.trained), f"{count} hosts")
    if "allreduce" in chosen.parts:
        for rate in chosen.rates:
            hosts.rate(rate)
            for count in chosen.hosts:
                done("allreduce", allreduce_rows(bench, count), f"{count} hosts, {rate}")


def joined(documents: list[Record]) -> Record:
    """Return the figures of several runs as one document, with the machine of the first."""
    parts = {part: [row for document in documents for row in document[part]] for part in ("links", *PARTS)}
    return documents[0] | parts


def main(words: list[str]) -> int:
    if jobs.ran_as_rank(words, rank):
        return 0
    chosen = arguments(words)
    if chosen.shown:
        document = joined([report.read_json(name) for name in chosen.shown])
    else:
        document = {"benchmark": "cluster", "machine": report.machine(), "links": []}
        document |= {part: [] for part in PARTS}
        with jobs.place_of(max(chosen.hosts), chosen.rates[0], "cluster.py") as hosts:
            measure(hosts, chosen, document)
    if chosen.plots:
        import plots

        plots.draw_cluster(document, chosen.plots)
    print(tables.cluster_text(document))
    report.write_json(chosen.out, document)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
