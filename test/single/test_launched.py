"""What launchers say in the environment: a world of one is made only where nothing speaks of more ranks."""

import os
from pathlib import Path

import pytest

from horovod.common.basics import basics
from horovod.common.launched import ALONE, LAUNCHERS, MARK, detect, leave_mark, of_several
from horovod.runner import rank as wrapper
from horovod.runner.launch import start
from horovod.runner.supervise import Ending, Launch

PAGE = Path(__file__).resolve().parents[2] / "docs" / "troubleshooting.md"
OPEN_MPI = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "4"}
PMIX = {"PMIX_RANK": "1", "PMIX_NAMESPACE": "prterun-a-7@1", "PMIX_SERVER_URI41": "prterun-a-7@0.0;tcp4://a:1"}


def variables(text: str) -> dict[str, str]:
    return dict(word.split("=") for word in text.split())


@pytest.fixture
def started_by_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """These tests may themselves run in a job of Slurm, for example."""
    for launcher in LAUNCHERS:
        for name in (launcher.rank, launcher.size):
            monkeypatch.delenv(name or "-", raising=False)


@pytest.mark.parametrize(
    "text",
    [
        "RANK=0 WORLD_SIZE=2", "RANK=1 WORLD_SIZE=2", "WORLD_SIZE=2", "RANK=3", "RANK=1 WORLD_SIZE=1",
        "SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=2 SLURM_NTASKS=2", "SLURM_PROCID=1 SLURM_NTASKS=2",
        "PMI_RANK=0", "PMI_RANK=1", "PMIX_RANK=0", "PMIX_RANK=3 PMIX_NAMESPACE=x",
        "OMPI_COMM_WORLD_RANK=0",
        "MV2_COMM_WORLD_RANK=0 MV2_COMM_WORLD_SIZE=2", "MV2_COMM_WORLD_RANK=0",
        "HOROVOD_RANK=0 HOROVOD_SIZE=2", "JSM_NAMESPACE_RANK=0 JSM_NAMESPACE_SIZE=2",
        "FLUX_TASK_RANK=0 FLUX_JOB_SIZE=2", "PALS_RANKID=0", "ALPS_APP_PE=1",
        "OMPI_COMM_WORLD_SIZE=abc", "OMPI_COMM_WORLD_SIZE=-1", "OMPI_COMM_WORLD_SIZE=0", "WORLD_SIZE=2x",
        "OMPI_COMM_WORLD_SIZE=9999999999",
    ],
)  # fmt: skip
def test_no_silent_world_of_one(
    text: str, started_by_nobody: None, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    assert launch.size == size and text.split()[0] in launch.evidence


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
    with pytest.raises(ValueError) as caught:
        detect(variables(text))
    assert f"\nValueError: {caught.value}\n" in PAGE.read_text()


def test_torchrun_inside_of_mpirun_is_no_rank() -> None:
    inside = variables("OMPI_COMM_WORLD_SIZE=1 OMPI_COMM_WORLD_RANK=0 RANK=1 WORLD_SIZE=2")
    assert detect(inside).size == 1
    with pytest.raises(ValueError, match=r"one of 2 \(WORLD_SIZE=2\), inside of a job of mpirun"):
        detect({**inside, "TORCHELASTIC_RUN_ID": "a"})


def test_a_child_of_a_rank_is_no_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    environment = {**OPEN_MPI, **PMIX}
    leave_mark(environment)
    assert detect(environment).size == 4, "init() again in the rank itself, or in what it has become"
    monkeypatch.setattr(os, "getpid", lambda: -1)
    with pytest.raises(ValueError, match=r"a rank that has called hvd.init\(\), and has its variables"):
        detect(environment)
    assert detect({**environment, "PMIX_NAMESPACE": "prterun-a-8@1"}).size == 4, "a job started by a rank"
    clean = {name: text for name, text in environment.items() if name not in (*OPEN_MPI, "PMIX_RANK")}
    assert detect(clean) == ALONE


def test_a_job_that_a_rank_starts_has_no_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    """MPICH's mpirun numbers ranks, and does not say of which job."""
    launches: list[Launch] = []

    def run(launch: Launch, output: object) -> Ending:
        launches.append(launch)
        return Ending(0, "", None, True, {})

    monkeypatch.setattr("horovod.runner.launch.run", run)
    start({"np": 1, "start_timeout": 30.0}, ["true"], {**os.environ, MARK: "1 x"})
    assert launches and MARK not in launches[0].environment


def test_the_wrapper_of_ranks_knows_the_launchers_that_form_mpi_jobs() -> None:
    mpi = [launcher for launcher in LAUNCHERS if launcher.forms_mpi_jobs and launcher.size]
    assert tuple(launcher.rank for launcher in mpi) == wrapper.RANK_VARIABLES
    assert tuple(launcher.local_size for launcher in mpi) == wrapper.LOCAL_SIZE_VARIABLES


def test_no_variable_stands_twice_in_the_table() -> None:
    names = [
        name
        for each in LAUNCHERS
        for name in (each.rank, each.size, each.local_size, *each.local_ranks)
        if name
    ]
    assert len(set(names)) == len(names)
