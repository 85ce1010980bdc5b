"""horovod.torch without a launcher: names, errors before init, names of operations, a world of one."""

# private: _leave_at_exit: simulates the end of a process

import inspect
import random
from types import SimpleNamespace

import pytest
import torch
from mirrored_job import MirroredEngine, mirrored_job
from refusals import refused

import horovod.torch as hvd
from horovod import _native as native
from horovod.common import errors as of_common
from horovod.common import jobs, util
from horovod.common.basics import HorovodBasics
from horovod.common.exceptions import WrongSetting
from horovod.torch import (
    autograd,
    errors,
    functions,
    job,
    movements,
    mpi_ops,
    optimizer,
    reductions,
    sync_batch_norm,
)

MODULES = [
    hvd, mpi_ops, functions, optimizer, autograd, job, movements, reductions, util, sync_batch_norm,
]  # fmt: skip


@pytest.mark.parametrize("module", MODULES)
def test_public_names_are_sorted_and_exist(module: object) -> None:
    names = module.__all__
    assert names == sorted(names) or module in (hvd, mpi_ops)  # which join the lists of others
    assert len(set(names)) == len(names) and all(hasattr(module, name) for name in names)


def test_everything_public_in_mpi_ops_is_exported_and_documented() -> None:
    hidden = {name for name in mpi_ops.__all__ if name.startswith("Horovod")}
    assert len(hidden) == 8
    assert set(mpi_ops.__all__) - hidden - {"handle_average_backwards_compatibility"} <= set(hvd.__all__)
    for name in hvd.__all__:
        member = getattr(hvd, name)
        assert isinstance(member, int) or inspect.getdoc(member), f"hvd.{name} has no docstring"


def test_init_works_again_after_shutdown_and_reads_settings_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(3):
        hvd.init(comm=[0])
        assert hvd.allreduce(torch.ones(2)).sum() == 2
        hvd.shutdown()
        assert not hvd.is_initialized()
    monkeypatch.setenv("HOROVOD_CYCLE_TIME", "soon")
    with refused(WrongSetting, "wrong_setting", setting="HOROVOD_CYCLE_TIME", value="soon"):
        hvd.init()
    monkeypatch.delenv("HOROVOD_CYCLE_TIME")
    hvd.init()
    hvd.shutdown()


def test_process_sets(alone: None) -> None:
    everyone = hvd.global_process_set
    assert (everyone.process_set_id, everyone.size(), everyone.rank(), everyone.included()) == (0, 1, 0, True)
    assert hvd.allreduce(torch.ones(1), process_set=everyone) == 1
    unregistered = hvd.ProcessSet([1, 0])
    assert unregistered.ranks == [0, 1] and unregistered.size() is None and unregistered.rank() is None
    assert "ranks=[0, 1]" in str(unregistered)
    for operation in (hvd.allreduce, hvd.allgather, hvd.allreduce_async_):
        with refused(of_common.not_registered, process_set=str(unregistered), ranks=(0,)):
            operation(torch.ones(1), process_set=unregistered)


def test_process_sets_are_static_unless_asked_for(alone: None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert hvd.remove_process_set(hvd.global_process_set) is False
    assert hvd.remove_process_set(hvd.ProcessSet([0])) is False
    for _ in range(2):
        hvd.shutdown()  # a second one is harmless
    for query in (lambda: hvd.add_process_set([0]), lambda: hvd.metrics(), hvd.stop_timeline):
        with refused(of_common.not_initialized):
            query()
    monkeypatch.setenv("HOROVOD_DYNAMIC_PROCESS_SETS", "0")  # makes monkeypatch undo init()'s change
    hvd.init(process_sets="dynamic")
    with refused(of_common.exists_already, members=[0]):
        hvd.add_process_set([0])
    with refused(of_common.added_by_communicator):
        hvd.add_process_set(hvd.ProcessSet(object()))
    assert hvd.join() == 0 and hvd.allreduce(torch.ones(1)) == 1


def test_names_on_the_wire(engine: MirroredEngine) -> None:
    tensor = torch.ones(2)
    hvd.allreduce(tensor)
    hvd.allgather(tensor)
    hvd.broadcast(tensor, 0)
    hvd.allreduce(tensor, name="mine")
    hvd.grouped_allreduce([tensor, tensor])
    hvd.grouped_allreduce([tensor, torch.arange(2)], name="group")
    hvd.barrier()
    hvd.sparse_allreduce_async(torch.eye(2).to_sparse(), "sparse", hvd.Sum)()
    hvd.broadcast_object(1, name="thing")
    assert engine.names() == [
        "allreduce.noname.0", "allgather.noname.1", "broadcast.noname.2", "allreduce.mine",
        "allreduce.noname.3", "allreduce.group", "barrier.noname",
        "allgather.sparse.indices", "allgather.sparse.values", "broadcast.thing.sz", "broadcast.thing.t",
    ]  # fmt: skip


def test_a_failing_call_does_not_use_up_a_number(engine: MirroredEngine) -> None:
    with refused(errors.wrong_dtype, tensor="allreduce.noname", got="torch.Float8_e5m2Tensor"):
        hvd.allreduce(torch.ones(2).to(torch.float8_e5m2))
    hvd.allreduce(torch.ones(2))
    assert engine.names() == ["allreduce.noname.0"]


@pytest.mark.parametrize("size", [3, 6])
def test_adasum_needs_a_power_of_two(size: int) -> None:
    with mirrored_job(size) as engine:
        for operation in (hvd.allreduce, hvd.allreduce_, hvd.allreduce_async):
            with refused(errors.adasum_size, size=size):
                operation(torch.ones(2), op=hvd.Adasum)
        assert not engine.requests


def test_handles_are_ints_that_are_never_reused(engine: MirroredEngine) -> None:
    first = hvd.allreduce_async(torch.ones(2))
    assert type(first) is int and hvd.poll(first) is False
    assert torch.equal(hvd.synchronize(first), torch.ones(2))
    assert hvd.synchronize(first) is None and hvd.synchronize(987654321) is None
    with refused(errors.not_in_flight, handle=first):
        hvd.poll(first)
    assert hvd.allreduce_async(torch.ones(2)) > first


def test_a_name_in_flight(engine: MirroredEngine) -> None:
    engine.hold()
    handle = hvd.allreduce_async(torch.ones(2), name="twice")
    with pytest.raises(ValueError, match="in flight"):
        hvd.allreduce_async(torch.ones(2), name="twice")
    engine.let_go()
    hvd.synchronize(handle)
    hvd.allreduce(torch.ones(2), name="twice")


def test_tensors_live_until_they_are_synchronized(alone: None) -> None:
    handles_in_flight = [hvd.allreduce_async(torch.full((1000,), float(i))) for i in range(200)]
    random.Random(0).shuffle(handles_in_flight)
    results = [hvd.synchronize(handle) for handle in handles_in_flight]
    assert sorted(int(result[0]) for result in results) == list(range(200))
    assert all(torch.equal(result, result[:1].expand(1000)) for result in results)


def test_empty_groups(engine: MirroredEngine) -> None:
    assert hvd.grouped_allreduce([]) == [] and hvd.grouped_allreduce_([]) == ()
    assert not engine.requests


def test_a_launcher_that_ends_by_an_exception_is_not_finalised(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    basics = HorovodBasics()
    monkeypatch.setattr(native, "close_mpi_at_exit", lambda: calls.append("close"))
    engine = SimpleNamespace(has_failed=False)
    for leftover, expected in [("last_value", []), ("last_exc", []), (None, ["shutdown", "close"])]:
        job = jobs.Job()
        job.member = SimpleNamespace(engine=engine, leave=lambda: calls.append("shutdown"))
        with monkeypatch.context() as context, job.entered():
            context.delattr("sys.last_exc", raising=False)
            context.delattr("sys.last_value", raising=False)
            if leftover:
                context.setattr(f"sys.{leftover}", ValueError(), raising=False)
            basics._leave_at_exit()
        assert calls == expected
