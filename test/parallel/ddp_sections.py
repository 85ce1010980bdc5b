"""docs/ddp.md as tests use it: the blocks of one section."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(section: str, language: str) -> list[str]:
    """The blocks of a language under this heading, in order."""
    _, _, rest = (ROOT / "docs" / "ddp.md").read_text().partition(f"\n## {section}\n")
    assert rest, f"docs/ddp.md has no section {section}"
    return [body for kind, body in _BLOCK.findall(rest.partition("\n## ")[0]) if kind == language]


def commands(section: str) -> list[str]:
    """The lines of the section's ```sh blocks."""
    return [line for block in blocks(section, "sh") for line in block.splitlines()]
