"""init, shutdown and ranks: sub-worlds, static process sets, errors outside of init() ... shutdown()."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

import horovod.torch as hvd
from horovod.common.exceptions import lost_ranks
from horovod.torch.mpi_ops import _basics

QUERIES = [
    hvd.rank, hvd.size, hvd.local_rank, hvd.local_size, hvd.cross_rank, hvd.cross_size,
    _basics.is_homogeneous,
]  # fmt: skip


@pytest.fixture
def outside(rank: int, size: int) -> Iterator[None]:
    """The test runs after shutdown(), and the job of all ranks exists again after it."""
    hvd.shutdown()
    yield
    hvd.shutdown()
    hvd.init()
    assert (hvd.rank(), hvd.size()) == (rank, size)


@pytest.fixture(autouse=True, scope="module")
def no_dynamic_sets(job: None) -> Iterator[None]:
    """Other files of one job may have requested them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("HOROVOD_DYNAMIC_PROCESS_SETS", raising=False)
        yield
    hvd.shutdown()
    hvd.init()


@contextmanager
def initialized(**how: Any) -> Iterator[None]:
    hvd.init(**how)
    try:
        yield
        hvd.barrier()  # no rank leaves while others still query
    finally:
        hvd.shutdown()


def test_ranks_are_the_launchers(rank: int, size: int) -> None:
    launched = os.environ.get("OMPI_COMM_WORLD_RANK", os.environ.get("PMI_RANK"))
    assert launched is not None and rank == int(launched)
    assert hvd.allgather(torch.tensor([rank])).tolist() == list(range(size))
    assert (hvd.local_rank(), hvd.local_size()) == (rank, size)
    assert (hvd.cross_rank(), hvd.cross_size()) == (0, 1)
    assert all(type(query()) is int for query in QUERIES[:-1]) and _basics.is_homogeneous() is True


def test_mpi_is_what_runs() -> None:
    assert hvd.mpi_built() and hvd.mpi_enabled() and not hvd.gloo_enabled()
    assert hvd.mpi_threads_supported() in (True, False)


def test_init_again_does_nothing(rank: int, size: int) -> None:
    for _ in range(3):
        hvd.init()
    assert hvd.is_initialized() and (hvd.rank(), hvd.size()) == (rank, size)


def test_outside_of_a_job(outside: None) -> None:
    assert not hvd.is_initialized()
    for query in (*QUERIES, hvd.mpi_threads_supported):
        with pytest.raises(ValueError):
            query()
    with pytest.raises(ValueError):
        hvd.add_process_set([0])
    operations = [
        lambda: hvd.allreduce(torch.ones(2)), lambda: hvd.allgather(torch.ones(2)), lambda: hvd.join(),
        lambda: hvd.broadcast(torch.ones(2), 0), lambda: hvd.alltoall(torch.ones(4)), lambda: hvd.barrier(),
        lambda: hvd.reducescatter(torch.ones(2)), lambda: hvd.grouped_allreduce([torch.ones(2)]),
        lambda: hvd.grouped_allgather([torch.ones(2)]), lambda: hvd.grouped_reducescatter([torch.ones(2)]),
        lambda: hvd.synchronize(hvd.allreduce_async_(torch.ones(2))), lambda: hvd.broadcast_object(1),
    ]  # fmt: skip
    for operation in operations:
        with pytest.raises(hvd.HorovodInternalError):
            operation()
    hvd.shutdown()  # a second call is harmless


def test_pending_operations_end_with_shutdown(rank: int) -> None:
    pending = hvd.allreduce_async(torch.ones(3), name=f"only {rank}")
    hvd.barrier()  # a rank that leaves first would stop the others' queries
    hvd.shutdown()
    try:
        assert not hvd.is_initialized()
        with pytest.raises(hvd.HorovodInternalError):
            hvd.synchronize(pending)
        with pytest.raises(ValueError, match="not been initialized"):
            hvd.rank()
    finally:
        hvd.init()
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum) == hvd.size()


@pytest.mark.parametrize("comm", ["world", 3, 1.5, {0: 1}, object()], ids=str)
def test_comm_of_a_wrong_type(comm: Any, outside: None) -> None:
    with pytest.raises(ValueError):
        hvd.init(comm=comm)
    assert not hvd.is_initialized()
    hvd.init()
    assert hvd.allreduce(torch.ones(1)) == 1


def test_comm_of_all_ranks(outside: None, rank: int, size: int) -> None:
    for comm in (None, list(range(size)), [], tuple(range(size))):
        with initialized(comm=comm):
            assert (hvd.rank(), hvd.size()) == (rank, size)
            assert hvd.allreduce(torch.ones(1), op=hvd.Sum) == size


def test_comm_of_some_ranks(outside: None, rank: int, size: int) -> None:
    """The two halves are separate jobs at the same time."""
    half = size // 2
    low = rank < half
    with initialized(comm=list(range(half)) if low else list(range(half, size))):
        assert (hvd.rank(), hvd.size()) == (rank if low else rank - half, half)
        assert (hvd.local_rank(), hvd.local_size()) == (hvd.rank(), half)
        assert hvd.global_process_set.ranks == list(range(half))
        for i in range(20 if low else 10):
            assert hvd.allreduce(torch.ones(3), op=hvd.Sum, name=f"n{i}")[0] == half
        gathered = hvd.allgather(torch.tensor([rank]))
        assert gathered.tolist() == (list(range(half)) if low else list(range(half, size)))


def test_mpi4py_communicators(outside: None, rank: int, size: int) -> None:
    MPI = pytest.importorskip("mpi4py.MPI")
    with initialized(comm=MPI.COMM_WORLD):
        assert (hvd.rank(), hvd.size()) == (rank, size)
        assert hvd.global_process_set.mpi_comm is not None
        assert MPI.Comm.Compare(hvd.global_process_set.mpi_comm, MPI.COMM_WORLD) in (MPI.IDENT, MPI.CONGRUENT)
    with initialized(comm=MPI.COMM_WORLD.Dup()):
        assert (hvd.rank(), hvd.size()) == (rank, size)
    reverse = MPI.COMM_WORLD.Split(0, size - rank)
    with initialized(comm=reverse):
        assert (hvd.rank(), hvd.size()) == (size - 1 - rank, size)
        assert hvd.allgather(torch.tensor([rank])).tolist() == list(reversed(range(size)))
    evens_and_odds = MPI.COMM_WORLD.Split(rank % 2, rank)
    with initialized(comm=evens_and_odds):
        assert (hvd.rank(), hvd.size()) == (rank // 2, len(range(rank % 2, size, 2)))
        assert hvd.allgather(torch.tensor([rank])).tolist() == list(range(rank % 2, size, 2))


def test_mpi4py_beside_operations_in_flight(rank: int, size: int) -> None:
    """With thread support, scripts may call MPI while the engine works."""
    MPI = pytest.importorskip("mpi4py.MPI")
    if not hvd.mpi_threads_supported():
        pytest.skip("MPI without support of threads")
    for i in range(20):
        handle = hvd.allreduce_async(torch.full((1000,), float(rank)), op=hvd.Sum, name=f"beside.{i}")
        assert MPI.COMM_WORLD.allreduce(rank) == sum(range(size))
        assert torch.equal(hvd.synchronize(handle), torch.full((1000,), float(sum(range(size)))))


def test_sets_from_mpi4py_communicators(outside: None, rank: int, size: int) -> None:
    MPI = pytest.importorskip("mpi4py.MPI")
    half = MPI.COMM_WORLD.Split(rank % 2, rank)
    sets = [hvd.ProcessSet(half)]
    with initialized(comm=MPI.COMM_WORLD, process_sets=sets):
        assert sets[0].ranks == list(range(rank % 2, size, 2)) and sets[0].included()
        total = hvd.allreduce(torch.tensor(float(rank)), op=hvd.Sum, process_set=sets[0])
        assert total == sum(range(rank % 2, size, 2))


def test_sets_from_communicators_need_a_communicator(outside: None) -> None:
    MPI = pytest.importorskip("mpi4py.MPI")
    with pytest.raises(NotImplementedError):
        hvd.init(process_sets=[hvd.ProcessSet(MPI.COMM_WORLD.Split(0, 0))])
    assert not hvd.is_initialized()


def test_sets_from_communicators_cannot_come_later(outside: None) -> None:
    MPI = pytest.importorskip("mpi4py.MPI")
    with initialized(process_sets="dynamic"), pytest.raises(NotImplementedError):
        hvd.add_process_set(hvd.ProcessSet(MPI.COMM_WORLD.Dup()))


def test_a_start_that_fails_on_one_rank_fails_on_all(outside: None, rank: int) -> None:
    """Only rank 0 writes the timeline, and here it cannot."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOROVOD_TIMELINE", "/no/such/folder/timeline.json")
        with pytest.raises(ValueError) as caught:
            hvd.init()
        assert lost_ranks(caught.value) == (() if rank == 0 else (0,))
        assert rank != 0 or caught.value.code == "timeline_not_writable"
    assert not hvd.is_initialized()
    with initialized():
        assert hvd.allreduce(torch.ones(2), op=hvd.Sum).tolist() == [hvd.size(), hvd.size()]


def test_static_process_sets(outside: None, rank: int, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOROVOD_DYNAMIC_PROCESS_SETS", "0")
    sets = [hvd.ProcessSet(range(0, size, 2)), hvd.ProcessSet(range(1, size, 2))]
    with initialized(process_sets=sets):
        assert [s.process_set_id for s in sets] == [1, 2]
        registered = _basics._get_process_set_ids_and_ranks()
        assert registered == {0: list(range(size)), 1: sets[0].ranks, 2: sets[1].ranks}
        mine = sets[rank % 2]
        assert mine.included() and mine.rank() == rank // 2 and mine.size() == len(mine.ranks)
        assert hvd.allreduce(torch.tensor(float(rank)), op=hvd.Sum, process_set=mine) == sum(mine.ranks)
        with pytest.raises(ValueError):
            hvd.allreduce(torch.ones(1), process_set=sets[1 - rank % 2])
        with pytest.raises(ValueError, match="HOROVOD_DYNAMIC_PROCESS_SETS"):
            hvd.remove_process_set(mine)
    assert [s.process_set_id for s in sets] == [None, None], "shutdown ends all sets"
    assert hvd.global_process_set.process_set_id == 0
    with initialized(process_sets=list(reversed(sets))):
        assert [s.process_set_id for s in sets] == [2, 1]
    with initialized(process_sets=sets[:1]), pytest.raises(ValueError, match="HOROVOD_DYNAMIC_PROCESS_SETS"):
        hvd.add_process_set(sets[1])


def test_dynamic_sets_by_argument(outside: None, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOROVOD_DYNAMIC_PROCESS_SETS", "0")
    with initialized(process_sets="dynamic"):
        assert os.environ["HOROVOD_DYNAMIC_PROCESS_SETS"] == "1"
        added = hvd.add_process_set([0])
        assert added.process_set_id == 1 and hvd.remove_process_set(added) is True


def test_static_sets_of_a_dynamic_job(outside: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOROVOD_DYNAMIC_PROCESS_SETS", "1")
    static = hvd.ProcessSet([0])
    with initialized(process_sets=[static]):
        added = hvd.add_process_set([1])
        assert (static.process_set_id, added.process_set_id) == (1, 2)
        assert hvd.remove_process_set(static) is True and hvd.remove_process_set(added) is True


@pytest.mark.parametrize("what", ["duplicates", "the global set", "a rank too many", "differing", "a word"])
def test_wrong_static_sets(what: str, outside: None, rank: int, size: int) -> None:
    """A ValueError on every rank; init() works afterwards."""
    wrong = {
        "duplicates": [hvd.ProcessSet([0]), hvd.ProcessSet([0])],
        "the global set": [hvd.ProcessSet(range(size))],
        "a rank too many": [hvd.ProcessSet([0, size])],
        "differing": [hvd.ProcessSet([rank % 2])],
        "a word": "static",
    }[what]
    with pytest.raises(ValueError):
        hvd.init(process_sets=wrong)
    assert not hvd.is_initialized()
    right = hvd.ProcessSet([0])
    with initialized(process_sets=[right]):
        assert right.process_set_id == 1 and hvd.allreduce(torch.ones(1), op=hvd.Sum) == size


def test_a_malformed_setting_and_then_a_good_one(outside: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOROVOD_FUSION_THRESHOLD", "many")
    with pytest.raises(ValueError, match="HOROVOD_FUSION_THRESHOLD"):
        hvd.init()
    monkeypatch.setenv("HOROVOD_FUSION_THRESHOLD", "0")
    with initialized():
        assert hvd.allreduce(torch.ones(1)) == 1


@pytest.mark.parametrize(
    "variables",
    [
        {"HOROVOD_FUSION_THRESHOLD": "0"}, {"HOROVOD_CACHE_CAPACITY": "0"}, {"HOROVOD_CYCLE_TIME": "0.1"},
        {"HOROVOD_DISABLE_GROUP_FUSION": "1"}, {"HOROVOD_STALL_CHECK_DISABLE": "1"},
        {"HOROVOD_CACHE_CAPACITY": "3", "HOROVOD_FUSION_THRESHOLD": "64"},
    ],
    ids=str,
)  # fmt: skip
def test_results_do_not_depend_on_settings(
    variables: dict[str, str], outside: None, rank: int, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with initialized():
        for _ in range(3):
            handles = [hvd.allreduce_async(torch.full((9,), float(rank + i)), name=f"{i}") for i in range(9)]
            groups = hvd.grouped_allreduce([torch.full((i + 1,), float(rank)) for i in range(4)], name="g")
            assert all(torch.equal(g, torch.full_like(g, (size - 1) / 2)) for g in groups)
            for i, handle in enumerate(handles):
                assert torch.equal(hvd.synchronize(handle), torch.full((9,), (size - 1) / 2 + i))
            assert hvd.allgather(torch.tensor([rank]), name="a").tolist() == list(range(size))
            assert hvd.alltoall(torch.full((size,), rank), name="b").tolist() == list(range(size))
