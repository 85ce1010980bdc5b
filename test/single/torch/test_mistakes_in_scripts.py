"""What people get wrong in scripts, and what is printed of the error: five lines at most."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from thread_ranks import run_ranks
from torch.nn.parallel import DistributedDataParallel

import horovod.torch as hvd
from horovod import torch_autoload
from horovod.common import jobs, notes, tracebacks, variables
from horovod.torch import ddp

MOST_LINES = 5
# (a line of a script, what its error says), by what has been done before.
BEFORE_INIT = [
    ("hvd.rank()", "Horovod has not been initialized; use hvd.init()"),
    ("hvd.allreduce(torch.ones(2))", "call hvd.init() first"),
    ("hvd.DistributedOptimizer(sgd, model.named_parameters())", "use hvd.init()"),
    ("hvd.init(process_sets='static')", "give a list of ProcessSets, or 'dynamic'"),
    ("hvd.init(process_sets=[[0, 1]])", "takes hvd.ProcessSet objects, not [0, 1]"),
    ("hvd.init(comm='world')", "comm must be None, a list of ranks or an mpi4py communicator"),
    ("hvd.allreduc(torch.ones(2))", "no attribute 'allreduc'; did you mean allreduce?"),
    ("hvd.Init()", "no attribute 'Init'; did you mean init?"),
    ("import horovod.tensorflow", "this package serves PyTorch only"),
    ("hvd.elastic.TorchStat()", "no attribute 'TorchStat'"),
]
OF_COLLECTIVES = [
    ("hvd.allreduce([1.0, 2.0])", "expected a torch.Tensor, not <class 'list'>"),
    ("hvd.allreduce(torch.ones(2).to(torch.float8_e5m2))", "Float8_e5m2Tensor is not supported"),
    ("hvd.allreduce(torch.ones(2, dtype=torch.complex64), op=hvd.Max)", "complex numbers are added only"),
    ("hvd.allreduce(torch.tensor([True]))", "op=Average of torch.bool"),
    ("hvd.allreduce(torch.ones(2), op='sum')", "did you mean hvd.Sum?"),
    ("hvd.allreduce(torch.ones(2), op=7)", "op=7 is not a reduce operation"),
    ("hvd.allreduce(torch.ones(2), average=True, op=hvd.Sum)", "Give either op or the deprecated average"),
    ("hvd.allreduce(torch.ones(2, dtype=torch.int32), op=hvd.Adasum)", "Adasum serves float16, float32"),
    ("hvd.broadcast(torch.ones(2), root_rank=7)", "root rank 7 is not among the ranks"),
    ("hvd.grouped_allreduce(torch.ones(2))", "expected a list of tensors, not one tensor"),
    (
        "hvd.alltoall(torch.ones(4), splits=torch.tensor([5]))",
        "splits must be a 1-dimensional tensor of int32",
    ),
    ("hvd.reducescatter(torch.tensor(1.0))", "a tensor without dimensions cannot be scattered"),
    ("hvd.broadcast_parameters(model, root_rank=0)", "give its state_dict()"),
    (
        "hvd.broadcast_optimizer_state(torch.optim.LBFGS(model.parameters()), 0)",
        "does not serve torch.optim.LBFGS",
    ),
    ("hvd.add_process_set([0])", "needs dynamic process sets: set HOROVOD_DYNAMIC_PROCESS_SETS=1"),
    ("hvd.allreduce(torch.ones(2), process_set=hvd.ProcessSet([0]))", "give it to hvd.init() or hvd.add_"),
    ("hvd.start_timeline('trace.json')", "needs HOROVOD_TIMELINE to be set before hvd.init()"),
]
OF_OPTIMIZERS = [
    ("hvd.DistributedOptimizer(model)", "takes an optimizer of torch.optim, not <class"),
    ("hvd.DistributedOptimizer(hvd.DistributedOptimizer(sgd))", "is a DistributedOptimizer already"),
    ("hvd.DistributedOptimizer(sgd, model.parameters())", "a sequence of (name, parameter) tuples"),
    ("hvd.DistributedOptimizer(sgd, [('a', weight), ('a', bias)])", "Found duplicates: a"),
    ("hvd.DistributedOptimizer(sgd, [('a', weight)])", "1 of the optimizer's parameters are not in it"),
    ("hvd.DistributedOptimizer(sgd, backward_passes_per_step=0)", "must be 1 or more"),
    ("hvd.DistributedOptimizer(sgd, gradient_predivide_factor=0)", "must be greater than 0"),
    ("hvd.DistributedOptimizer(sgd, compression='bti8')", "has added by now; did you mean bit8?"),
    ("hvd.DistributedOptimizer(sgd, compression={'fc.*': 'bit8'})", "the rule 'fc.*' matches no parameter"),
    ("hvd.DistributedOptimizer(sgd, compression=torch.half)", "no compressor: it lacks compress()"),
]
OF_COMPRESSORS = [
    ("hvd.Compression.bit8(format='e4m4')", "allowed is 'e4m3' or 'e5m2' or 'e3m4'"),
    ("hvd.Compression.from_text('bit8:block_size=33')", "allowed is 32 or 64 or 128"),
    ("hvd.Compression.from_text('bit8:blocksize=32')", "did you mean block_size?"),
    ("hvd.Compression.topk(ratio=2)", "allowed is a number above 0 and up to 1"),
    ("hvd.Compression.powersgd(rank=0)", "allowed is an integer of 1 or more"),
    ("hvd.Compression.register('bit8', hvd.Compression.int4)", "the name is taken; choose another"),
    (
        "hvd.allreduce(torch.ones(2), compression=hvd.Compression.bit8(error_feedback=True))",
        "Leave it out of",
    ),
]
OF_DDP = [
    ("ddp.CompressionState('bti8')", "there is no 'bti8'; there are bf16"),
    ("ddp.compress(wrapped, 'bti8')", "there is no 'bti8'; there are bf16"),
    ("ddp.compress(wrapped, 'bit8', bits=8)", "unexpected keyword argument 'bits'"),
    ("ddp.compress(wrapped); ddp.compress(wrapped)", "the model has a communication hook already"),
    ("ddp.compress(sgd)", "DistributedDataParallel"),
    (
        "wrapped.register_comm_hook({}, ddp.compression_hook); wrapped(torch.ones(1, 4)).sum().backward()",
        "register_comm_hook(ddp.CompressionState('bit8'), ddp.compression_hook)",
    ),
]
# Both ranks of a job say the same, and it goes on.
OF_TWO_RANKS = [
    ("hvd.allreduce(torch.ones(2 + hvd.rank()), name='x')", r"\(2,\).*\(3,\)"),
    (
        "hvd.allreduce(torch.ones(2).to((torch.float32, torch.float64)[hvd.rank()]), name='x')",
        "float32.*float64",
    ),
    ("hvd.allreduce(torch.ones(2), name='x', op=(hvd.Sum, hvd.Average)[hvd.rank()])", "(?i)average|sum"),
    ("hvd.broadcast(torch.ones(2), hvd.rank(), name='x')", "root"),
    (
        "hvd.allreduce(torch.ones(2), name='x', compression=(bit8, int8)[hvd.rank()])",
        "bit8.*int8",
    ),
    ("hvd.allgather(torch.ones(2, 3 + hvd.rank()), name='x')", "x"),
]


def environment(wrapped: bool) -> dict[str, Any]:
    model = torch.nn.Linear(4, 2)
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    return {
        "hvd": hvd,
        "ddp": ddp,
        "torch": torch,
        "model": model,
        "wrapped": DistributedDataParallel(model) if wrapped else None,
        "sgd": sgd,
        "weight": model.weight,
        "bias": model.bias,
        "bit8": hvd.Compression.bit8,
        "int8": hvd.Compression.int8,
    }


def printed(line: str, wrapped: bool = False) -> str:
    """What a script of this line prints, which is the last of the stack here."""
    try:
        exec(compile(line, "train.py", "exec"), environment(wrapped))
    except Exception as error:
        assert error.__traceback__ is not None
        return tracebacks.shown(error.with_traceback(error.__traceback__.tb_next))
    raise AssertionError(f"{line}: no error")


def check(line: str, said: str, text: str) -> None:
    lines = text.splitlines()
    assert lines[0] == "Traceback (most recent call last):" and lines[1].startswith(
        '  File "train.py", line 1'
    )
    assert len(lines) <= MOST_LINES, text
    assert re.search(said, lines[-1]), text
    assert len(lines[-1]) < 600


@pytest.mark.parametrize(("line", "said"), BEFORE_INIT)
def test_before_init(line: str, said: str) -> None:
    check(line, re.escape(said), printed(line))


@pytest.fixture(scope="module")
def job() -> Iterator[None]:
    hvd.init()
    yield
    hvd.shutdown()


@pytest.mark.parametrize(("line", "said"), OF_COLLECTIVES + OF_OPTIMIZERS + OF_COMPRESSORS)
def test_after_init(line: str, said: str, job: None) -> None:
    check(line, re.escape(said), printed(line))


@pytest.fixture(scope="module")
def group() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.parametrize(("line", "said"), OF_DDP)
def test_of_distributed_data_parallel(line: str, said: str, group: None) -> None:
    check(line, re.escape(said), printed(line, wrapped=True))


def test_variables_by_hand_that_are_not_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    with jobs.Job().entered():
        text = printed("hvd.init()")
    check("hvd.init()", "torchrun.* MASTER_ADDR.* Use `horovodrun -np N python train.py`", text)


@pytest.fixture
def mistyped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOROVOD_CACHE_CAPACTIY", "0")
    monkeypatch.delenv(notes.VARIABLE, raising=False)
    monkeypatch.setattr(variables, "_told", set())


TOLD = (
    "HOROVOD_CACHE_CAPACTIY is no variable of horovod and does nothing; did you mean HOROVOD_CACHE_CAPACITY?"
)


def test_rank_0_warns_of_a_variable_once(mistyped: None, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        run_ranks(2, hvd.rank)
    (record,) = caplog.records
    assert TOLD in record.getMessage()


def test_under_horovodrun_that_has_done_so(
    mistyped: None, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(notes.VARIABLE, "0:0:0")
    run_ranks(1, hvd.rank)
    torch_autoload.load()
    assert caplog.records == []


def test_under_torchrun_import_torch_warns(
    mistyped: None, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a variable that would have had the package loaded, nothing else could tell."""
    torch_autoload.load()
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    monkeypatch.setenv("RANK", "1")
    torch_autoload.load()
    assert caplog.records == []
    monkeypatch.setenv("RANK", "0")
    torch_autoload.load()
    (record,) = caplog.records
    assert TOLD in record.getMessage()


def test_two_threads_of_a_rank_with_one_name() -> None:
    came = threading.Event()

    def work() -> str:
        if hvd.rank() == 1:
            came.wait()
            hvd.allreduce(torch.ones(2), name="x")
            return ""
        handle = hvd.allreduce_async(torch.ones(2), name="x")
        text = printed("hvd.allreduce(torch.ones(2), name='x')")
        came.set()
        hvd.synchronize(handle)
        return text

    text = run_ranks(2, work)[0]
    check(
        "",
        "'allreduce.x' is already in flight on rank 0; give each pending operation a name of its own",
        text,
    )


def test_an_uncaught_error_is_shown_so() -> None:
    """By the hook that importing the package leaves; in full where it is asked for, or is of another kind."""
    script = "import horovod.torch as hvd\nhvd.rank()\n"

    def said(**variables: str) -> list[str]:
        command = [sys.executable, "-c", script]
        done = subprocess.run(
            command, env=os.environ | variables, capture_output=True, text=True, check=False
        )
        return done.stderr.splitlines()

    assert [line.split(":")[0] for line in said()] == [
        "Traceback (most recent call last)",
        '  File "<string>", line 2, in <module>',
        "ValueError",
    ]
    assert any("basics.py" in line for line in said(HOROVOD_LOG_LEVEL="debug"))
    hvd.init()
    broken = printed("sgd.param_groups = 3; hvd.DistributedOptimizer(sgd)")
    hvd.shutdown()
    assert "TypeError" in broken and "horovod/torch" in broken


def test_between_ranks() -> None:
    """One job: after each disagreement it goes on."""

    def work() -> list[str]:
        return [printed(line) for line, _ in OF_TWO_RANKS]

    for texts in run_ranks(2, work):
        for (line, said), text in zip(OF_TWO_RANKS, texts, strict=True):
            check(line, said, text)


def test_an_error_of_the_script_before_ours_is_shown() -> None:
    """It is the reason: a job that ran out of memory must not end with words about another rank only."""
    script = "try:\n    raise RuntimeError('no memory')\nfinally:\n    hvd.Compression.from_text('bit9')"
    text = printed(script)
    assert "RuntimeError: no memory" in text and "During handling" in text and "bit9" in text
