"""Horovod's public names, signatures, classes and helpers, as scripts use them, without a launcher."""

import ast
import inspect
import os
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from refusals import refused

import horovod
import horovod.torch as hvd
from horovod.common import errors, exceptions, util
from horovod.torch import compression, functions, mpi_ops, optimizer

REDUCE = "prescale_factor=1.0, postscale_factor=1.0, process_set"
AVERAGE = "average=None, name=None"
# Name, then parameters in Horovod's order with its defaults; process_set is the global one by default.
SIGNATURES = {
    "init": "comm=None, process_sets=None",
    "shutdown": "", "is_initialized": "", "rank": "", "size": "", "local_rank": "", "local_size": "",
    "cross_rank": "", "cross_size": "",
    "start_timeline": "file_path, mark_cycles=False",
    "stop_timeline": "",
    "mpi_threads_supported": "", "mpi_enabled": "", "mpi_built": "", "gloo_enabled": "", "gloo_built": "",
    "nccl_built": "", "ddl_built": "", "ccl_built": "", "cuda_built": "", "rocm_built": "",
    "allreduce": f"tensor, {AVERAGE}, compression=none, op=None, {REDUCE}",
    "allreduce_async": f"tensor, {AVERAGE}, op=None, {REDUCE}",
    "allreduce_": f"tensor, {AVERAGE}, op=None, {REDUCE}",
    "allreduce_async_": f"tensor, {AVERAGE}, op=None, {REDUCE}",
    "grouped_allreduce": f"tensors, {AVERAGE}, compression=none, op=None, {REDUCE}",
    "grouped_allreduce_async": f"tensors, {AVERAGE}, op=None, {REDUCE}",
    "grouped_allreduce_": f"tensors, {AVERAGE}, op=None, {REDUCE}",
    "grouped_allreduce_async_": f"tensors, {AVERAGE}, op=None, {REDUCE}",
    "sparse_allreduce_async": "tensor, name, op, process_set",
    "allgather": "tensor, name=None, process_set",
    "allgather_async": "tensor, name=None, process_set",
    "grouped_allgather": "tensors, name=None, process_set",
    "grouped_allgather_async": "tensors, name=None, process_set",
    "broadcast": "tensor, root_rank, name=None, process_set",
    "broadcast_async": "tensor, root_rank, name=None, process_set",
    "broadcast_": "tensor, root_rank, name=None, process_set",
    "broadcast_async_": "tensor, root_rank, name=None, process_set",
    "alltoall": "tensor, splits=None, name=None, process_set",
    "alltoall_async": "tensor, splits=None, name=None, process_set",
    "reducescatter": "tensor, name=None, compression=none, op=Average, process_set, "
    "prescale_factor=1.0, postscale_factor=1.0",
    "reducescatter_async": "tensor, name=None, op=Average, process_set, "
    "prescale_factor=1.0, postscale_factor=1.0",
    "grouped_reducescatter": "tensors, name=None, compression=none, op=Average, process_set, "
    "prescale_factor=1.0, postscale_factor=1.0",
    "grouped_reducescatter_async": "tensors, name=None, op=Average, process_set, "
    "prescale_factor=1.0, postscale_factor=1.0",
    "join": "device=-1",
    "barrier": "process_set",
    "poll": "handle",
    "synchronize": "handle",
    "ProcessSet": "ranks_or_comm",
    "add_process_set": "process_set", "remove_process_set": "process_set",
    "broadcast_parameters": "params, root_rank",
    "broadcast_optimizer_state": "optimizer, root_rank, model=None",
    "broadcast_object": "obj, root_rank=0, name=None, process_set",
    "allgather_object": "obj, name=None",
    "DistributedOptimizer": "optimizer, named_parameters=None, compression=none, backward_passes_per_step=1, "
    "op=Average, gradient_predivide_factor=1.0, num_groups=0, groups=None, sparse_as_dense=False, "
    "process_set",
    "SyncBatchNorm": "num_features, eps=1e-05, momentum=0.1, affine=True, track_running_stats=True, "
    "process_set",  # the last one is this package's
}  # fmt: skip
PLAIN_VALUES = {"Adasum", "Average", "Compression", "HorovodInternalError", "Max", "Min", "Product", "Sum"}
AUTOGRAD = [
    "HorovodAllgather", "HorovodAllreduce", "HorovodAlltoall", "HorovodBroadcast", "HorovodGroupedAllgather",
    "HorovodGroupedAllreduce", "HorovodGroupedReducescatter", "HorovodReducescatter",
]  # fmt: skip


def as_text(name: str, parameter: inspect.Parameter) -> str:
    """A parameter as SIGNATURES writes it."""
    default = parameter.default
    sets = ("add_process_set", "remove_process_set")
    if parameter.name == "process_set" and name not in sets:
        assert default is hvd.global_process_set
        return "process_set"
    if default is inspect.Parameter.empty:
        return parameter.name
    if default is hvd.Compression.none:
        return f"{parameter.name}=none"
    if parameter.name == "op" and default is not None:
        assert default == hvd.Average
        return "op=Average"
    return f"{parameter.name}={default!r}"


@pytest.mark.parametrize("name", SIGNATURES)
def test_signature(name: str) -> None:
    """Horovod's parameters come first and may be positional; this package's are keyword-only."""
    parameters = inspect.signature(getattr(hvd, name)).parameters.values()
    by_position = [p for p in parameters if p.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
    assert ", ".join(as_text(name, p) for p in by_position) == SIGNATURES[name]
    for parameter in set(parameters) - set(by_position):
        assert parameter.kind is inspect.Parameter.KEYWORD_ONLY
        assert parameter.default is not inspect.Parameter.empty


def test_every_public_name_of_horovod_is_exported() -> None:
    assert set(SIGNATURES) | PLAIN_VALUES | {"global_process_set"} <= set(hvd.__all__)
    star: dict[str, Any] = {}
    exec("from horovod.torch import *", star)
    assert set(SIGNATURES) <= set(star)


def test_modules_that_scripts_reach_into() -> None:
    assert hvd.mpi_ops is mpi_ops and hvd.functions is functions and hvd.optimizer is optimizer
    assert hvd.compression is compression and isinstance(horovod.__version__, str)
    from horovod.torch import sync_batch_norm

    assert sync_batch_norm.SyncBatchNorm is hvd.SyncBatchNorm
    for name in AUTOGRAD:
        assert issubclass(getattr(mpi_ops, name), torch.autograd.Function)
    assert mpi_ops._basics.rank == hvd.rank and callable(mpi_ops.is_homogeneous)
    assert not (set(AUTOGRAD) & set(hvd.__all__))


def test_reduce_ops() -> None:
    assert [hvd.Average, hvd.Sum, hvd.Adasum, hvd.Min, hvd.Max, hvd.Product] == [0, 1, 2, 3, 4, 5]
    assert (mpi_ops.Average, mpi_ops.Sum, mpi_ops.Adasum) == (hvd.Average, hvd.Sum, hvd.Adasum)


def test_average_and_op() -> None:
    for handle in (
        mpi_ops.handle_average_backwards_compatibility,
        util.get_average_backwards_compatibility_fun(mpi_ops),
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert handle(None, None) == hvd.Average and handle(hvd.Max, None) == hvd.Max
        for average, op in ((True, hvd.Average), (False, hvd.Sum)):
            with pytest.warns(DeprecationWarning):
                assert handle(None, average) == op
        with pytest.raises(ValueError):
            handle(hvd.Sum, True)


def test_compression() -> None:
    for dtype, wire in [
        (torch.float32, torch.float16), (torch.float64, torch.float16), (torch.float16, torch.float16),
        (torch.int32, torch.int32), (torch.uint8, torch.uint8),
    ]:  # fmt: skip
        tensor = torch.arange(12).reshape(3, 4).to(dtype)
        small, ctx = hvd.Compression.fp16.compress(tensor)
        assert small.dtype == wire and small.shape == tensor.shape
        restored = hvd.Compression.fp16.decompress(small, ctx)
        assert restored.dtype == dtype and torch.equal(restored, tensor)
        same, ctx = hvd.Compression.none.compress(tensor)
        assert same is tensor and hvd.Compression.none.decompress(same, ctx) is tensor
    for name, base in {"none": "NoneCompressor", "fp16": "FP16Compressor"}.items():
        assert getattr(hvd.Compression, name) is getattr(compression, base)
        assert issubclass(getattr(compression, base), compression.Compressor)


def test_exceptions() -> None:
    assert issubclass(exceptions.HorovodInternalError, RuntimeError)
    assert exceptions.HorovodInternalError is hvd.HorovodInternalError
    assert issubclass(exceptions.HostsUpdatedInterrupt, RuntimeError)
    assert exceptions.HostsUpdatedInterrupt(True).skip_sync is True
    assert exceptions.HostsUpdatedInterrupt(skip_sync=False).skip_sync is False
    assert issubclass(exceptions.HorovodVersionMismatchError, ImportError)
    error = exceptions.HorovodVersionMismatchError("torch", "2.0.0", "2.1.0")
    assert "2.0.0" in str(error) and "2.1.0" in str(error)
    assert "torch" in exceptions.get_version_mismatch_message("torch", "2.0.0", "2.1.0")


def test_what_was_built() -> None:
    for query in (hvd.mpi_built, hvd.mpi_enabled, hvd.gloo_built, hvd.gloo_enabled, hvd.cuda_built):
        assert type(query()) is bool
    assert hvd.gloo_built() is hvd.gloo_enabled() is hvd.ddl_built() is hvd.ccl_built() is False
    assert type(hvd.nccl_built()) is int and (hvd.cuda_built() or hvd.nccl_built() == 0)
    assert hvd.rocm_built() is False
    assert hvd._MPI_LIB_AVAILABLE is True and hvd._check_has_gpu() == torch.cuda.is_available()
    for query in (util.mpi_built, util.gloo_built, util.nccl_built, util.ddl_built, util.ccl_built):
        assert query() == query(verbose=True) == getattr(hvd, query.__name__)()
    assert util.gpu_available("torch") in (False, True)
    assert util.extension_available("torch") is util.extension_available("torch", verbose=True) is True
    assert util.extension_available("tensorflow") is False and util.extension_available("mxnet") is False


def test_queries_speak_where_they_are_asked_to(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Otherwise they answer silently, as other programs call them too."""
    facts = SimpleNamespace(count=0, why_none="there is no driver")
    monkeypatch.setattr(util, "cuda_built", lambda: True)
    monkeypatch.setattr(util.native, "gpu_facts", lambda: facts)
    queries = {
        util.gpu_available: ("torch", "No GPU: there is no driver.\n"),
        util.extension_available: (
            "mxnet", "horovod.mxnet is not available: the framework or the native core is missing.\n"
        ),
    }  # fmt: skip
    for query, (framework, said) in queries.items():
        assert query(framework) is False and capsys.readouterr().out == ""
        assert query(framework, verbose=True) is False and capsys.readouterr().out == said
    facts.count, facts.why_none = 1, ""
    assert util.gpu_available("torch", verbose=True) is True and capsys.readouterr().out == ""
    assert util.gpu_available("mxnet") is False and capsys.readouterr().out == ""
    monkeypatch.setattr(util, "cuda_built", lambda: False)
    assert util.gpu_available("torch") is False


def test_split_list() -> None:
    assert util.split_list([1, 2, 3, 4, 5], 2) == [[1, 2, 3], [4, 5]]
    assert util.split_list(list(range(10)), 3) == [[0, 1, 2, 3], [4, 5, 6], [7, 8, 9]]
    assert util.split_list([1], 1) == [[1]]


def test_small_helpers(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [n for n in range(-1, 18) if util.num_rank_is_power_2(n)] == [1, 2, 4, 8, 16]
    assert [util.is_iterable(x) for x in ([], "a", iter([]), {}, 3, None)] == [True] * 4 + [False] * 2
    assert util.is_version_greater_equal_than("2.13.0+cpu", "2.1.0")
    assert util.is_version_greater_equal_than("1.2.3", "1.2.3")
    assert not util.is_version_greater_equal_than("1.2.3", "1.2.4")
    with refused(errors.no_version, version="2"):
        util.is_version_greater_equal_than("2", "2.4.0")
    monkeypatch.setenv("HOROVOD_SUITE_A", "before")
    monkeypatch.delenv("HOROVOD_SUITE_B", raising=False)
    with util.env(HOROVOD_SUITE_A="inside", HOROVOD_SUITE_B="new"):
        assert os.environ["HOROVOD_SUITE_A"] == "inside" and os.environ["HOROVOD_SUITE_B"] == "new"
    assert os.environ["HOROVOD_SUITE_A"] == "before" and "HOROVOD_SUITE_B" not in os.environ
    with util.env(HOROVOD_SUITE_A=None):
        assert "HOROVOD_SUITE_A" not in os.environ
    assert os.environ["HOROVOD_SUITE_A"] == "before"


def test_extension_helpers() -> None:
    assert util.get_ext_suffix().endswith(".so")
    path = util.get_extension_full_path("/somewhere/horovod/torch/__init__.py", "mpi_lib")
    assert path == "/somewhere/horovod/torch/mpi_lib" + util.get_ext_suffix()
    util.check_extension("horovod._native", "HOROVOD_WITH_PYTORCH", horovod.__file__, "_native")
    with pytest.raises(ImportError):
        util.check_extension("horovod.nothing", "HOROVOD_WITH_NOTHING", horovod.__file__, "nothing")
    with pytest.raises(exceptions.HorovodVersionMismatchError, match=r"built for torch 0\.0\.1"):
        util.check_installed_version("torch", "0.0.1")
    util.check_installed_version("torch", torch.__version__)


def test_a_job_of_one_does_everything() -> None:
    """`python train.py`, for debugging."""
    hvd.init(process_sets="dynamic")
    hvd.init()  # a second call does nothing
    try:
        assert (hvd.rank(), hvd.local_rank(), hvd.cross_rank()) == (0, 0, 0)
        assert (hvd.size(), hvd.local_size(), hvd.cross_size()) == (1, 1, 1)
        assert hvd.is_initialized() and hvd.is_homogeneous() and not hvd.mpi_enabled()
        x = torch.arange(6.0).reshape(3, 2).requires_grad_()
        for operation in (hvd.allreduce, hvd.allgather, hvd.alltoall, hvd.reducescatter):
            assert torch.equal(operation(x), x)
        for grouped in (hvd.grouped_allreduce, hvd.grouped_allgather, hvd.grouped_reducescatter):
            assert all(map(torch.equal, grouped([x, x + 1]), [x, x + 1]))
        for op in (hvd.Average, hvd.Sum, hvd.Adasum, hvd.Min, hvd.Max, hvd.Product):
            assert torch.equal(hvd.allreduce(x.detach(), op=op), x)
        for text in ("none", "fp16", "bf16", "bit16", "bit8"):
            result = hvd.allreduce(x.detach(), compression=hvd.Compression.from_text(text))
            assert torch.equal(result, x) and result.data_ptr() != x.data_ptr()
        scaled = hvd.allreduce(x.detach(), op=hvd.Sum, prescale_factor=2.0, postscale_factor=3.0)
        assert torch.equal(scaled, x * 6)
        assert hvd.broadcast_object({"a": 1}) == {"a": 1} and hvd.allgather_object("b") == ["b"]
        output, received_splits = hvd.alltoall(x, torch.tensor([2], dtype=torch.int32))
        assert torch.equal(output, x[:2]) and received_splits.tolist() == [2]
        hvd.reducescatter(hvd.broadcast(hvd.allgather(hvd.allreduce(x)), 0)).sum().backward()
        assert torch.equal(x.grad, torch.ones(3, 2))
        sparse = torch.eye(2).to_sparse()
        assert torch.equal(hvd.sparse_allreduce_async(sparse, "s", hvd.Sum)().to_dense(), torch.eye(2))
        assert hvd.join() == 0 and hvd.barrier() is None
        model = torch.nn.Linear(2, 2)
        hvd.broadcast_parameters(model.state_dict(), 0)
        adam = hvd.DistributedOptimizer(torch.optim.Adam(model.parameters()), model.named_parameters())
        hvd.broadcast_optimizer_state(adam, 0)
        model(x.detach()).sum().backward()
        adam.step()
        with pytest.raises(ValueError):
            hvd.add_process_set([0])  # the global set
        assert hvd.global_process_set.ranks == [0] and hvd.remove_process_set(hvd.ProcessSet([0])) is False
    finally:
        hvd.shutdown()
        os.environ.pop("HOROVOD_DYNAMIC_PROCESS_SETS")


def test_process_sets_before_init() -> None:
    everyone = hvd.global_process_set
    assert everyone.process_set_id == 0 and everyone.included() is None
    fresh = hvd.ProcessSet([2, 0, 1])
    assert fresh.ranks == [0, 1, 2] and fresh.process_set_id is None and fresh.mpi_comm is None
    assert (fresh.size(), fresh.rank()) == (None, None)
    assert hvd.ProcessSet(range(2)).ranks == [0, 1] and "[0, 1, 2]" in str(fresh)


# Records that collect values over time, and state machines; all others never change.
CHANGING = {
    "Blacklist", "Canvas", "ElasticOutcome", "HookSlot", "Job", "JobInput", "Losses", "Operation", "Outcome",
    "Recovery", "RepeatedDiscovery", "Result", "RoundsOperation", "Run", "Supervision", "Worker", "_Agent",
    "_Noted", "_Process", "_State", "_Worker",
}  # fmt: skip


def test_records_do_not_change() -> None:
    """A caller cannot change a frozen record, and records with equal fields are equal."""
    is_frozen = {}
    for path in Path(horovod.__file__).parent.rglob("*.py"):
        source = path.read_text(encoding="utf-8")
        for record in ast.walk(ast.parse(source)) if "@dataclass" in source else ():
            for decorator in record.decorator_list if isinstance(record, ast.ClassDef) else ():
                if (written := ast.unparse(decorator)).startswith("dataclass"):
                    is_frozen[path, record.name] = "frozen=True" in written
    assert {name for (_, name), frozen in is_frozen.items() if not frozen} == CHANGING
    assert len(is_frozen) > 60


@pytest.mark.usefixtures("alone")
def test_the_number_of_a_communicators_set() -> None:
    """Scripts ask `_basics` for it; any object with equality will do here for a communicator."""
    with pytest.raises(ValueError, match="no process set was made from the communicator 'comm'"):
        mpi_ops._basics._comm_process_set_id("comm")
    hvd.global_process_set.mpi_comm = "comm"
    assert mpi_ops._basics._comm_process_set_id("comm") == 0
