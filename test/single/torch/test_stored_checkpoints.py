"""This version reads checkpoints of earlier versions, and training continues from exactly their state.

test/parallel/ddp_ranks/test_hook_stored_checkpoint.py continues from the same file under DDP.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from checkpoint_peers import Peers
from refusals import refused
from thread_ranks import run_ranks

import horovod.torch as hvd
from horovod.torch import errors
from horovod.torch.checkpoint import FORM, Checkpoint
from horovod.torch.compression.memory import Memory
from horovod.torch.residuals import Residuals

sys.path.insert(0, str(Path(__file__).parent / "stored_checkpoints"))

from stored_training import COMPRESSION, DIGEST, SCALE, SIZE, Training, read

BOTH = pytest.mark.parametrize("by", ["hvd", "ddp"])


def kept(by: str) -> dict[str, Any]:
    """The package's entry in the stored file."""
    saved = read(by)["kept"]
    return dict(saved["horovod"] if by == "hvd" else saved)


def same(one: Any, other: Any) -> bool:
    """Compare all contents bit for bit."""
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


@BOTH
@pytest.mark.parametrize("rank", range(SIZE))
def test_what_an_earlier_version_kept_is_kept(by: str, rank: int) -> None:
    """The bits survive the core's feedback, Python's feedback, and a compressor's memory."""
    stored = kept(by)
    residuals, memory = Residuals(is_kept=True), Memory()
    checkpoint = Checkpoint(residuals, memory, Peers(rank, SIZE))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        checkpoint.load_state_dict(stored, COMPRESSION)
        for name, text in COMPRESSION.items():
            compressor = hvd.Compression.from_text(text)
            assert residuals.of(name, torch.zeros(4, 8), compressor) is not None
            memory.of(name, compressor)
    checkpoint.on_reduction()  # drops the loaded state of other ranks, which is out of date now
    told = checkpoint.state_dict()
    assert told["residuals"].keys() == {rank} and told["size"] == SIZE
    assert same(told["residuals"][rank], stored["residuals"][rank])
    assert same(told["compressors"], stored["compressors"])
    own = stored["residuals"][rank]
    assert own["loss_scale"] == SCALE and own["parameters"]["coarse"]["uses"] == 3
    assert all(saved["sent"][1].any() for saved in own["parameters"].values())
    assert stored["compressors"]["factors"]["q"].any()


def test_an_optimizer_goes_on_from_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOROVOD_ALLREDUCE_ALGORITHM", "scatter")

    def next_step(is_whole: bool) -> str:
        training, checkpoint = Training("hvd", hvd.rank()), read("hvd")
        if not is_whole:
            del checkpoint["kept"]["horovod"]
        training.load(checkpoint)
        training.run(range(3, 4))
        return training.digest()

    assert run_ranks(SIZE, lambda: next_step(True)) == [DIGEST] * SIZE
    assert run_ranks(SIZE, lambda: next_step(False))[0] != DIGEST


def test_a_form_has_a_number() -> None:
    """The stored files have no number: they have the first format."""
    residuals = Residuals(is_kept=True)
    assert "form" not in kept("ddp") and FORM == 1
    checkpoint = Checkpoint(residuals, Memory(), Peers(0, SIZE))
    checkpoint.load_state_dict(kept("ddp"))
    assert checkpoint.state_dict()["form"] == FORM


@pytest.mark.parametrize("form", [FORM + 1, 0, "1", True])
def test_a_later_form_is_refused_by_number(form: Any) -> None:
    checkpoint = Checkpoint(Residuals(is_kept=True), Memory(), Peers(0, SIZE))
    with refused(errors.damaged_checkpoint, because="unknown_form", form=repr(form), newest=FORM):
        checkpoint.load_state_dict({**kept("ddp"), "form": form})
