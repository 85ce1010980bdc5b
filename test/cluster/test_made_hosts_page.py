"""The commands and the script of docs/made_hosts.md."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import rig  # puts test/parallel on the path
from page_blocks import blocks

from horovod.made_hosts import MadeHosts


def test_the_commands_and_the_script(made: MadeHosts, tmp_path: Path) -> None:
    (commands,), (script,) = (blocks("docs/made_hosts.md", language) for language in ("sh", "python"))
    (train,) = blocks("README.md", "python")
    (tmp_path / "train.py").write_text(train)
    (tmp_path / "script.py").write_text(script)
    # a cluster with a name of its own: there may be another of that which the page uses
    named = commands.replace("made_hosts ", f"made_hosts --name {made.cluster} ")
    assert [line.split()[2] for line in commands.splitlines()] == ["horovod.made_hosts"] * 12
    bin_folder = tmp_path / "bin"  # horovodrun and python for hosts, which are not this shell
    bin_folder.mkdir()
    for name, words in (("python", ""), ("horovodrun", " -m horovod.runner")):
        (bin_folder / name).write_text(f'#!/bin/sh\nexec {sys.executable}{words} "$@"\n')
        (bin_folder / name).chmod(0o755)
    environment = rig.launching.environment("cluster", HOME=str(tmp_path))
    environment["PATH"] = f"{bin_folder}{os.pathsep}{environment['PATH']}"
    for words in (["bash", "-euo", "pipefail", "-c", named], [sys.executable, "script.py"]):
        done = subprocess.run(
            words, capture_output=True, text=True, timeout=200, cwd=tmp_path, env=environment, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("<stdout>:h") == 4
