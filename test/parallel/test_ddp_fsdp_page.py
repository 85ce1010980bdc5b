"""The section "FSDP2" of docs/ddp.md: its script, started as it says."""

import re
import shlex
from pathlib import Path

from ddp_jobs import run_torchrun
from page_blocks import blocks, commands

SECTION = "FSDP2"


def test_the_script_of_the_section(tmp_path: Path) -> None:
    (script,) = blocks("docs/ddp.md", "python", SECTION)
    (tmp_path / "fsdp.py").write_text(script)
    (command,) = commands("docs/ddp.md", SECTION)
    words = shlex.split(command)
    assert words[:4] == ["torchrun", "--standalone", "--nproc-per-node", "2"] and words[4:] == ["fsdp.py"]
    done = run_torchrun(2, [str(tmp_path / "fsdp.py")], timeout=100)
    assert done.returncode == 0, done.stdout
    (loss,) = re.findall(r"^loss ([\d.]+)$", done.stdout, re.MULTILINE)
    assert float(loss) < 2, "random labels of 10 classes begin with 2.3"
