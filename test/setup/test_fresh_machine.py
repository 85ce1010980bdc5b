"""README's prerequisite line and its two commands, typed on a minimal Debian in a chroot."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from clean_shell import ROOT, clean_environment


@pytest.mark.slow
@pytest.mark.timeout(3000)
@pytest.mark.skipif(shutil.which("debootstrap") is None, reason="debootstrap is not installed")
@pytest.mark.skipif(os.geteuid() != 0, reason="debootstrap and chroot need root")
def test_readme_on_a_fresh_machine(tmp_path: Path) -> None:
    script = ["bash", str(ROOT / "test" / "setup" / "fresh_machine.sh"), str(ROOT), str(tmp_path / "root")]
    lab = "make lab LAB='--np 1 2 --compression bit8 -- --max-steps 20'"
    command = [*script, "make mnist", "make mnist", lab, "make test"]
    run = subprocess.run(command, env=clean_environment(), capture_output=True, text=True, check=False)
    said = run.stdout + run.stderr
    assert run.returncode == 0, said[-6000:]
    assert "missing: git make g++ python3-venv python3-dev" in said
    first, second, _ = (
        int(seconds) for seconds in re.findall(r"^== make \w+ took (\d+) s$", said, re.MULTILINE)
    )
    assert "lab-results/report.html" in said
    print(f"make mnist took {first} s, and {second} s the second time")
    assert re.search(r"^=+ \d+ passed", said, re.MULTILINE)
