"""The compression used, and the messages: from the environment, the script, and by force, in each way of DDP.

Like test/single/torch/compression/test_which_compression_counts.py for DistributedOptimizer. With two ranks a
gradient goes to one other rank, so the bytes sent show how it travelled.
"""

import contextlib
import io
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from ddp_training import every_ddp_is_compressed
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from horovod.common.basics import basics
from horovod.torch import Compression, ddp
from horovod.torch.compression import first_step
from horovod.torch.ddp import group_job
from horovod.torch.ddp.fsdp import compress_fsdp

ELEMENTS = 300 * 400
BYTES = {"none": 4.0, "fp16": 2.0, "bit8": 1 + 1 / 128}  # per element
VARIABLES = {
    "module": "HOROVOD_DDP_COMPRESSION", "backend": "HOROVOD_COMPRESSION", "one line": "HOROVOD_COMPRESSION",
}  # fmt: skip
# (argument, flag): the one used, and a part of the message about both, or ""
TABLE = {
    ("absent", "absent"): ("none", ""),
    ("none", "absent"): ("none", ""),
    ("fp16", "absent"): ("fp16", ""),
    ("bit8", "absent"): ("bit8", ""),
    ("absent", "bit8"): ("bit8", ""),
    ("none", "bit8"): ("bit8", "counts, and not compression=Compression.none of the script."),
    ("fp16", "bit8"): ("fp16", "does not count, as the script says compression=Compression.fp16; "),
    ("bit8", "bit8"): ("bit8", ""),
    ("absent", "force"): ("bit8", ""),
    ("none", "force"): ("bit8", "counts, and not compression=Compression.none of the script."),
    ("fp16", "force"): ("bit8", "counts, and not compression=Compression.fp16 of the script, as "),
    ("bit8", "force"): ("bit8", ""),
}
LINES = {
    "none": [],
    "fp16": ["horovod: fp16: 2 of 2 tensors, 100.0 % of bytes, 2.0x fewer"],
    "bit8": ["horovod: bit8: 1 of 2 tensors, 99.7 % of bytes, 3.9x fewer"],
}
OF_SUMS = ["horovod: bit8: 1 of 1 sums, 100.0 % of bytes, 4.0x fewer"]


@pytest.fixture(autouse=True)
def new_job(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """No message has been logged yet, and the environment sets nothing."""
    if size != 2:
        pytest.skip("between two ranks")
    monkeypatch.setattr(first_step, "_Told", type("Told", (set,), {}))
    for name in {*VARIABLES.values(), "HOROVOD_COMPRESSION_FORCE"}:
        monkeypatch.delenv(name, raising=False)


@contextlib.contextmanager
def group_for(way: str) -> Iterator[dist.ProcessGroup]:
    group = dist.new_group(backend="horovod" if way == "backend" else "gloo")
    assert isinstance(group, dist.ProcessGroup)
    yield group
    dist.destroy_process_group(group)


def written() -> int:
    """Return the bytes that this process has sent so far: those that gloo writes, and the core's."""
    lines = Path("/proc/self/io").read_text().splitlines()
    by_core = sum(job.run(basics.metrics)["wire_bytes"] for job in group_job.begun())
    return by_core + int(next(line.split()[1] for line in lines if line.startswith("wchar")))


def trained(model: torch.nn.Module, steps: int = 3, width: int = 300) -> int:
    """Train a model; return the bytes that this rank wrote in the last step."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    before = 0
    for _ in range(steps):
        before = written()
        optimizer.zero_grad()
        model(torch.ones(2, width)).square().sum().backward()
        optimizer.step()
    return written() - before


def wrapped(way: str, group: dist.ProcessGroup, argument: str) -> torch.nn.Module:
    torch.manual_seed(0)
    with every_ddp_is_compressed() if way == "module" else contextlib.nullcontext():
        model = DistributedDataParallel(torch.nn.Linear(300, 400), process_group=group)
        given = [] if argument == "absent" else [getattr(Compression, argument)]
        if given or way == "one line":
            ddp.compress(model, *given)
    return model


@pytest.mark.parametrize("way", VARIABLES)
@pytest.mark.parametrize(("argument", "flag"), TABLE)
def test_the_table(argument: str, flag: str, way: str, rank: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if flag != "absent":
        monkeypatch.setenv(VARIABLES[way], "bit8")
        monkeypatch.setenv("HOROVOD_COMPRESSION_FORCE", "1" if flag == "force" else "0")
    used, notice = TABLE[argument, flag]
    with contextlib.redirect_stderr(io.StringIO()) as printed, group_for(way) as group:
        sent = trained(wrapped(way, group, argument))
    is_of_sums = way == "backend" and argument == "absent" and used == "bit8"
    exact = 400 * (2 if used == "fp16" else BYTES["bit8"] if is_of_sums else 4)  # the bias's bytes
    assert 0 <= sent - (ELEMENTS * BYTES[used] + exact) < 2500, "what is more is headers"
    begin = [f"horovod: {VARIABLES[way]}=bit8 (--compression) {notice}"] if notice else []
    wanted = [*begin, *(OF_SUMS if is_of_sums else LINES[used])] if rank == 0 else []
    said = printed.getvalue().splitlines()
    assert len(said) == len(wanted) and all(map(str.startswith, said, wanted)), said


def warnings_of(work: Callable[[], Any]) -> list[str]:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        work()
    return [str(each.message) for each in told if "compresses" in str(each.message)]


def test_nothing_compressed_is_a_warning(rank: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOROVOD_COMPRESSION", "bit8")

    def hook() -> None:
        model = DistributedDataParallel(torch.nn.Linear(20, 10))
        state = ddp.compress(model)
        trained(model, width=20)
        assert repr(state) == "<CompressionState of bit8: 0 of 2 tensors, 0.0 % of bytes, 1.0x fewer>"

    def backend() -> None:
        with group_for("backend") as group:
            trained(DistributedDataParallel(torch.nn.Linear(20, 10), process_group=group), width=20)

    def fsdp() -> None:
        model = torch.nn.Linear(20, 10)
        fully_shard(model)
        compress_fsdp(model)

    def after_the_end() -> None:
        with group_for("backend") as group:
            dist.all_reduce(torch.ones(2), group=group)
        trained(torch.nn.Linear(20, 10), width=20)

    assert warnings_of(after_the_end) == [], "of an optimizer that has nothing to do with that group"
    why = "exactly travel vectors, and what has fewer elements than the compressor's min_elements."
    for work in (hook, fsdp):
        said = warnings_of(work)
        wanted = f"bit8 compresses none of 2 tensors: {why} The largest here is 'weight', of shape [10, 20]."
        assert said == [wanted] * (rank == 0)
    why = "exactly travel sums of fewer than 16384 elements (HOROVOD_BACKEND_MIN_ELEMENTS)"
    said = warnings_of(backend)
    assert len(said) == (rank == 0)
    assert all(each.startswith(f"bit8 compresses none of 1 sums: {why}") for each in said)


def test_fsdp_and_compressors_of_python_say_so_too(rank: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOROVOD_DDP_COMPRESSION", "bit8")
    with contextlib.redirect_stderr(io.StringIO()) as printed:
        model = torch.nn.Sequential(torch.nn.Linear(300, 400), torch.nn.Linear(400, 20))
        for module in (model[0], model):
            fully_shard(module)
        compress_fsdp(model, Compression.none)
        trained(model)
        for compression in ("topk:ratio=0.1", "powersgd:rank=1"):
            wide = DistributedDataParallel(torch.nn.Linear(300, 400))
            state = ddp.compress(wide, compression)
            trained(wide)
            assert repr(state).startswith(f"<CompressionState of {compression}: 1 of 2 tensors, 99.7 % of")
    wanted = [
        "HOROVOD_DDP_COMPRESSION=bit8 (--compression) counts, and not compression=Compression.none of the",
        "bit8: 2 of 4 tensors, 99.7 % of bytes, 3.9x fewer",
        "HOROVOD_DDP_COMPRESSION=bit8 (--compression) does not count, as the script says compression='topk",
        "topk:ratio=0.1: 1 of 2 tensors, 99.7 % of bytes, 4.9x fewer",
        "HOROVOD_DDP_COMPRESSION=bit8 (--compression) does not count, as the script says compression='power",
        "powersgd:rank=1: 1 of 2 tensors, 99.7 % of bytes, 109.5x fewer",
    ]  # fmt: skip
    said = printed.getvalue().splitlines()
    assert len(said) == len(wanted) * (rank == 0)
    assert all(map(str.startswith, said, (f"horovod: {line}" for line in wanted))), said


@pytest.mark.parametrize("order", ["model", "wrapped", "compressed last"])
def test_a_compiled_model_trains_as_the_plain_one(order: str) -> None:
    def weights(compiles: bool) -> list[torch.Tensor]:
        torch.manual_seed(0)
        model: Any = torch.nn.Sequential(torch.nn.Linear(300, 40), torch.nn.Tanh(), torch.nn.Linear(40, 50))
        if compiles and order == "model":
            model = torch.compile(model, backend="aot_eager")
        model = DistributedDataParallel(model)
        is_last = compiles and order == "compressed last"
        state = ddp.compress(torch.compile(model, backend="aot_eager") if is_last else model, "bit8")
        compiles_wrapped = compiles and order != "model"
        trained(torch.compile(model, backend="aot_eager") if compiles_wrapped else model)
        assert "bit8: 2 of 4 tensors" in repr(state)
        return [parameter.detach() for parameter in model.parameters()]

    assert all(map(torch.equal, weights(True), weights(False)))
