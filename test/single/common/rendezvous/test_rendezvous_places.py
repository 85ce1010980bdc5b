"""Meeting places of ranks: a folder, torch's store, a Slurm step, a store of the script, MPI."""

# private: _kept, _seconds: a shorter wait, and stores that a process keeps until it ends

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch.distributed as dist
from meeting_ranks import MemoryStore, fake_native, joining, meet, settings_of
from ranks import in_threads
from refusals import refused

import horovod.torch as hvd
from horovod.common import errors, jobs, launched, membership
from horovod.common.launched import Launch, detect
from horovod.common.rendezvous import places
from horovod.common.rendezvous.places import FolderStore, rendezvous_of
from horovod.common.rendezvous.store import StoreRendezvous, assignment_of
from horovod.common.sentences import Sentence
from horovod.torch.elastic import process_group as torch_store

BY_HAND = {"WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "29400"}
STEP = {
    "SLURM_STEP_NUM_TASKS": "2", "SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0",
    "SLURM_STEP_NODELIST": "n[07-09],x", "SLURM_JOB_NODELIST": "n[01-09],x",
}  # fmt: skip


@pytest.fixture
def core(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_native(monkeypatch)


# ---- a folder


def in_folder(folder: Path, size: int, seconds: float = 10.0) -> list[Any]:
    def launch(rank: int) -> dict[str, str]:
        named = {"HOROVOD_RANK": str(rank), "HOROVOD_SIZE": str(size)}
        return {**named, "HOROVOD_RENDEZVOUS_FOLDER": str(folder)}

    found = [rendezvous_of(detect(launch(rank)), launch(rank), []) for rank in range(size)]
    for each in found:
        each._seconds = seconds  # type: ignore[attr-defined]
    return found


def test_a_shared_folder(tmp_path: Path, core: None) -> None:
    folder = tmp_path / "meet"
    for _ in range(2):
        worlds = meet(in_folder(folder, 3))
        assert [world.rank for world in worlds] == [0, 1, 2]
        assert list(folder.iterdir()) == []
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_what_a_dead_job_left_in_a_folder(tmp_path: Path, core: None) -> None:
    dead = in_folder(tmp_path, 2, seconds=0.2)
    with refused(errors.did_not_come, ranks=(0,), place=f"the folder {tmp_path}", seconds=0.2):
        dead[1].allgather("card", b"")
    (tmp_path / "of another").touch()
    assert len(list(tmp_path.iterdir())) == 2
    assert {len(world.secret) for world in meet(in_folder(tmp_path, 2))} == {32}
    assert [path.name for path in tmp_path.iterdir()] == ["of another"]


def test_a_folder_as_a_store(tmp_path: Path) -> None:
    store = FolderStore(str(tmp_path))
    store.set("a/b", b"first")
    store.set("a/b", b"second")
    assert store.get("a/b") == b"second"
    (path,) = tmp_path.iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert store.check(["a/b"]) and not store.check(["a/b", "a/c"])


def test_folders_that_others_could_write_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    why = str(errors.open_folder(path=str(tmp_path)))
    for mode in (0o770, 0o707, 0o1777):
        tmp_path.chmod(mode)
        with refused(errors.in_no_folder, setting="HOROVOD_RENDEZVOUS_FOLDER", why=why):
            in_folder(tmp_path, 2)
    tmp_path.chmod(0o755)
    in_folder(tmp_path, 2)
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    if tmp_path.stat().st_uid != 0:
        with refused(errors.in_no_folder, why=why):
            in_folder(tmp_path, 2)


def test_folders_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder, row in (
        (Path("meet"), errors.relative_folder),
        (tmp_path / "file", errors.no_folder),
        (tmp_path / "no" / "such", errors.unusable_folder),
        (tmp_path / "file" / "in", errors.unusable_folder),
    ):
        with refused(errors.in_no_folder, setting="HOROVOD_RENDEZVOUS_FOLDER", path=str(folder)):
            in_folder(folder, 2)
        with refused(row, path=str(folder)):
            FolderStore(str(folder))


# ---- torch's store


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, bool, float]]:
    """The calls of torch."""
    asked: list[tuple[str, int, bool, float]] = []
    store = MemoryStore()

    def make(*wish: Any) -> MemoryStore:
        asked.append(wish)
        return store

    monkeypatch.setattr(places, "_make", make)
    return asked


def found(environment: dict[str, str], size: int, rank: str = "RANK") -> list[Any]:
    environments = [{**environment, rank: str(number)} for number in range(size)]
    return [rendezvous_of(detect(each), each, []) for each in environments]


def test_four_variables_by_hand(
    made: list[tuple[str, int, bool, float]], core: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOROVOD_START_TIMEOUT", "9")
    ranks = found(BY_HAND, 2)
    assert made == [("localhost", 29400, True, 9.0), ("localhost", 29400, False, 9.0)]
    assert [world.size for world in meet(ranks)] == [2, 2]
    assert {rank.name for rank in ranks} == {"torch's store at localhost:29400"}


def test_torchruns_agent_has_the_store(made: list[tuple[str, int, bool, float]], core: None) -> None:
    worker = {**BY_HAND, "TORCHELASTIC_RUN_ID": "a", "TORCHELASTIC_RESTART_COUNT": "0", "LOCAL_RANK": "0"}
    ranks = found({**worker, "TORCHELASTIC_USE_AGENT_STORE": "True"}, 2)
    ranks[1:] = found(
        {**worker, "TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": "1"}, 2
    )[1:]
    assert {is_host for _, _, is_host, _ in made} == {False}
    assert [world.size for world in meet(ranks)] == [2, 2], "each agent counts restarts for itself"
    made.clear()
    found({**worker, "TORCHELASTIC_USE_AGENT_STORE": "False"}, 2)
    assert [is_host for _, _, is_host, _ in made] == [True, False]


def test_jobs_of_other_runs_do_not_meet(made: list[tuple[str, int, bool, float]]) -> None:
    prefixes = {rank.prefix for run in "ab" for rank in found({**BY_HAND, "TORCHELASTIC_RUN_ID": run}, 2)}
    assert len(prefixes) == 2


def test_a_host_of_several_names(made: list[tuple[str, int, bool, float]]) -> None:
    prefixes = {
        rank.prefix for name in ("localhost", "node1") for rank in found({**BY_HAND, "MASTER_ADDR": name}, 2)
    }
    assert len(prefixes) == 1


def test_without_the_face_that_has_stores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "_make", None)
    with refused(errors.without_torch, evidence="RANK=0, WORLD_SIZE=2"):
        found(BY_HAND, 2)


def test_a_store_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> MemoryStore:
        raise RuntimeError("The client socket has timed out")

    monkeypatch.setattr(places, "_make", fail)
    for rank, done in enumerate(("cannot open", "does not reach")):
        own = {**BY_HAND, "RANK": str(rank)}
        facts = {"evidence": f"RANK={rank}, WORLD_SIZE=2", "size": 2, "host": "localhost", "port": 29400}
        why = "The client socket has timed out"
        with refused(errors.no_use_of_store, ranks=(rank,), **facts, done=done, why=why):
            rendezvous_of(detect(own), own, [])


@pytest.fixture
def port() -> Iterator[int]:
    """A port that is probably free."""
    holder = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    number = holder.port
    del holder
    yield number
    torch_store._kept.clear()


def torchs_own(port: int, rank: int) -> Any:
    """A substitute for the result of init_process_group()."""
    return next(dist.rendezvous(f"tcp://localhost:{port}", rank, 2, timeout=timedelta(seconds=10)))[0]


def test_torchs_store_itself(port: int, core: None) -> None:
    """Shared with init_process_group(), as torch allows the same port in one process."""
    stores = [torch_store.make_store("localhost", port, rank == 0, 10.0) for rank in range(2)]
    assignments = [assignment_of(rank, 2, []) for rank in range(2)]
    worlds = meet(
        [StoreRendezvous(s, p, "torch's", seconds=10.0) for s, p in zip(stores, assignments, strict=True)]
    )
    assert worlds[0].secret == worlds[1].secret
    assert stores[0].num_keys() <= 2, "of torch's own"  # type: ignore[attr-defined]
    theirs = in_threads(2, lambda rank: torchs_own(port, rank))
    theirs[0].set("key", "value")
    assert stores[1].get("key") == b"value"
    assert torch_store.make_store("localhost", port, True, 10.0) is stores[0]


def test_torchs_store_after_init_process_group(port: int, core: None) -> None:
    theirs = in_threads(2, lambda rank: torchs_own(port, rank))
    ours = [torch_store.make_store("localhost", port, rank == 0, 10.0) for rank in range(2)]
    theirs[1].set("key", "value")
    assert ours[0].get("key") == ours[1].get("key") == b"value"


def test_who_is_missing_in_torchs_store(port: int, core: None) -> None:
    store = torch_store.make_store("localhost", port, True, 10.0)
    with refused(errors.did_not_come, ranks=(1, 2), size=3, seconds=0.3):
        joining(store, 0, 3, 0.3).allgather("card", b"")
    store.set("key", b"\0\xff")
    assert store.get("key") == b"\0\xff", "it serves on"


# ---- Slurm


def test_a_step_of_srun(made: list[tuple[str, int, bool, float]], core: None) -> None:
    ranks = found(STEP, 2, "SLURM_PROCID")
    port = places.port_of(["7", "0"])
    assert [wish[:3] for wish in made] == [("n07", port, True), ("n07", port, False)]
    assert 10_000 <= port < 30_000 and port != places.port_of(["7", "1"])
    assert [world.size for world in meet(ranks)] == [2, 2]


def test_a_place_that_the_script_has_chosen(made: list[tuple[str, int, bool, float]]) -> None:
    told = {**STEP, "MASTER_ADDR": "login", "MASTER_PORT": "80", "SLURM_NODEID": "1"}
    found(told, 2, "SLURM_PROCID")
    assert {wish[:2] for wish in made} == {("login", 80)}


NODES = "SLURM_STEP_NODELIST"


@pytest.mark.parametrize(
    ("changes", "row", "facts"),
    [
        ({NODES: "", "SLURM_JOB_NODELIST": ""}, errors.hosts_not_said, {"launcher": "srun"}),
        ({NODES: "n[1-"}, errors.hosts_not_read, {"why": str(errors.no_host_list(value="n[1-"))}),
        ({NODES: ","}, errors.hosts_not_read, {"setting": NODES, "value": ","}),
        ({"SLURM_NODEID": "1"}, errors.first_task_elsewhere, {"setting": "SLURM_PROCID", "node": "1"}),
        *(
            ({"MASTER_PORT": x}, errors.wrong_master_port, {"value": x})
            for x in ("http", "65536", "9" * 5000)
        ),
    ],
)
def test_steps_that_cannot_meet(
    changes: dict[str, str], row: Sentence[Any], facts: dict[str, str], made: list[Any]
) -> None:
    with refused(row, **facts):
        found({**STEP, **changes}, 1, "SLURM_PROCID")
    assert made == []


def test_the_first_host_of_the_job_where_nobody_says_the_steps() -> None:
    told = {"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2", "SLURM_JOB_NODELIST": "a-[3-4],b"}
    assert places.first_host(detect(told), told) == "a-3"


# ---- a store of the script


def test_init_in_a_store_of_the_script(core: None, monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()

    def open_world(rank: int) -> Any:
        opening = places.opening(None, store, rank, 4)
        assert opening is not None
        return opening(settings_of(), [])

    assert [world.size for world in in_threads(4, open_world)] == [4] * 4
    assert places.opening(None, None, None, None) is None


@pytest.mark.parametrize(
    ("store", "rank", "size", "row", "facts"),
    [
        (MemoryStore(), None, None, errors.store_lacks, {"missing": "rank and size"}),
        (None, 0, None, errors.store_lacks, {"missing": "store and size"}),
        (None, 0, 1, errors.store_lacks, {"missing": "store"}),
        (MemoryStore(), 0, None, errors.store_lacks, {"missing": "size"}),
        ({}, 0, 1, errors.not_a_store, {"got": "{}"}),
        ("tcp://a:1", 0, 1, errors.not_a_store, {"got": "'tcp://a:1'"}),
        (MemoryStore(), 2, 2, errors.no_such_rank, {"rank": 2, "size": 2}),
        (MemoryStore(), -1, 2, errors.no_such_rank, {"rank": -1, "size": 2}),
        (MemoryStore(), 0, 0, errors.no_such_rank, {"rank": 0, "size": 0}),
        (MemoryStore(), "0", 2, errors.no_whole_numbers, {"got": "['0', 2]"}),
    ],
)
def test_arguments_that_are_wrong(
    store: Any, rank: Any, size: Any, row: Sentence[Any], facts: dict[str, Any]
) -> None:
    with jobs.Job().entered(), refused(row, **facts):
        hvd.init(store=store, rank=rank, size=size)
    assert not hvd.is_initialized()


def test_a_store_and_a_communicator(monkeypatch: pytest.MonkeyPatch) -> None:
    class Comm:
        pass

    monkeypatch.setitem(sys.modules, "mpi4py.MPI", SimpleNamespace(Comm=Comm))  # type: ignore[arg-type]
    with refused(errors.store_and_communicator):
        places.opening(Comm(), MemoryStore(), 0, 2)


def test_a_communicator_where_no_mpi_has_started_the_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    """mpi4py finds this process alone, so its world could be mistaken for all ranks."""

    class Comm:
        pass

    monkeypatch.setitem(sys.modules, "mpi4py.MPI", SimpleNamespace(Comm=Comm))  # type: ignore[arg-type]
    for name, text in {**BY_HAND, "RANK": "1"}.items():
        monkeypatch.setenv(name, text)
    with refused(errors.not_of_mpi, evidence="RANK=1, WORLD_SIZE=2"):
        membership.Membership.begin(membership.as_launched, Comm(), [])


# ---- MPI


def test_ranks_of_mpirun_that_shall_talk_over_tcp(core: None, monkeypatch: pytest.MonkeyPatch) -> None:
    store, asked = MemoryStore(), []

    class MpiMeeting:
        def __init__(self, settings: Any, libmpi: str, size: int, evidence: str, ranks: list[int]) -> None:
            asked.append((size, evidence, ranks))
            self.rank, self.size = settings.rank, size
            self.inner = StoreRendezvous(store, assignment_of(self.rank, size, []), "", seconds=10.0)

        def gather(self, value: bytes) -> list[bytes]:
            return self.inner.allgather("x", value)

    monkeypatch.setattr(places, "native", SimpleNamespace(MpiMeeting=MpiMeeting))
    launch = Launch(2, "OMPI_COMM_WORLD_SIZE=2", launched.MPI)

    def rank(number: int) -> Any:
        settings: Any = SimpleNamespace(rank=number)
        rendezvous = places.MpiRendezvous(settings, launch, [])
        values = rendezvous.allgather("topic", b"%d" % number)
        return rendezvous.name, rendezvous.rank, rendezvous.size, values

    assert in_threads(2, rank) == [("MPI", number, 2, [b"0", b"1"]) for number in range(2)]
    assert asked == [(2, "OMPI_COMM_WORLD_SIZE=2", [])] * 2


@pytest.mark.parametrize(
    ("text", "transport", "way"),
    [
        ("", "auto", "core"),
        ("", "tcp", "core"),
        ("OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=1", "auto", "core"),
        ("OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=1", "tcp", "MPI"),
        ("OMPI_COMM_WORLD_SIZE=1 OMPI_COMM_WORLD_RANK=0", "tcp", "core"),
        ("RANK=1 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=80", "auto", "store"),
        ("RANK=1 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=80", "tcp", "store"),
        ("RANK=0 WORLD_SIZE=1", "tcp", "core"),
    ],
)
def test_who_opens_the_world(text: str, transport: str, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", dict(word.split("=") for word in text.split()))
    core = SimpleNamespace(open_world=lambda *told: "core")
    monkeypatch.setattr(membership, "native", core)
    monkeypatch.setattr(membership, "MpiRendezvous", lambda settings, launch, ranks: "MPI")
    monkeypatch.setattr(membership, "open_over_tcp", lambda settings, rendezvous: rendezvous)
    monkeypatch.setattr(membership, "rendezvous_of", lambda launch, environment, ranks: launch.meets)
    assert membership.as_launched(settings_of(transport), []) == way
    several = "SIZE=2" in text
    assert (launched.MARK in os.environ) == several
