"""`horovodrun --compression`, the script's choice, --compression-force: which applies, and rank 0's message.

This is for DistributedOptimizer; test/parallel/ddp_ranks has the same table for DistributedDataParallel.
"""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from refusals import refused
from thread_ranks import run_ranks
from torch import nn

import horovod.torch as hvd
from horovod.torch import errors

C = hvd.Compression
ELEMENTS = 300 * 400
BYTES = {"none": 4.0, "fp16": 2.0, "bit8": 1 + 1 / 128}  # of an element, on the wire
ENVIRONMENTS = {
    "absent": {},
    "bit8": {"HOROVOD_COMPRESSION": "bit8"},
    "force": {"HOROVOD_COMPRESSION": "bit8", "HOROVOD_COMPRESSION_FORCE": "1"},
}
ARGUMENTS = {"absent": {}, **{name: {"compression": getattr(C, name)} for name in BYTES}}
FLAG = "HOROVOD_COMPRESSION=bit8 (--compression)"
# (argument, flag): the compression used, and a part of the message, or ""
TABLE = {
    ("absent", "absent"): ("none", ""),
    ("none", "absent"): ("none", ""),
    ("fp16", "absent"): ("fp16", ""),
    ("bit8", "absent"): ("bit8", ""),
    ("absent", "bit8"): ("bit8", ""),
    ("none", "bit8"): ("bit8", f"{FLAG} counts, and not compression=Compression.none of the script."),
    ("fp16", "bit8"): ("fp16", f"{FLAG} does not count, as the script says compression=Compression.fp16; "),
    ("bit8", "bit8"): ("bit8", ""),
    ("absent", "force"): ("bit8", ""),
    ("none", "force"): ("bit8", f"{FLAG} counts, and not compression=Compression.none of the script."),
    ("fp16", "force"): ("bit8", f"{FLAG} counts, and not compression=Compression.fp16 of the script, as "),
    ("bit8", "force"): ("bit8", ""),
}
LINES = {
    "none": [],
    "fp16": ["horovod: fp16: 2 of 2 tensors, 100.0 % of bytes, 2.0x fewer"],
    "bit8": ["horovod: bit8: 1 of 2 tensors, 99.7 % of bytes, 3.9x fewer"],
}


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def set_(**variables: str) -> None:
        for name in ("HOROVOD_COMPRESSION", "HOROVOD_COMPRESSION_FORCE"):
            monkeypatch.delenv(name, raising=False)
        for name, text in variables.items():
            monkeypatch.setenv(name, text)

    set_()
    return set_


def stepped(model: nn.Module, x: torch.Tensor, steps: int = 2, **options: Any) -> int:
    """Train a model; the bytes that this rank has sent for it."""
    plain = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = hvd.DistributedOptimizer(plain, model.named_parameters(), **options)
    before = hvd.metrics()["wire_bytes"]
    for _ in range(steps):
        optimizer.zero_grad()
        model(x).square().sum().backward()
        optimizer.step()
    return int(hvd.metrics()["wire_bytes"] - before)


def said_while(work: Callable[[], Any], ranks: int = 2) -> tuple[list[Any], list[str]]:
    """The results of ``work`` in each rank of a job, and the lines that ranks printed to standard error."""
    with contextlib.redirect_stderr(io.StringIO()) as printed:
        results = run_ranks(ranks, work)
    return results, printed.getvalue().splitlines()


@pytest.mark.parametrize(("argument", "flag"), TABLE)
def test_the_table(argument: str, flag: str, environment: Callable[..., None]) -> None:
    environment(**ENVIRONMENTS[flag])
    used, notice = TABLE[argument, flag]
    x = torch.ones(2, 300)
    sent, said = said_while(lambda: stepped(nn.Linear(300, 400), x, 2, **ARGUMENTS[argument]))
    exact = 400 * (2 if used == "fp16" else 4)  # of the bias
    for each in sent:
        assert 0 <= each - 2 * (ELEMENTS * BYTES[used] + exact) < 1000, "what is more is said about them"
    begin = [f"horovod: {notice}"] if notice else []
    assert len(said) == len(begin) + len(LINES[used])
    assert all(line.startswith(wanted) for line, wanted in zip(said, [*begin, *LINES[used]], strict=True))


def test_none_by_force_and_by_text(environment: Callable[..., None]) -> None:
    environment(HOROVOD_COMPRESSION="none", HOROVOD_COMPRESSION_FORCE="1")
    x = torch.ones(2, 300)
    sent, said = said_while(lambda: stepped(nn.Linear(300, 400), x, 1, compression=C.bit8))
    assert sent[0] >= 4 * ELEMENTS and len(said) == 1 and "not compression=Compression.bit8 of the" in said[0]
    environment(HOROVOD_COMPRESSION="bit8")
    for none in ("none", C.none()):
        sent, said = said_while(lambda none=none: stepped(nn.Linear(300, 400), x, 1, compression=none))
        assert sent[0] < 1.1 * ELEMENTS and "counts, and not" in said[0]
    rules = {"*": C.none}
    sent, said = said_while(lambda: stepped(nn.Linear(300, 400), x, 1, compression=rules))
    assert sent[0] >= 4 * ELEMENTS and "does not count" in said[0], "who writes rules has thought of it"


def test_what_it_is_not_about(environment: Callable[..., None]) -> None:
    """A metric of the script stays exact; an optimizer that cannot add codes reports why."""
    environment(HOROVOD_COMPRESSION="bit8", HOROVOD_COMPRESSION_FORCE="1")
    metric = torch.tensor([1 / 3] * 2000)
    averaged = run_ranks(2, lambda: hvd.allreduce(metric, name="m", compression=C.none))
    assert all(torch.equal(each, metric) for each in averaged)
    with refused(errors.codes_op, said="HOROVOD_COMPRESSION=bit8", compressor="bit8", op="Min"):
        plain = torch.optim.SGD([nn.Parameter(metric)], 0.1)
        hvd.DistributedOptimizer(plain, compression=C.none, op=hvd.Min)


def test_the_line_of_each_kind_of_compressor(environment: Callable[..., None]) -> None:
    class Quarter(hvd.compression.Compressor):
        """A user's compressor, which sends each fourth element and does not report its ratio."""

        combine = "gather"

        @staticmethod
        def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
            return tensor.reshape(-1)[::4].clone(), tensor.shape

        @staticmethod
        def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
            return tensor.repeat_interleave(4).reshape(ctx)

    def work() -> None:
        rules = {"0.*": "bit8", "*": "int8"}
        for compression in ("int4", "topk:ratio=0.1", "powersgd:rank=1", Quarter, rules):
            model = nn.Sequential(nn.Linear(100, 200, bias=False), nn.Linear(200, 60))
            stepped(model, torch.ones(1, 100), 2, compression=compression)

    _, said = said_while(work)
    assert said == [
        "horovod: int4: 2 of 3 tensors, 99.8 % of bytes, 7.4x fewer",
        "horovod: topk:ratio=0.1: 2 of 3 tensors, 99.8 % of bytes, 4.9x fewer",
        "horovod: powersgd:rank=1: 2 of 3 tensors, 99.8 % of bytes, 51.7x fewer",
        "horovod: Quarter: 2 of 3 tensors, 99.8 % of bytes, 3.9x fewer",
        "horovod: int8, bit8: 2 of 3 tensors, 99.8 % of bytes, 3.9x fewer",
    ]  # fmt: skip


def test_nothing_compressed_is_a_warning(environment: Callable[..., None]) -> None:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        _, said = said_while(lambda: stepped(nn.Linear(20, 10), torch.ones(1, 20), 3, compression=C.bit8))
        halves = torch.ones(1, 200).half()
        said_while(lambda: stepped(nn.Linear(200, 10).half(), halves, 1, compression=C.fp16))
    assert said == []
    of_size, of_dtype = (str(each.message) for each in told)
    assert of_size.startswith("bit8 compresses none of 2 tensors: exactly travel vectors, and what has fewer")
    assert of_size.endswith("The largest here is 'weight', of shape [10, 20].")
    assert of_dtype == "fp16 compresses none of 2 tensors: it makes none of them smaller."
    for each in told:  # shown without the place inside of this package
        shown = warnings.formatwarning(each.message, each.category, each.filename, each.lineno)
        assert shown == f"horovod: {each.message}\n"
    assert "train.py:7: UserWarning: mine" in warnings.formatwarning("mine", UserWarning, "train.py", 7)


def test_it_is_said_once_in_a_job(environment: Callable[..., None]) -> None:
    """No line for a second model of the same sizes, and none after steps that were skipped."""

    def work() -> None:
        model = nn.Linear(300, 400)
        plain = torch.optim.SGD(model.parameters(), lr=0.1)
        optimizer = hvd.DistributedOptimizer(plain, model.named_parameters(), compression="bit8")
        optimizer.load_state_dict(optimizer.state_dict())  # waits for reductions, of which there are none
        for _ in range(2):
            stepped(nn.Linear(300, 400), torch.ones(1, 300), 1, compression="bit8")

    assert said_while(work)[1] == LINES["bit8"]


def test_one_rank_is_told_that_nothing_travels(environment: Callable[..., None]) -> None:
    x = torch.ones(1, 300)
    _, said = said_while(lambda: stepped(nn.Linear(300, 400), x, 2, compression="bit8"), ranks=1)
    assert said == ["horovod: bit8: there is one rank, so nothing travels, and nothing is compressed"]
    assert said_while(lambda: stepped(nn.Linear(300, 400), x), ranks=1)[1] == []


def test_sparse_gradients_and_adasum(environment: Callable[..., None]) -> None:
    def sparse() -> None:
        model = nn.Sequential(nn.Embedding(100, 300, sparse=True), nn.Linear(300, 100, bias=False))
        stepped(model, torch.arange(10), 1, compression="bit8")

    assert said_while(sparse)[1] == ["horovod: bit8: 1 of 2 tensors, 90.9 % of bytes, 3.1x fewer"]
    x = torch.ones(1, 300)
    _, said = said_while(lambda: stepped(nn.Linear(300, 400), x, 1, compression="fp16", op=hvd.Adasum))
    assert said == LINES["fp16"]
