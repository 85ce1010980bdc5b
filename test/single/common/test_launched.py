"""How launchers show in the environment: a world of one is made only if nothing indicates more ranks."""

import os
import re
from pathlib import Path
from typing import Any

import pytest
from refusals import refused

from horovod.common import errors
from horovod.common.basics import basics
from horovod.common.exceptions import CannotStart
from horovod.common.launched import (
    AGENT,
    ALONE,
    FIRST_HOST,
    FOLDER,
    LAUNCHERS,
    MARK,
    MPI,
    STORE,
    detect,
    leave_mark,
    of_several,
)
from horovod.common.sentences import Sentence
from horovod.runner.agents.places import places_of, variables_of
from horovod.runner.starting import without_agents

PAGE = Path(__file__).resolve().parents[3] / "docs" / "troubleshooting.md"
PMIX = "PMIX_RANK=1 PMIX_NAMESPACE=prterun-a-7@1 PMIX_SERVER_URI41=prterun-a-7@0.0;tcp4://a:1"


def variables(text: str) -> dict[str, str]:
    return dict(word.split("=", 1) for word in text.split())


@pytest.fixture
def started_by_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove launchers' variables: the tests may run in a Slurm job."""
    for launcher in LAUNCHERS:
        for name in (launcher.rank, launcher.size, *launcher.job, "MASTER_ADDR", "HOROVOD_RENDEZVOUS_FOLDER"):
            monkeypatch.delenv(name or "-", raising=False)


@pytest.mark.parametrize(
    "text",
    [
        "RANK=0 WORLD_SIZE=2", "RANK=1 WORLD_SIZE=2", "WORLD_SIZE=2", "RANK=3", "RANK=1 WORLD_SIZE=1",
        "SLURM_PROCID=1 SLURM_NTASKS=2", "SLURM_STEP_NUM_TASKS=2", "SLURM_PROCID=2 SLURM_STEP_NUM_TASKS=2",
        "RANK=captain WORLD_SIZE=2", "RANK=2 WORLD_SIZE=2",
        "PMI_RANK=0", "PMI_RANK=1", "PMIX_RANK=0", "PMIX_RANK=3 PMIX_NAMESPACE=x",
        "OMPI_COMM_WORLD_RANK=0",
        "MV2_COMM_WORLD_RANK=0 MV2_COMM_WORLD_SIZE=2", "MV2_COMM_WORLD_RANK=0",
        "HOROVOD_RANK=0 HOROVOD_SIZE=2", "JSM_NAMESPACE_RANK=0 JSM_NAMESPACE_SIZE=2",
        "FLUX_TASK_RANK=0 FLUX_JOB_SIZE=2", "PALS_RANKID=0", "ALPS_APP_PE=1",
        "OMPI_COMM_WORLD_SIZE=abc", "OMPI_COMM_WORLD_SIZE=-1", "OMPI_COMM_WORLD_SIZE=0", "WORLD_SIZE=2x",
        "OMPI_COMM_WORLD_SIZE=9999999999",
    ],
)  # fmt: skip
def test_no_silent_world_of_one(text: str, started_by_nobody: None, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in variables(text).items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError) as caught:
        basics.init()
    said = str(caught.value)
    unset = [name for name in variables(text) if name not in ("SLURM_NTASKS", "PMIX_NAMESPACE")]
    for name in unset:
        assert f"{name}={os.environ[name]}" in said and f"-u {name} " in said
    assert "`horovodrun " in said
    alone = {name: value for name, value in variables(text).items() if name not in unset}
    assert detect(alone) == ALONE, "what the message says to unset is enough"


@pytest.mark.parametrize(
    "text",
    [
        "", "RANK=0 WORLD_SIZE=1", "RANK=0", "RANK=captain", "WORLD_SIZE= RANK=", "MV2_COMM_WORLD_SIZE=1",
        "SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_JOB_ID=7",  # sbatch's script, salloc's shell
        "SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_STEP_ID=1 SLURM_STEP_NUM_TASKS=1",  # srun -n 1 in them
        "HOROVOD_RANK=0 HOROVOD_SIZE=1", "FLUX_TASK_RANK=0 FLUX_JOB_SIZE=1",
    ],
)  # fmt: skip
def test_one_process_is_a_world_of_one(text: str) -> None:
    assert detect(variables(text)) == ALONE


MET = "MASTER_ADDR=a MASTER_PORT=80"
WORKER = f"{MET} TORCHELASTIC_RUN_ID=x LOCAL_RANK=0"
FOUR_TASKS = "SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=4"


@pytest.mark.parametrize(
    ("text", "rank", "size", "meets"),
    [
        (f"RANK=1 WORLD_SIZE=2 {MET}", 1, 2, STORE),
        (f"RANK=0 WORLD_SIZE=2 {MET}", 0, 2, STORE),
        (f"RANK=5 WORLD_SIZE=8 {WORKER}", 5, 8, STORE),
        (FOUR_TASKS, 1, 4, FIRST_HOST),
        (f"{FOUR_TASKS} SLURM_NTASKS=9 {MET}", 1, 4, FIRST_HOST),
        (f"RANK=1 WORLD_SIZE=4 {MET} {FOUR_TASKS}", 1, 4, STORE),  # a batch script that repeats it
        (f"RANK=5 WORLD_SIZE=8 {WORKER} {FOUR_TASKS}", 5, 8, STORE),  # srun torchrun
        (f"RANK=5 WORLD_SIZE=8 {MET} LOCAL_RANK=1 {FOUR_TASKS}", 5, 8, STORE),  # another launcher of its kind
        (f"RANK=5 WORLD_SIZE=8 {WORKER} FLUX_TASK_RANK=1 FLUX_JOB_SIZE=4", 5, 8, STORE),
        (f"RANK=1 WORLD_SIZE=2 {MET} SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=1", 1, 2, STORE),  # srun --pty bash
        (f"RANK=1 WORLD_SIZE=2 {MET} SLURM_PROCID=0 SLURM_NTASKS=4", 1, 2, STORE),  # in a batch script
        (f"RANK=1 {FOUR_TASKS}", 1, 4, FIRST_HOST),
        (f"RANK=0 {FOUR_TASKS}", 1, 4, FIRST_HOST),  # a variable of any program
        ("HOROVOD_RANK=1 HOROVOD_SIZE=3 HOROVOD_RENDEZVOUS_FOLDER=/x", 1, 3, FOLDER),
        ("RANK=1 WORLD_SIZE=3 HOROVOD_RENDEZVOUS_FOLDER=/x", 1, 3, FOLDER),
        (f"RANK=1 WORLD_SIZE=3 {WORKER} HOROVOD_RENDEZVOUS_FOLDER=/x", 1, 3, FOLDER),
        (f"{FOUR_TASKS} HOROVOD_RENDEZVOUS_FOLDER=/x", 1, 4, FOLDER),
        ("FLUX_TASK_RANK=1 FLUX_JOB_SIZE=4 HOROVOD_RENDEZVOUS_FOLDER=/x", 1, 4, FOLDER),
        # horovodrun, also in a job of Slurm, and with --ddp
        ("HOROVOD_RANK=1 HOROVOD_SIZE=3 HOROVOD_AGENT=9:1:2", 1, 3, AGENT),
        ("HOROVOD_RANK=0 HOROVOD_SIZE=1 HOROVOD_AGENT=9:1:2", 0, 1, AGENT),
        (f"HOROVOD_RANK=1 HOROVOD_SIZE=3 HOROVOD_AGENT=9:1:2 {FOUR_TASKS}", 1, 3, AGENT),
        (f"HOROVOD_RANK=1 HOROVOD_SIZE=2 HOROVOD_AGENT=9:1:2 RANK=1 WORLD_SIZE=2 {WORKER}", 1, 2, AGENT),
        # srun torchrun, if srun provides PMI or PMIx to each task
        (f"RANK=5 WORLD_SIZE=8 {WORKER} {FOUR_TASKS} PMIX_RANK=1 PMIX_SERVER_URI41=x", 5, 8, STORE),
        (f"RANK=5 WORLD_SIZE=8 {WORKER} {FOUR_TASKS} PMI_RANK=1 PMI_SIZE=4", 5, 8, STORE),
    ],
)
def test_how_ranks_meet_that_no_mpi_has_started(text: str, rank: int, size: int, meets: str) -> None:
    launch = detect(variables(text))
    assert (launch.rank, launch.size, launch.meets) == (rank, size, meets)
    assert launch.evidence and all(word in text for word in launch.evidence.split(", "))


BOTH = "RANK=1 WORLD_SIZE=2"
TASKS = "SLURM_PROCID=1, SLURM_STEP_NUM_TASKS=4"
MPIRUN_2 = "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2"


@pytest.mark.parametrize(
    ("text", "row", "facts"),
    [
        (f"RANK=1 {MET}", errors.size_not_set, {"evidence": "RANK=1", "setting": "WORLD_SIZE"}),
        (f"WORLD_SIZE=2 {MET}", errors.rank_not_set, {"evidence": "WORLD_SIZE=2", "setting": "RANK"}),
        (f"RANK=x WORLD_SIZE=2 {MET}", errors.rank_no_number, {"setting": "RANK", "value": "x"}),
        (f"RANK=2 WORLD_SIZE=2 {MET}", errors.rank_not_below_size, {"evidence": "RANK=2, WORLD_SIZE=2"}),
        (BOTH, errors.no_meeting_point, {"settings": ["MASTER_ADDR", "MASTER_PORT"]}),
        (f"{BOTH} MASTER_ADDR=a", errors.no_meeting_point, {"settings": ["MASTER_PORT"]}),
        (f"{BOTH} MASTER_PORT=80", errors.no_meeting_point, {"settings": ["MASTER_ADDR"]}),
        (f"{BOTH} MASTER_ADDR=a MASTER_PORT=x", errors.no_master_port, {"value": "x"}),
        (f"{BOTH} MASTER_ADDR=a MASTER_PORT=65536", errors.no_master_port, {"value": "65536"}),
        (f"{BOTH} MASTER_ADDR=a MASTER_PORT=0", errors.no_master_port, {"value": "0"}),
        ("SLURM_STEP_NUM_TASKS=2", errors.rank_not_set, {"setting": "SLURM_PROCID"}),
        ("PALS_RANKID=0", errors.size_not_said, {"evidence": "PALS_RANKID=0"}),
        ("HOROVOD_RANK=1", errors.size_not_set, {"evidence": "HOROVOD_RANK=1", "setting": "HOROVOD_SIZE"}),
        *(
            (
                f"FLUX_TASK_RANK=0 FLUX_JOB_SIZE=2{more}",
                errors.no_way_to_others,
                {"setting": "HOROVOD_RENDEZVOUS_FOLDER"},
            )
            for more in ("", " HOROVOD_RENDEZVOUS_FOLDER=")
        ),
        (f"RANK=1 WORLD_SIZE=8 {MET} {FOUR_TASKS}", errors.launchers_differ, {"differs": "size"}),
        (f"RANK=0 WORLD_SIZE=4 {MET} {FOUR_TASKS}", errors.launchers_differ, {"differs": "rank"}),
        (f"RANK=2 {FOUR_TASKS}", errors.launchers_differ, {"evidence": TASKS, "other": "RANK=2"}),
        (f"RANK=0 WORLD_SIZE=1 {FOUR_TASKS}", errors.launchers_differ, {"other": "RANK=0, WORLD_SIZE=1"}),
        # --nnodes forgotten
        (f"RANK=0 WORLD_SIZE=1 TORCHELASTIC_RUN_ID=a {FOUR_TASKS}", errors.launchers_differ, {}),
        (
            f"{BOTH} {MET} HOROVOD_RANK=0 HOROVOD_SIZE=2",
            errors.launchers_differ,
            {"other": "HOROVOD_RANK=0, HOROVOD_SIZE=2"},
        ),
        (f"{BOTH} {MET} HOROVOD_SIZE=1", errors.launchers_differ, {"other": "HOROVOD_SIZE=1"}),
        (f"RANK=1 WORLD_SIZE=4 {WORKER} {MPIRUN_2}", errors.torchrun_inside, {"launcher": "mpirun"}),
        (
            f"RANK=1 WORLD_SIZE=4 {WORKER} {FOUR_TASKS} PMI_RANK=0 PMI_SIZE=2",
            errors.torchrun_inside,
            {"launcher": "mpirun"},
        ),
    ],
)
def test_what_does_not_fit_together_is_named(text: str, row: Sentence[Any], facts: dict[str, Any]) -> None:
    with refused(row, **facts) as caught:
        detect(variables(text))
    assert "`horovodrun " in caught.value.remedy


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_RANK=1", 4),
        ("PMI_SIZE=1 PMI_RANK=0", 1),
        ("PMI_SIZE=2 PMI_RANK=0 PMI_FD=9", 2),
        ("PMIX_RANK=2 PMIX_SERVER_URI41=x", 0),
        ("PMIX_RANK=2 PMIX_SERVER_URI2=x SLURM_PROCID=2 SLURM_STEP_NUM_TASKS=3", 3),  # srun --mpi=pmix
        ("PMI_SIZE=1 PMI_RANK=0 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_RANK=0", 4),  # horovodrun under srun
        ("OMPI_COMM_WORLD_SIZE=4 SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=2 SLURM_NTASKS=8", 4),
        ("OMPI_COMM_WORLD_SIZE=4 RANK=9 WORLD_SIZE=x HOROVOD_SIZE=2", 4),
        ("OMPI_COMM_WORLD_SIZE=4 RANK=1 WORLD_SIZE=4 TORCHELASTIC_RUN_ID=a", 4),  # horovodrun --ddp
    ],
)
def test_mpi_decides(text: str, size: int) -> None:
    launch = detect(variables(text))
    assert (launch.size, launch.meets) == (size, MPI) and text.split()[0] in launch.evidence


@pytest.mark.parametrize(
    ("text", "evidence"),
    [
        ("", ""),
        ("RANK=0 WORLD_SIZE=1", ""),
        ("SLURM_PROCID=0 SLURM_NTASKS=4", ""),
        ("OMPI_COMM_WORLD_SIZE=1 OMPI_COMM_WORLD_RANK=0 PMIX_RANK=0", ""),  # mpirun -n 1
        ("OMPI_COMM_WORLD_SIZE=1 WORLD_SIZE=2 RANK=0", "RANK=0, WORLD_SIZE=2"),  # torchrun in it
        ("PMIX_RANK=0", "PMIX_RANK=0"),
        ("SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=4", "SLURM_PROCID=1, SLURM_STEP_NUM_TASKS=4"),
    ],
)
def test_whether_a_process_is_one_of_several(text: str, evidence: str) -> None:
    assert of_several(variables(text)) == evidence


@pytest.mark.parametrize("text", ["RANK=1 WORLD_SIZE=2", "PMIX_RANK=3", "OMPI_COMM_WORLD_SIZE=abc"])
def test_it_says_what_the_page_shows(text: str) -> None:
    with pytest.raises(CannotStart) as caught:
        detect(variables(text))
    assert f"CannotStart: {caught.value}\n" in PAGE.read_text()


def test_torchrun_inside_of_mpirun_is_no_rank() -> None:
    inside = variables("OMPI_COMM_WORLD_SIZE=1 OMPI_COMM_WORLD_RANK=0 RANK=1 WORLD_SIZE=2")
    assert detect(inside).size == 1
    with refused(errors.torchrun_inside, size="2", setting="WORLD_SIZE", launcher="mpirun"):
        detect({**inside, "TORCHELASTIC_RUN_ID": "a"})


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ("OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=4 " + PMIX, "PMIX_NAMESPACE=prterun-a-8@1"),
        (f"RANK=1 WORLD_SIZE=2 {MET}", "MASTER_PORT=81"),
        (f"RANK=1 WORLD_SIZE=2 {WORKER}", "TORCHELASTIC_RUN_ID=y"),
        (f"{FOUR_TASKS} SLURM_JOB_ID=7 SLURM_STEP_ID=0", "SLURM_STEP_ID=1"),
        ("HOROVOD_RANK=1 HOROVOD_SIZE=3 HOROVOD_RENDEZVOUS_FOLDER=/x", "HOROVOD_RENDEZVOUS_FOLDER=/y"),
    ],
)
def test_a_child_of_a_rank_is_no_rank(text: str, other: str, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = variables(text)
    leave_mark(environment)
    assert detect(environment).size > 1, "init() again in the rank itself, or in what it has become"
    parent = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: -1)
    # Variables that an MPI rank has set since.
    more = variables(f"RANK=1 WORLD_SIZE=4 {MET}") if "OMPI" in text else {}
    for inherited in (environment, {**environment, **more}):
        with refused(errors.child_of_rank, process=-1, parent=str(parent)) as caught:
            detect(inherited)
        unset = re.findall(r"-u (\w+)", caught.value.facts["unset"])
        clean = {name: value for name, value in inherited.items() if name not in unset}
        assert detect(clean) == ALONE, "the remedy works"
    assert detect({**environment, **variables(other)}).size > 1, "a job that a rank has started"


def test_a_job_that_a_rank_starts_has_no_mark() -> None:
    """MPICH's mpirun numbers ranks, but does not name the job."""
    assert MARK not in without_agents({**os.environ, MARK: "1 x"})


def test_our_agents_use_the_names_of_the_table() -> None:
    ours = next(each for each in LAUNCHERS if each.meets == AGENT)
    told = variables_of(places_of([("a", 1)])[0], "a")
    assert {ours.size, ours.rank, ours.local_size, *ours.local_ranks} <= told.keys()


def test_no_variable_stands_twice_in_the_table() -> None:
    names = [
        name
        for each in LAUNCHERS
        for name in (each.rank, each.size, each.local_size, *each.local_ranks)
        if name and not each.sign  # with it, no other counts
    ]
    assert len(set(names)) == len(names)
