"""The job that `horovodrun --topology` starts, and the options that it refuses."""

# private: _joined: hosts that are not here

from __future__ import annotations

import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import topology_machines as made
from refusals import refused

from horovod.runner import launch
from horovod.runner.errors import LaunchError
from horovod.topology import __main__ as command
from horovod.topology import errors, job, routes
from horovod.topology.facts import Ranks


@pytest.fixture(autouse=True)
def broken_pipes() -> Iterator[None]:
    """Restore SIGPIPE's handler: the command lets broken pipes end the process, which later tests use."""
    before = signal.getsignal(signal.SIGPIPE)
    yield
    signal.signal(signal.SIGPIPE, before)


@pytest.mark.parametrize(
    "arguments",
    [
        "python train.py", "--output-filename logs", "--prefix-output-with-timestamp",
        "--timeline-filename t.json", "--compression bit8", "--tune-launch", "--tune-launch-steps 3",
        "--min-np 1", "--host-discovery-script x", "--elastic-timeout 9",
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(arguments: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--topology", "-np", "2", *arguments.split()]) == 2
    option = arguments.split()[0]
    no_meaning, no_command = errors.no_meaning(option=option), errors.takes_no_command(command=arguments)
    assert str(no_meaning if option[0] == "-" else no_command) in capsys.readouterr().err


def test_a_file_without_a_drawing_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert launch.main(["-np", "2", "--topology-file", "x.svg", "true"]) == launch.USAGE_ERROR
    assert "--topology-file says where --topology draws" in capsys.readouterr().err


def test_options_of_a_config_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("params: {allreduce_algorithm: gather}\nsurprise: 1\n")
    found = job.options_of(["-np", "2", "--config-file", str(path)])
    assert found == {"np": 2, "allreduce_algorithm": "gather"}
    assert "surprise" in capsys.readouterr().err


def one_core():
    return replace(made.plain_host(1), usable_cores=1)


@pytest.mark.parametrize(
    "options, host, ranks, part",
    [
        ({"np": 3}, None, 3, ""),
        ({"np": 3, "hosts": "a:2,b:2"}, None, 3, ""),
        ({"hosts": "a:2,b:3"}, None, 5, "one for each slot"),
        ({}, made.gpu_box(), 8, "8 ranks on this host (one for each GPU)"),
        ({}, made.plain_host(1), 2, "2 ranks on this host (one would have nobody to talk to)"),
        ({}, one_core(), 1, "1 rank on this host (there is one core)"),
    ],
)
def test_how_many_ranks(
    options: dict, host: object, ranks: int, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    chosen, remark = job.with_ranks(options, lambda: host)  # type: ignore[arg-type,return-value]
    assert chosen["np"] == ranks and part in remark and bool(remark) == bool(part)


def test_ranks_of_a_host_file_and_of_slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "hosts.txt"
    path.write_text("a slots=3\nb\n")
    assert job.with_ranks({"hostfile": str(path)})[0]["np"] == 4
    for name, text in (
        ("JOB_ID", "1"),
        ("JOB_NODELIST", "n[1-3]"),
        ("NTASKS", "6"),
        ("TASKS_PER_NODE", "2(x3)"),
    ):
        monkeypatch.setenv(f"SLURM_{name}", text)
    assert job.with_ranks({}) == ({"np": 6}, "6 ranks, as this Slurm job asks for.")


def told(name: str, first: bool) -> routes.Told:
    host = replace(made.plain_host(1), name=name) if first else None
    return routes.Told(name, host, Ranks((), False, True, made.MEASURED))


def test_what_ranks_told_is_joined() -> None:
    hosts, ranks = routes._joined([told("a", True), told("a", False), told("b", True)])
    assert [host.name for host in hosts] == ["a", "b"]
    assert (ranks.hosts, ranks.has_host_windows, ranks.links) == ((0, 0, 1), True, made.MEASURED)
    assert not ranks.shares_memory
    with refused(errors.same_host_names, host="a"):
        routes._joined([told("a", True), told("a", True)])


def test_where_nothing_can_start_ranks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def none(options: object) -> None:
        raise LaunchError("this installation is not built")

    monkeypatch.setattr(routes.starting, "way_of", none)
    file = tmp_path / "topology.svg"
    assert command.main(["-np", "4", "--topology-file", str(file)]) == 0
    shown = capsys.readouterr().out
    assert "Nothing is measured: this installation is not built" in shown
    assert "Links between 4 ranks (assumed, as nothing was measured)" in shown and "ranks 0-3" in shown
    assert file.read_text().startswith("<svg ")
    assert command.main(["-np", "4", "--topology-file", str(tmp_path / "no" / "folder.svg")]) == 1
    assert "the drawing cannot be written: " in capsys.readouterr().err
    assert command.main(["-np", "2", "-H", "a:1,b:1"]) == 2
    assert "this installation is not built" in capsys.readouterr().err


def test_a_job_that_fails(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def fail(options: object, question: object) -> None:
        raise RuntimeError("rank 1 was lost")

    monkeypatch.setattr(job, "ask", fail)
    monkeypatch.setattr(routes.starting, "way_of", lambda options: None)
    assert command.main(["-np", "2"]) == 1
    assert capsys.readouterr().err == "horovodrun: rank 1 was lost\n"


def test_gpus_that_are_not_served_are_said_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = ((made.gpu_box(),), routes.one_host(8), "")
    monkeypatch.setattr(routes, "topology_of", lambda options: answer)
    monkeypatch.setattr(command.basics, "cuda_built", lambda: False)
    assert command.main(["-np", "8"]) == 0
    assert "This build serves no tensors on GPUs" in capsys.readouterr().out
    monkeypatch.setattr(command.basics, "cuda_built", lambda: True)
    assert command.main(["-np", "8"]) == 0
    assert "This build serves no tensors on GPUs" not in capsys.readouterr().out
