"""docs/platforms.md: its commands are those of docs/running.md, and its refusals are what happens."""

import re
import subprocess
import sys
from pathlib import Path

import typed
from page_blocks import blocks, commands

typed.needs_mpirun()
PAGE = "docs/platforms.md"
LSF, ABSENT = blocks(PAGE, "text")


def test_the_commands_are_run_with_those_of_the_page_about_running() -> None:
    own = commands(PAGE)
    assert own
    assert set(own) <= set(commands("docs/running.md"))


def test_a_process_that_no_launcher_started_is_alone(tmp_path: Path) -> None:
    (script,) = blocks(PAGE, "python")
    (tmp_path / "task.py").write_text(script)
    alone = "no launcher started this process: it trains alone\n"
    assert typed.output_of("python task.py", tmp_path) == alone
    assert typed.output_of("horovodrun -np 2 python task.py", tmp_path) == ""


def test_lsf(tmp_path: Path) -> None:
    done = typed.run("horovodrun -np 4 true", tmp_path, LSB_JOBID="7", LSB_MCPU_HOSTS="hostA 2 hostB 2")
    assert done.returncode != 0
    assert done.stderr == LSF


def test_ray_and_spark() -> None:
    for line in ABSENT.splitlines():
        (module,) = re.findall(r"(horovod\.\w+) is not served", line)
        command = [sys.executable, "-c", f"import {module}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.stderr.splitlines()[-1] == line
