"""Common mistakes in scripts, and the error that is printed: five lines at most."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from refusals import expect
from thread_ranks import run_ranks
from torch.nn.parallel import DistributedDataParallel

import horovod.torch as hvd
from horovod import torch_autoload
from horovod.common import errors as of_common
from horovod.common import jobs, notes, tracebacks, variables
from horovod.common.compressors import COMPRESSORS
from horovod.common.exceptions import CannotStart, WrongArgument
from horovod.common.sentences import Explained, Sentence
from horovod.torch import ddp, errors
from horovod.torch.compression import errors as of_compressors
from horovod.torch.ddp import errors as of_ddp

MOST_LINES = 5
Case = tuple[str, Sentence | type[Explained] | str, dict[str, Any]]


def case(line: str, said: Sentence | type[Explained] | str, /, **facts: Any) -> Case:
    """A line of a script, its error, and the error's facts; Python's own errors are identified by words."""
    return line, said, facts


def of_text(text: str, because: str, **facts: Any) -> Case:
    """A compressor's text that cannot be used."""
    said = f"compression={text!r}"
    return case(f"DO(sgd, {said})", of_compressors.wrong_text, said=said, because=because, **facts)


def of_options(name: str, row: Sentence, of: str, **values: tuple[Any, ...]) -> list[Case]:
    """Valid and invalid values of a compressor's options; ``of`` is its class."""
    return [
        case(f"C.{name}({option}={value!r})", row, compressor=of, option=option, value=value)
        for option, wrong in values.items()
        for value in wrong
    ]


# By the calls before.
BEFORE_INIT = [
    *[
        case(f"hvd.{asked}", of_common.not_initialized)
        for asked in (
            *("rank()", "size()", "local_rank()", "local_size()", "cross_rank()", "cross_size()"),
            *("is_homogeneous()", "tuning()", "metrics()", "elastic.init_process_group('gloo')"),
            *("elastic.ElasticSampler(range(3))", "DistributedOptimizer(sgd, model.named_parameters())"),
            "SyncBatchNorm(3)(torch.ones(2, 3))",
        )
    ],
    *[
        case(f"hvd.{asked}", of_common.not_running)
        for asked in (
            *("allreduce(weight)", "allreduce_async_(weight)", "allgather(weight)", "broadcast_(weight, 0)"),
            *("grouped_allreduce([weight])", "barrier()"),
        )
    ],
    *[
        case(f"hvd.init({given})", row, **facts)
        for given, row, facts in (
            ("comm=[0, 1]", CannotStart, {"code": "comm_without_launcher"}),
            ("comm=[0.5]", of_common.no_whole_numbers, {"got": "[0.5]"}),
            ("comm='world'", of_common.not_a_comm, {"got": "'world'"}),
            ("comm=3", of_common.not_a_comm, {"got": "3"}),
            ("process_sets='static'", of_common.unknown_process_sets, {"got": "static"}),
            ("process_sets=[[0]]", of_common.of_a_rank, {"why": str(of_common.no_process_set(got="[0]"))}),
            ("process_sets=[hvd.ProcessSet([0])]", of_common.exists_already, {"members": [0]}),
            ("process_sets=[hvd.ProcessSet([])]", of_common.exists_already, {"members": [0]}),
            ("process_sets=[hvd.ProcessSet([1])]", of_common.no_such_ranks, {"members": [1], "last": 0}),
            ("process_sets=[hvd.ProcessSet([0, 0])]", of_common.named_twice, {"members": [0, 0]}),
            (
                "process_sets=[hvd.ProcessSet(5)]",
                of_common.of_a_rank,
                {"why": str(of_common.not_ranks_or_communicator(got="5"))},
            ),
        )
    ],
    case("hvd.allreduc(torch.ones(2))", "no attribute 'allreduc'; did you mean allreduce?"),
    case("hvd.Init()", "no attribute 'Init'; did you mean init?"),
    case("import horovod.tensorflow", "this package serves PyTorch only"),
    case("hvd.elastic.TorchStat()", "no attribute 'TorchStat'"),
    *[
        case(f"hvd.SyncBatchNorm(3){how}(torch.ones({size}))", row, **facts)
        for how in ("", ".eval()")
        for size, row, facts in (
            ("3", errors.too_few_dimensions, {"dimensions": 1}),
            ("()", errors.too_few_dimensions, {"dimensions": 0}),
            ("2, 4, 5", errors.wrong_features, {"features": 3, "shape": (2, 4, 5)}),
            ("2, 3, dtype=torch.int64", errors.not_floating, {"dtype": "torch.int64"}),
        )
    ],
    case("ddp.compress(model, 'bit9')", of_compressors.wrong_text, name="bit9"),
    case("ddp.compress(model, {'head.*': 'bit8'})", of_compressors.rule_matches_nothing, pattern="head.*"),
]
# DO is hvd.DistributedOptimizer, C hvd.Compression.
OF_OPTIMIZERS = [
    case("DO(model)", errors.wrong_optimizer, got="torch.nn.modules.linear.Linear"),
    *[
        case(f"DO(sgd, gradient_predivide_factor=2.0, op={op})", errors.predivided_op)
        for op in (hvd.Sum, hvd.Adasum)
    ],
    case("DO(sgd, gradient_predivide_factor=0.0)", errors.wrong_predivide_factor, value=0.0),
    case("DO(sgd, backward_passes_per_step=0)", errors.wrong_passes, value=0),
    case("DO(sgd, unused='some')", errors.wrong_unused, value="some"),
    case("DO(sgd, model.parameters())", errors.no_pairs),
    case("DO(sgd, [(weight,), (bias,)])", errors.no_pairs),
    case("DO(sgd, [('a', weight), ('a', bias)])", errors.repeated_names, names=["a"]),
    case("DO(sgd, [('a', weight)])", errors.unnamed_parameters, count=1),
    case("DO(sgd, groups=-1)", errors.negative_groups, value=-1),
    case("DO(sgd, groups='all')", errors.no_groups),
    case("DO(sgd, groups=[weight])", errors.no_groups),
    case("DO(sgd, groups=[['weight']])", errors.no_members),
    case("DO(sgd, groups=[[weight], [weight]])", errors.member_twice),
    case("DO(sgd, groups=[[torch.ones(3)]])", errors.strange_member),
    case("DO(sgd, process_set=None)", errors.unregistered_set, value="None"),
    case("DO(sgd, process_set=hvd.ProcessSet([0]))", errors.unregistered_set),
    case("DO(sgd, process_set=hvd.ProcessSet([0]), op=hvd.Adasum)", errors.adasum_over_set),
    case("DO(sgd, skip_extra_backward=True, op=hvd.Adasum)", errors.adasum_skips_nothing),
    case("DO(sgd, compression='bit8', op=hvd.Min)", errors.codes_op, compressor="bit8", op="Min"),
    case("DO(sgd, compression='bit16', op=hvd.Adasum)", errors.codes_op, compressor="bit16", op="Adasum"),
    case("DO(sgd, compression=C.bf16, op=hvd.Adasum)", errors.bf16_adasum),
    case("DO(sgd, compression=3)", of_compressors.no_compressor, said="compression=3", method="compress"),
]
OF_COMPRESSORS = [
    *of_options("bit8", of_compressors.wrong_choice, "Bit8Compressor", format=("e4m4",), rounding=("up",)),
    *of_options("bit8", of_compressors.wrong_choice, "Bit8Compressor", error_feedback=("yes", 1)),
    *of_options("bit8", of_compressors.wrong_choice, "Bit8Compressor", block_size=(128.0, 100, 2048)),
    *of_options("bit8", of_compressors.wrong_integer, "Bit8Compressor", seed=(-1, 1.5)),
    *of_options("bit8", of_compressors.wrong_integer, "Bit8Compressor", min_elements=(-1, True)),
    *of_options("topk", of_compressors.wrong_integer, "TopKCompressor", k=(0, 1.5), min_elements=(-1,)),
    *of_options("topk", of_compressors.wrong_choice, "TopKCompressor", error_feedback=(0,)),
    *of_options("powersgd", of_compressors.wrong_integer, "PowerSGDCompressor", rank=(0, 1.0), seed=(-1,)),
    *of_options("powersgd", of_compressors.wrong_choice, "PowerSGDCompressor", warm_start=(1,)),
    *of_options("powersgd", of_compressors.wrong_choice, "PowerSGDCompressor", error_feedback=(None,)),
    *[
        case(f"C.topk(ratio={ratio})", of_compressors.wrong_ratio)
        for ratio in (0, 1.01, "float('nan')", True, "''")
    ],
    case("C.topk(ratio=0.1, k=3)", of_compressors.ratio_and_k, ratio=0.1, k=3),
    of_text("bti8", "unknown_compressor", hint="; did you mean bit8?"),
    of_text("int4:levels=lloyd", "lloyd_unrotated"),
    of_text("int4:levels=lloyd,rotation=hadamard,rounding=stochastic", "lloyd_rounding"),
    of_text("bit8:blocksize=32", "unknown_option", option="blocksize", hint="; did you mean block_size?"),
    of_text("bit8:block=32", "unknown_option", known=list(COMPRESSORS["bit8"])),
    of_text("none:seed=1", "unknown_option", option="seed", known=["none"]),
    of_text("bit8:block_size=33", "wrong_choice", allowed="32 or 64 or 128 or 256 or 512 or 1024"),
    of_text("bit8:block_size=big", "not_a_number", option="block_size", value="big"),
    of_text("bit8:error_feedback=maybe", "not_a_boolean", option="error_feedback", value="maybe"),
    of_text("bit8:seed=1,seed=2", "option_twice"),
    *[of_text(text, "not_a_text") for text in ("bit8:", "bit8;int4", "")],
    *[of_text(text, "unknown_compressor", name=text) for text in ("register", "__doc__")],
    case("DO(sgd, compression={'fc.*': 'bit8'})", of_compressors.rule_matches_nothing, pattern="fc.*"),
    case(
        "DO(sgd, model.named_parameters(), compression={'w*': 'bit8', 'B*': 'none'})",
        of_compressors.rule_matches_nothing,
        pattern="B*",
        names=["weight", "bias"],
    ),
    case(
        "DO(sgd, compression={3: 'bit8'})", of_compressors.no_pattern, said="compression={3: 'bit8'}", got="3"
    ),
    case("DO(sgd, compression={'*': 3})", of_compressors.no_compressor, said="compression={'*': 3}"),
    case("DO(sgd, compression={'*': 'bit9'})", of_compressors.wrong_text, said="compression={'*': 'bit9'}"),
    *[
        case(f"C.register({name!r}, C.int4)", of_compressors.name_taken, name=name)
        for name in ("bit8", "none", "register", "from_text", "_half")
    ],
    *[
        case(f"C.register({name!r}, C.int4)", of_compressors.no_python_name, name=name)
        for name in ("my half", "", "class", 3)
    ],
    *[case(f"C.register('good', {of})", of_compressors.no_compressor) for of in (3, "object")],
]
OF_COLLECTIVES = [
    *[
        case(f"hvd.{name}({tensor}{more})", row, **facts)
        for name, more in (("allreduce", ""), ("allgather", ""), ("broadcast_", ", 0"))
        for tensor, row, facts in (
            ("[1.0, 2.0]", errors.not_a_tensor, {"got": "list"}),
            ("torch.ones(2).to(torch.float8_e5m2)", errors.wrong_dtype, {"got": "torch.Float8_e5m2Tensor"}),
            ("torch.eye(2).to_sparse()", errors.wrong_layout, {"layout": "torch.sparse_coo"}),
            (
                "torch.ones(2, device='meta')",
                errors.wrong_place,
                {"device": "meta", "tensor": f"{name.strip('_')}.noname"},
            ),
        )
    ],
    case(
        "hvd.allreduce(torch.ones(2, dtype=torch.complex64), op=hvd.Max)",
        errors.complex_op,
        op="Max",
        dtype="torch.complex64",
    ),
    case("hvd.allreduce(torch.tensor([True]))", errors.average_of_bool, shape=(1,), ranks=(0,)),
    case("hvd.allreduce(torch.ones(2), op='sum')", of_common.op_is_text, hint="; did you mean hvd.Sum?"),
    case("hvd.allreduce(torch.ones(2), op=7)", errors.no_operation, value=7),
    case("hvd.allreduce(torch.ones(2), average=True, op=hvd.Sum)", of_common.op_and_average),
    case(
        "hvd.allreduce(torch.ones(2, dtype=torch.int32), op=hvd.Adasum)",
        WrongArgument,
        code="adasum_dtype",
        dtype="int32",
    ),
    *[
        case(f"hvd.reducescatter{how}(torch.ones(2), op=hvd.{op})", errors.scattered_op, op=op)
        for how in ("", "_async")
        for op in ("Adasum", "Min", "Max", "Product")
    ],
    case(
        "hvd.sparse_allreduce_async(torch.eye(2).to_sparse(), 'x', hvd.Max)", errors.sparse_op, value=hvd.Max
    ),
    *[
        case(f"hvd.allreduce{how}(torch.ones(2), compression={of})", row, said=f"compression={of}", **facts)
        for how in ("", "_async_")
        for of, row, facts in (
            ("None", of_compressors.no_compressor, {"method": "compress"}),
            ("'bit8'", of_compressors.no_compressor, {"method": "compress"}),
        )
    ],
    case(
        "class Half:\n  compress = 1 .real.__pos__\nhvd.allreduce(torch.ones(2), compression=Half)",
        of_compressors.no_compressor,
        method="decompress",
    ),
    case(
        "class Odd(C.none):\n  combine = 'xor'\nhvd.allreduce(torch.ones(2), compression=Odd)",
        of_compressors.wrong_combine,
        value="xor",
    ),
    case(
        "hvd.allreduce(torch.ones(2), compression=C.bit8(error_feedback=True))",
        of_compressors.feedback_of_one_call,
    ),
    case("hvd.poll(987654321)", errors.not_in_flight, handle=987654321),
    case("hvd.broadcast(torch.ones(2), root_rank=7)", WrongArgument, code="root_outside", root=7),
    case("hvd.grouped_allreduce(torch.ones(2))", errors.one_tensor),
    case(
        "hvd.alltoall(torch.ones(4), splits=torch.tensor([5]))",
        errors.wrong_splits,
        dtype="torch.int64",
        shape=(1,),
    ),
    case("hvd.reducescatter(torch.tensor(1.0))", errors.no_rows),
    case(
        "hvd.broadcast_parameters(model, root_rank=0)",
        errors.no_named_tensors,
        got="torch.nn.modules.linear.Linear",
        hint="; give its state_dict()",
    ),
    *[
        case(f"hvd.broadcast_parameters({given}, root_rank=0)", errors.no_named_tensors, hint="")
        for given in ("torch.ones(3)", "'weights'", "7", "None")
    ],
    *[
        case(f"hvd.broadcast_parameters({given}, root_rank=0)", errors.no_tensor_pair)
        for given in ("[1.0]", "{'a': 'b'}", "[('a', 1, 2)]")
    ],
    *[
        case(
            f"lbfgs = torch.optim.LBFGS([weight]); hvd.broadcast_optimizer_state({given}, 0)",
            errors.lbfgs_state,
        )
        for given in ("lbfgs", "DO(lbfgs)")
    ],
    *[
        case(f"hvd.elastic.init_process_group('gloo', {option}=1)", errors.said_by_itself, options=[option])
        for option in ("rank", "world_size", "store", "init_method")
    ],
    case("DO(DO(sgd))", errors.wrapped_already),
    case("DO(sgd).set_backward_passes_per_step(0)", errors.wrong_passes, value=0),
    case("import pickle; pickle.dumps(DO(sgd))", errors.not_pickled),
    case("type(DO(sgd))([weight], lr=0.1)", errors.not_constructed),
    case("hvd.add_process_set([0])", of_common.not_dynamic, function="add_process_set"),
    case(
        "hvd.allreduce(torch.ones(2), process_set=hvd.ProcessSet([0]))", of_common.not_registered, ranks=(0,)
    ),
    case("hvd.start_timeline('trace.json')", WrongArgument, code="timeline_not_asked_for"),
    case("hvd.mpi_threads_supported()", of_common.no_mpi_threads),
]
OF_DDP = [
    case("ddp.CompressionState('bti8')", of_compressors.wrong_text, name="bti8"),
    case("ddp.compress(wrapped, 'bti8')", of_compressors.wrong_text, name="bti8"),
    case("ddp.compress(wrapped, 'bit8', bits=8)", "unexpected keyword argument 'bits'"),
    case("ddp.compress(wrapped); ddp.compress(wrapped)", of_ddp.hooked_already),
    case("ddp.compress(sgd)", of_ddp.not_ddp, got="torch.optim.sgd.SGD"),
    case(
        "wrapped.register_comm_hook({}, ddp.compression_hook); wrapped(torch.ones(1, 4)).sum().backward()",
        of_ddp.wrong_state,
        got="dict",
    ),
]
# Both ranks of a job raise the same, and the job continues.
OF_TWO_RANKS = [
    ("hvd.allreduce(torch.ones(2 + hvd.rank()), name='x')", r"\(2,\).*\(3,\)"),
    (
        "hvd.allreduce(torch.ones(2).to((torch.float32, torch.float64)[hvd.rank()]), name='x')",
        "float32.*float64",
    ),
    ("hvd.allreduce(torch.ones(2), name='x', op=(hvd.Sum, hvd.Average)[hvd.rank()])", "(?i)average|sum"),
    ("hvd.broadcast(torch.ones(2), hvd.rank(), name='x')", "root"),
    (
        "hvd.allreduce(torch.ones(2), name='x', compression=(C.bit8, C.int8)[hvd.rank()])",
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
        "C": hvd.Compression,
        "DO": hvd.DistributedOptimizer,
    }


def failed(line: str, wrapped: bool = False) -> tuple[Exception, str]:
    """The error of a script with this line, the last of the stack here, and its printed text."""
    try:
        exec(compile(line, "train.py", "exec"), environment(wrapped))
    except Exception as error:
        assert error.__traceback__ is not None
        return error, tracebacks.shown(error.with_traceback(error.__traceback__.tb_next))
    raise AssertionError(f"{line}: no error")


def printed(line: str) -> str:
    return failed(line)[1]


def check(said: Sentence | type[Explained] | str, facts: dict[str, Any], error: Exception, text: str) -> None:
    lines = text.splitlines()
    assert lines[0] == "Traceback (most recent call last):" and lines[1].startswith(
        '  File "train.py", line '
    )
    assert len(lines) <= MOST_LINES, text
    assert lines[-1].endswith(str(error)) and len(lines[-1]) < 600
    if isinstance(said, str):
        assert re.search(said, lines[-1]), text
    else:
        expect(error, said, **facts)


def cases(*of: Case) -> Any:
    escaped = [(line, re.escape(said) if isinstance(said, str) else said, facts) for line, said, facts in of]
    return pytest.mark.parametrize(("line", "said", "facts"), escaped, ids=[line for line, *_ in of])


@cases(*BEFORE_INIT, *OF_OPTIMIZERS, *OF_COMPRESSORS)
def test_before_init(line: str, said: Sentence | type[Explained] | str, facts: dict[str, Any]) -> None:
    check(said, facts, *failed(line))
    assert not hvd.is_initialized() and not hasattr(hvd.Compression, "good")


@pytest.fixture(scope="module")
def job() -> Iterator[None]:
    hvd.init()
    yield
    hvd.shutdown()


@cases(*OF_COLLECTIVES)
def test_after_init(
    line: str, said: Sentence | type[Explained] | str, facts: dict[str, Any], job: None
) -> None:
    before = hvd.metrics()["operations"]
    check(said, facts, *failed(line))
    assert hvd.metrics()["operations"] == before, "it asks for nothing"


@pytest.fixture(scope="module")
def group() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@cases(*OF_DDP)
def test_of_distributed_data_parallel(
    line: str, said: Sentence | type[Explained] | str, facts: dict[str, Any], group: None
) -> None:
    check(said, facts, *failed(line, wrapped=True))


def test_variables_by_hand_that_are_not_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    with jobs.Job().entered():
        error, text = failed("hvd.init()")
    check(of_common.no_meeting_point, {}, error, text)


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
    """No other code can report a variable that should have loaded the package."""
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

    def work() -> Any:
        if hvd.rank() == 1:
            came.wait()
            hvd.allreduce(torch.ones(2), name="x")
            return None
        handle = hvd.allreduce_async(torch.ones(2), name="x")
        found = failed("hvd.allreduce(torch.ones(2), name='x')")
        came.set()
        hvd.synchronize(handle)
        return found

    check("'allreduce.x' is already in flight on rank 0", {}, *run_ranks(2, work)[0])


def test_an_uncaught_error_is_shown_so() -> None:
    """By the hook that the import installs; in full on request, or for errors of other kinds."""
    script = """
import os, sys, horovod.torch as hvd
try:
    hvd.rank()
except Exception as error:
    os.environ["HOROVOD_LOG_LEVEL"] = "debug"
    sys.excepthook(type(error), error, error.__traceback__)
    del os.environ["HOROVOD_LOG_LEVEL"]
hvd.rank()
"""
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    *in_full, first, second, last = done.stderr.splitlines()
    assert any("basics.py" in line for line in in_full)
    assert first == "Traceback (most recent call last):"
    assert second == '  File "<string>", line 9, in <module>'
    assert last.split(":")[0] == "horovod.common.exceptions.NotInitialized"
    hvd.init()
    broken = printed("sgd.param_groups = 3; DO(sgd)")
    hvd.shutdown()
    assert "TypeError" in broken and "horovod/torch" in broken


def test_between_ranks() -> None:
    """One job, which continues after each disagreement."""

    def work() -> list[Any]:
        return [failed(line) for line, _ in OF_TWO_RANKS]

    for found in run_ranks(2, work):
        for (_, said), (error, text) in zip(OF_TWO_RANKS, found, strict=True):
            check(said, {}, error, text)


def test_an_error_of_the_script_before_ours_is_shown() -> None:
    """It is the cause: a job that ran out of memory must not end with a message about another rank only."""
    script = "try:\n    raise RuntimeError('no memory')\nfinally:\n    hvd.Compression.from_text('bit9')"
    text = printed(script)
    assert "RuntimeError: no memory" in text and "During handling" in text and "bit9" in text
