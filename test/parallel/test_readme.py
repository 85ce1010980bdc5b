"""Every command in README.md and CONTRIBUTING.md is run by a test: here, or by the one named below."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from page_blocks import ROOT, blocks, commands

pytestmark = pytest.mark.quick
RANDOM_SCRIPTS = "test/single/torch/test_random_scripts.py"
BY_OTHERS = {  # command -> the test that runs it, or what does
    "sudo apt-get install -y git make g++ python3-venv python3-dev": "test/setup/test_fresh_machine.py",
    "git clone ADDRESS horovod": "test/setup/fresh_machine.sh",
    "cd horovod": "test/setup/fresh_machine.sh",
    "make lab": "test/parallel/test_lab_page.py",
    "make mnist": "test/setup/test_fresh_machine.py",
    "make test": ".ci/run",
    "make check": "Makefile",  # make test begins with it
    "make docs": "test/browser/test_site_build.py",  # the same command, into another folder
    "pip install .": "test/setup/test_install.py",
    "HOROVOD_WITHOUT_MXNET=1 HOROVOD_WITHOUT_GLOO=1 HOROVOD_WITHOUT_TENSORFLOW=1 HOROVOD_WITH_PYTORCH=1 "
    "python setup.py build": "test/setup/test_build.py",
    "HOROVOD_KEEP_SCREENSHOTS=docs/screenshots "
    "pytest test/browser/test_report.py": "test/browser/test_report.py",
    "make generated": "test/single/house/test_make_build.py",
    "python test/faults/run_faults.py --replay 17": "test/faults/test_faults.py",  # another seed of it
    "python test/single/support/random_scripts.py --seed 17 --ranks 3": RANDOM_SCRIPTS,
    "python test/single/support/random_scripts.py --seeds 0-199": RANDOM_SCRIPTS,
    "horovodrun -np 4 -H node1:2,node2:2 python train.py": "test/cluster/test_running_on_hosts.py",
}


@pytest.mark.parametrize("command", sorted({*commands("README.md"), *commands("CONTRIBUTING.md")}))
def test_a_documented_command(command: str, tmp_path: Path) -> None:
    if command in BY_OTHERS:
        assert (ROOT / BY_OTHERS[command]).exists(), f"{command}: run by {BY_OTHERS[command]}, which is gone"
        return
    (script,) = blocks("README.md", "python")
    (tmp_path / "train.py").write_text(script)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    run = subprocess.run(
        ["bash", "-c", command],
        cwd=tmp_path,
        env=os.environ | {"PATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    loss = re.search(r"loss ([\d.]+) with (\d) processes", run.stdout)
    assert loss, run.stdout
    assert float(loss[1]) < 0.3  # it starts at about 1.3
    assert int(loss[2]) == (2 if "-np 2" in command else 1)
    (line,) = blocks("README.md", "text")
    assert (line in run.stderr) == ("-np 2" in command), run.stderr
    assert "warning" not in run.stderr.lower()


@pytest.mark.parametrize(
    "document",
    [
        "README.md",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
        *(str(path.relative_to(ROOT)) for path in sorted((ROOT / "docs").glob("*.md"))),
    ],
)
def test_links_lead_somewhere(document: str) -> None:
    source = ROOT / document
    prose = re.sub(r"^```.*?^```", "", source.read_text(), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)#]+)", prose):
        assert target.startswith("https://") or (source.parent / target).exists(), f"{document}: {target}"
