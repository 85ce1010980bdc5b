"""horovodrun --topology, and the environment of a job's hosts, with real ranks of this host."""

from __future__ import annotations

import platform
import re
import sys
from pathlib import Path
from xml.etree import ElementTree

import launching
import pytest

from horovod.lab import environment

pytest.importorskip("horovod._native", reason="the native core is not built")


def test_two_ranks_of_this_host(tmp_path: Path) -> None:
    file = tmp_path / "topology.svg"
    done = launching.horovodrun(
        "--topology", "-np", "2", "--topology-file", str(file), PYTHONIOENCODING="utf-8"
    )
    assert done.returncode == 0, done.stderr
    assert re.search(rf"┌─ {re.escape(platform.node())} ─+ ranks 0-1 ─┐", done.stdout)
    assert "Links between 2 ranks (measured when the job started):" in done.stdout
    rows = re.findall(
        r"^ +(1 KB|1 MB|100 MB)  (none|bit8) +(window \w+) +[\d.]+ ms  window \w+, ", done.stdout, re.M
    )
    assert [row[:2] for row in rows] == [
        (size, compression) for compression in ("none", "bit8") for size in ("1 KB", "1 MB", "100 MB")
    ]
    assert platform.node() in ElementTree.parse(file).getroot().get("aria-label", "")


def test_a_terminal_without_boxes_and_a_forced_route() -> None:
    more = {"PYTHONIOENCODING": "ascii", "HOROVOD_TRANSPORT": "tcp", "HOROVOD_ALLREDUCE_ALGORITHM": "scatter"}
    done = launching.horovodrun("--topology", "-np", "3", **more)
    assert done.returncode == 0, done.stderr
    assert done.stdout.isascii() and done.stdout.startswith("+- ")
    assert len(re.findall(r" (?:none|bit8) +exchange scatter ", done.stdout)) == 6
    assert "Not by cost: HOROVOD_ALLREDUCE_ALGORITHM asks for it." in done.stdout


def test_python_m() -> None:
    """The module by itself, without a number of ranks."""
    done = launching.subprocess.run(
        [sys.executable, "-m", "horovod.topology"],
        env=launching.environment("topology"),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert re.match(r"\d+ ranks? on this host \(", done.stdout)


def test_what_cannot_start_is_said() -> None:
    done = launching.horovodrun("--topology", "-np", "3", "-H", "localhost:2")
    assert (done.returncode, done.stdout) == (1, "")
    assert "-np 3 asks for more ranks than the hosts have slots" in done.stderr


def test_environment_by_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in launching.environment("environment").items():
        monkeypatch.setenv(name, text)
    assert environment.collect(["-np", "2"]) == environment.collect()
