"""docs/running.md as tests use it: its commands, and the files that they need."""

import re
from pathlib import Path

import page_blocks
from page_blocks import blocks


def commands(on_other_hosts: bool) -> list[str]:
    """The command lines of the page that name hosts, or those that do not."""
    lines = page_blocks.commands("docs/running.md")
    return [line for line in lines if bool(re.search(r"node\d|hosts\.txt", line)) == on_other_hosts]


def write_files(folder: Path) -> None:
    """What the page tells to save: train.py, hosts.txt, job.sh; and its Python example, as function.py."""
    (train,) = blocks("README.md", "python")
    (function,) = blocks("docs/running.md", "python")
    (hosts,) = blocks("docs/running.md", "hosts")
    (job,) = blocks("docs/running.md", "bash")
    for name, text in (("train.py", train), ("function.py", function), ("hosts.txt", hosts), ("job.sh", job)):
        (folder / name).write_text(text)
