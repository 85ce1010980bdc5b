"""The files of this repository that git knows."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def git(*words: str, root: Path = ROOT) -> list[str]:
    """The lines that git prints; [] if it fails, as in a clone of one commit."""
    done = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=False)
    return done.stdout.splitlines() if done.returncode == 0 else []


def files(*patterns: str) -> list[Path]:
    """Files that git tracks, or could track, by patterns of their names."""
    names = git("-c", "core.quotePath=off", "ls-files", "-co", "--exclude-standard", "--", *patterns)
    return sorted(ROOT / name for name in set(names) if (ROOT / name).is_file())


def changed(base: str, root: Path = ROOT) -> list[str]:
    """Files that differ from a commit, including deleted and untracked ones."""
    new = git("ls-files", "--others", "--exclude-standard", root=root)
    return git("diff", "--name-only", "--no-renames", base, root=root) + new
