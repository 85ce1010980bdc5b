"""A program that replaces ssh; the name of a host determines its behaviour."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

# ssh [options] -- HOST COMMAND. "quiet" sends nothing, "torn" and "early" send frames that no agent sends,
# "liar" does so after its first frame, and the login script of "greedy" reads a line.
PROGRAM = """#!/bin/sh
while [ "$1" != -- ]; do shift; done
echo "$2" >> "$LOG"
case $2 in
  good*) export SSH_CONNECTION="10.9.0.1 4000 10.9.0.2 22"; printf Welcome; exec sh -c "$3" ;;
  gone) echo "ssh: Could not resolve hostname gone: Name or service not known" >&2; exit 255 ;;
  locked) echo "me@locked: Permission denied (publickey)." >&2; exit 255 ;;
  new) echo "Host key verification failed." >&2; exit 255 ;;
  down) echo "ssh: connect to host down port 22: Connection timed out" >&2; exit 255 ;;
  shut) echo "ssh: connect to host shut port 22: Connection refused" >&2; exit 255 ;;
  slow) grep -qc slow "$LOG.2" 2>/dev/null || { echo slow > "$LOG.2"; echo "Connection reset" >&2; exit 255; }
        exec sh -c "$3" ;;
  bare) exec sh -c "$(echo "$3" | sed 's#[^ ]*/python[0-9.]*#/no/python#')" ;;
  old) exec sh -c "$(echo "$3" | sed 's#[^ ]*/agent.py#/no/agent.py#')" ;;
  odd) echo "something odd" >&2; exit 3 ;;
  torn) printf '\\nhorovodrun agents 2\\n\\0\\0\\0\\0?'; exec sleep 60 ;;
  early) printf '\\nhorovodrun agents 2\\n\\0\\0\\0\\0B'; exec sleep 60 ;;
  liar) printf '\\nhorovodrun agents 2\\n\\0\\0\\0\\020H{"host": "liar"}'
        sleep 0.5; printf '\\0\\0\\0\\0?'; exec sleep 60 ;;
  greedy) read -r line; exec sh -c "$3" ;;
  killed) kill -9 $$ ;;
  mute) exit 0 ;;
  quiet) exec sleep 60 ;;
esac
"""


def put_first(folder: Path, patch: pytest.MonkeyPatch) -> Path:
    """Put the program first on PATH; return its log file, which lists the requested hosts."""
    (folder / "ssh").write_text(PROGRAM)
    (folder / "ssh").chmod(0o755)
    log = folder / "log"
    log.touch()
    patch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    patch.setenv("LOG", str(log))
    return log
