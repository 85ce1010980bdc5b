"""deploy/kubeflow/mpijob.yaml: launcher and workers on separate hosts, in the image."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from image import ROOT, Container, Image
from pods import Pods, operator_variables

from horovod import made_hosts

pytestmark = [pytest.mark.timeout(5400), pytest.mark.cluster]

MANIFEST = yaml.safe_load((ROOT / "deploy" / "kubeflow" / "mpijob.yaml").read_text())


@pytest.fixture(scope="module")
def files(image: Image, container: Container) -> tuple[Path, list[str]]:
    """The files of a container, and the variables of the image."""
    reason = made_hosts.why_not()
    if reason:
        pytest.skip(reason)
    return container.files(), image.description()["Env"]


@pytest.fixture(scope="module")
def pods(files: tuple[Path, list[str]]) -> Iterator[Pods]:
    with Pods(MANIFEST, *files) as running:
        yield running


def test_the_launcher_trains_on_the_workers(pods: Pods) -> None:
    done = pods.launch()
    assert done.returncode == 0, done.stdout + done.stderr
    assert "[0]<stdout>:parameters     bit-identical on 4 rank(s)" in done.stdout
    assert "warning" not in done.stderr


def test_ranks_are_where_the_host_file_says(pods: Pods) -> None:
    words = ["horovodrun", "-np", "4", "--hostfile", "/etc/mpi/hostfile", "-p", "2222", "hostname"]
    # The variables of the current operator, and one by which v1's operator replaced ssh.
    given = {**operator_variables(2), "OMPI_MCA_plm_rsh_agent": "/etc/mpi/kubexec.sh"}
    done = pods.run(0, words, **given)
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(done.stdout.split()) == [f"[{rank}]<stdout>:pod{2 + rank // 2}" for rank in range(4)]


def test_mpirun_needs_to_be_told_of_the_host_file(pods: Pods) -> None:
    """docs/containers.md: Open MPI 5 reads none of the operator's variables.

    The job is plain mpirun of Open MPI 5.0.11, which sometimes does not end when all its ranks have: the test
    checks where the ranks ran.
    """
    words = ["mpirun", "-np", "2", "--oversubscribe", "hostname"]
    assert pods.run(0, words, **operator_variables(2)).stdout.split() == ["pod1", "pod1"]
    words = ["mpirun", "-np", "4", "--hostfile", "/etc/mpi/hostfile", "hostname"]
    done = pods.run_for(60, 0, words, **operator_variables(2))
    assert sorted(done.stdout.split()) == ["pod2", "pod2", "pod3", "pod3"]


def test_one_logs_in_with_the_key_of_the_job_only(pods: Pods) -> None:
    worker = pods.names[1]
    assert pods.run(0, ["ssh", worker, "id", "-un"]).stdout == "mpiuser\n"
    refused = pods.run(0, ["ssh", "-o", "BatchMode=yes", "-o", "IdentityFile=none", worker, "true"])
    assert refused.returncode == 255
    assert "Permission denied (publickey)" in refused.stderr
    assert "Permission denied" in pods.run(0, ["ssh", "-o", "BatchMode=yes", f"root@{worker}", "true"]).stderr


def test_shared_memory_that_is_too_small(files: tuple[Path, list[str]]) -> None:
    """docs/containers.md about --shm-size: the error, and the way without shared memory."""
    program = (
        "import horovod.torch as hvd, torch; hvd.init(); print(hvd.allreduce(torch.ones(9), op=hvd.Sum))"
    )
    words = ["horovodrun", "--launcher", "mpi", "-np", "2", "python", "-c", program]
    with Pods(MANIFEST, *files, shm="1m") as pods:
        failed = pods.run(0, words)
        assert failed.returncode == 1
        refusal = " is too small: 1.0 MiB of its 1.0 MiB are free, and its 2 ranks need 9.9 MiB there"
        assert failed.stderr.count(refusal) == 2
        done = pods.run(0, words, HOROVOD_TRANSPORT="mpi")
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout.count("tensor([2.,") == 2
