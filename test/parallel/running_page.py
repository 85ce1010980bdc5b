"""docs/running.md as tests use it: its commands, and the files that they need."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(document: str, language: str) -> list[str]:
    return [body for kind, body in _BLOCK.findall((ROOT / document).read_text()) if kind == language]


def commands(on_other_hosts: bool) -> list[str]:
    """The command lines of the page that name hosts, or those that do not."""
    lines = [line for block in blocks("docs/running.md", "sh") for line in block.splitlines()]
    return [line for line in lines if bool(re.search(r"node\d|hosts\.txt", line)) == on_other_hosts]


def write_files(folder: Path) -> None:
    """What the page tells to save: train.py, hosts.txt, job.sh; and its Python example, as function.py."""
    (train,) = blocks("README.md", "python")
    (function,) = blocks("docs/running.md", "python")
    (hosts,) = blocks("docs/running.md", "hosts")
    (job,) = blocks("docs/running.md", "bash")
    for name, text in (("train.py", train), ("function.py", function), ("hosts.txt", hosts), ("job.sh", job)):
        (folder / name).write_text(text)
