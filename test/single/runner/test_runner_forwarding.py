"""Which environment variables are sent to other hosts, and how."""

import pytest

from horovod.runner.agents import frames
from horovod.runner.by_mpirun import Forwarding, sent_by_mpirun, warnings_of_mpirun
from horovod.runner.starting import forwarded_variables

MINE = {"PATH": "p", "HF_TOKEN": "s", "HOROVOD_SIMD": "x", "NCCL_AUTH_TOKEN": "s", "DATA": "d", "HOME": "h"}


def test_what_belongs_to_this_machine_or_another_job_is_not_forwarded() -> None:
    names = ["PATH", "HOME", "OLDPWD", "TMPDIR", "BASH_FUNC_x%%", "CUDA_VISIBLE_DEVICES"]
    names += ["_HOROVOD_SECRET_KEY", "NV_CUDA_VISIBLE_DEVICES", "SSH_AUTH_SOCK", "PMIX_RANK", "SLURM_JOB_ID"]
    names += ["HOROVOD_CYCLE_TIME"]
    assert forwarded_variables(names) == ("HOME", "HOROVOD_CYCLE_TIME", "PATH")


def test_mpirun_is_given_no_secret_to_send_and_what_is_withheld_is_named() -> None:
    found = sent_by_mpirun(MINE, ())
    assert found == Forwarding(("HOROVOD_SIMD", "PATH"), ("DATA", "HF_TOKEN", "NCCL_AUTH_TOKEN"))
    asked = sent_by_mpirun(MINE, ["-x", "HF_TOKEN", "--mca", "a", "b", "-x", "DATA=4"])
    assert asked == Forwarding(found.open, ("NCCL_AUTH_TOKEN",)), "the user sends the others"
    assert sent_by_mpirun({"HOROVOD_SECRET": "s"}, ()).withheld == ("HOROVOD_SECRET",)


def test_what_mpirun_neither_hides_nor_narrows_is_said_where_ranks_are_on_other_hosts() -> None:
    assert warnings_of_mpirun(MINE, "Open MPI 5", (), is_remote=False) == []
    listens, withheld = warnings_of_mpirun(MINE, "Open MPI 5", (), is_remote=True)
    assert "Open MPI 5" in listens and "listen on all networks" in listens
    assert "DATA, HF_TOKEN, NCCL_AUTH_TOKEN" in withheld
    assert withheld.endswith('--mpi-args="-x DATA -x HF_TOKEN -x NCCL_AUTH_TOKEN"')
    assert len(warnings_of_mpirun({"PATH": "p"}, "Open MPI 5", (), is_remote=True)) == 1


def test_an_mpi_that_sends_everything_is_warned_about() -> None:
    for mpi in ("MPICH", "Intel MPI"):
        _, said = warnings_of_mpirun(MINE, mpi, (), is_remote=True)
        assert mpi in said and "HF_TOKEN, NCCL_AUTH_TOKEN" in said and "DATA" not in said
        assert len(warnings_of_mpirun({"PATH": "p"}, mpi, (), is_remote=True)) == 1


def test_the_environment_on_its_way_to_an_agent() -> None:
    sent = {b"A": b"1\n2=3", b"B": b"", b"C": b"\xff'\""}
    data = frames.packed_environment(sent)
    assert frames.unpacked_environment(data) == sent and frames.unpacked_environment(b"") == {}
    for broken in (data[:-1], data + b"more", b"name\0", b"=\0", b"\0"):
        with pytest.raises(ValueError, match="it is no list of variables"):
            frames.unpacked_environment(broken)
