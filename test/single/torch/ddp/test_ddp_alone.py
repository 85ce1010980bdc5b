"""ddp.compress() and compress_fsdp() of an unwrapped model, as libraries leave it in a single process."""

# private: _why_others_are_not_compressed: a torch that lacks what it patches

import logging
import multiprocessing
from collections.abc import Callable
from importlib.metadata import EntryPoint
from typing import Any

import pytest
import torch
import torch.distributed as dist
from refusals import refused
from torch.distributed import fsdp

from horovod.common.launched import LAUNCHERS
from horovod.common.sentences import Sentence
from horovod.torch import ddp
from horovod.torch.compression import errors as of_compressors
from horovod.torch.ddp import __main__ as program
from horovod.torch.ddp import errors

NOTICE = "there is one process, so nothing is sent and nothing compressed; with several: `horovodrun -np N"


@pytest.fixture(autouse=True)
def started_by_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    for launcher in LAUNCHERS:
        for name in (launcher.rank, launcher.size):
            monkeypatch.delenv(name or "-", raising=False)


def trained(model: torch.nn.Module) -> torch.Tensor:
    model(torch.ones(4, 64)).sum().backward()
    (gradient,) = (parameter.grad for parameter in model.parameters())
    assert gradient is not None
    return gradient


def layer() -> torch.nn.Module:
    return torch.nn.Linear(64, 64, bias=False)


COMPRESS_FSDP = pytest.param(
    ddp.compress_fsdp,
    marks=pytest.mark.skipif(
        not hasattr(getattr(fsdp, "FSDPModule", None), "set_custom_reduce_scatter"),
        reason="this torch has no FSDP whose reduce-scatter may be replaced",
    ),
)


@pytest.mark.parametrize("call", [ddp.compress, COMPRESS_FSDP])
def test_one_process_is_told_and_nothing_is_done(
    call: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    model = layer()
    with caplog.at_level(logging.WARNING):
        call(model, "int4")
    (said,) = caplog.messages
    assert NOTICE in said and "\n" not in said
    assert torch.equal(trained(model), trained(layer()))


def test_its_state_is_that_of_any_other_script() -> None:
    state = ddp.compress(layer(), "int4:error_feedback=1", may_turn_off=True)
    state.consolidate_residuals(to=0)
    state.set_loss_scale(2.0)
    assert state.choice is None and state.state_dict() == {}
    state.load_state_dict({"kept": "by a training on several"})
    assert state.state_dict() == {"kept": "by a training on several"}
    state.close()


def test_also_where_there_is_a_process_group() -> None:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        state = ddp.compress(layer(), "int4:error_feedback=1")
        state.consolidate_residuals(to=0)
        state.close()
    finally:
        dist.destroy_process_group()


def test_what_is_wrong_is_still_refused() -> None:
    with refused(of_compressors.wrong_text, name="bit9"):
        ddp.compress(layer(), "bit9")
    with refused(of_compressors.rule_matches_nothing, pattern="head.*"):
        ddp.compress(layer(), {"head.*": "bit8"})
    with refused(errors.not_ddp, got="torch.optim.sgd.SGD"):
        ddp.compress(torch.optim.SGD(layer().parameters()), "bit8")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "call, row",
    [
        (ddp.compress, errors.not_wrapped),
        pytest.param(*COMPRESS_FSDP.values, errors.nothing_sharded, marks=COMPRESS_FSDP.marks),
    ],
)
def test_one_of_several_is_not_alone(
    call: Callable[..., Any], row: Sentence, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Torch does not know the other ranks yet, as with other launchers than its own, or with
    multiprocessing.spawn, which passes rank and size as arguments that cannot be seen.
    """
    with monkeypatch.context() as patch:
        patch.setenv("SLURM_PROCID", "0")
        patch.setenv("SLURM_STEP_NUM_TASKS", "4")
        with refused(row) as caught:
            call(layer(), "bit8")
        assert "SLURM_STEP_NUM_TASKS=4 " in caught.value.facts["evidence"]
    monkeypatch.setattr(multiprocessing, "parent_process", lambda: object())
    with refused(row) as caught:
        call(layer(), "bit8")
    assert "parent_process()" in caught.value.facts["evidence"]


def test_what_keeps_compression_from_processes_of_a_script(monkeypatch: pytest.MonkeyPatch) -> None:
    def why(*loaded_by_torch: str) -> str:
        points = [EntryPoint("x", value, "torch.backends") for value in loaded_by_torch]
        monkeypatch.setattr(program, "entry_points", lambda group: points)
        return program._why_others_are_not_compressed()

    monkeypatch.delenv("TORCH_DEVICE_BACKEND_AUTOLOAD", raising=False)
    assert "no entry point for torch" in why() and "no entry point for torch" in why("a:load", "z:load")
    assert why("horovod.torch_autoload:load") == why("z:load", "horovod.torch_autoload:load") == ""
    monkeypatch.setenv("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")
    assert why("horovod.torch_autoload:load") == "TORCH_DEVICE_BACKEND_AUTOLOAD=0."
