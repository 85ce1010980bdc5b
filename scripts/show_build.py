"""Runs a build command and shows its progress: ninja's latest line on a terminal, else one every 10 seconds.

It also shows the build's decisions ("horovod: ..."). All output goes to build/build.log, whose end is shown
if the command fails. Usage: show_build.py [--log NAME] COMMAND [ARGUMENT...]

`--log` is for commands that build nothing: another name in build/.
"""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from subprocess import PIPE, STDOUT

LOGS = Path(__file__).resolve().parent.parent / "build"
EVERY = 10.0  # seconds between lines if lines cannot be overwritten
SHOWN_OF_A_FAILURE = 40
# Lines of CMake and pip.
STEPS = ("-- ", "Installing ", "Preparing ", "Building ", "Collecting ", "Downloading ", "Using cached ")


class Progress:
    """Shows the progress of a build, in place or now and then. Thread-safe."""

    def __init__(self, step: str) -> None:
        self._is_terminal = sys.stdout.isatty()
        self._start = time.monotonic()
        self._step, self._lock, self._over = step, threading.Lock(), threading.Event()
        self._ticker = threading.Thread(target=self._tick, daemon=True)
        self._ticker.start()

    def step(self, text: str) -> None:
        with self._lock:
            self._step = text

    def say(self, text: str) -> None:
        with self._lock:
            print(f"\r\033[K{text}" if self._is_terminal else text, flush=True)

    def end(self) -> None:
        self._over.set()
        self._ticker.join()
        if self._is_terminal:
            print("\r\033[K", end="", flush=True)

    def _tick(self) -> None:
        while not self._over.wait(0.2 if self._is_terminal else EVERY):
            with self._lock:
                line = f"  {time.monotonic() - self._start:.0f} s  {self._step}"
                if self._is_terminal:
                    print(f"\r\033[K{line[: shutil.get_terminal_size().columns - 1]}", end="", flush=True)
                else:
                    print(line, flush=True)


def run(
    command: list[str],
    cwd: Path | None = None,
    env: dict[str, str] | None = None,
    log_name: str = "build.log",
) -> int:
    path = LOGS / log_name
    path.parent.mkdir(exist_ok=True)
    progress = Progress(Path(command[0]).name)
    with (
        path.open("w") as log,
        subprocess.Popen(command, cwd=cwd, env=env, stdout=PIPE, stderr=STDOUT, text=True) as process,
    ):
        for line in process.stdout or ():
            log.write(line)
            log.flush()
            text = line.strip()
            if text.startswith("horovod: "):
                progress.say(text.removeprefix("horovod: "))
            elif re.match(r"\[\d+/\d+\] ", text):
                progress.step(re.sub(r"CMakeFiles/\S+?\.dir/", "", text))
            elif text.startswith(STEPS):
                progress.step(text)
    progress.end()
    if process.returncode != 0:
        print(*path.read_text().splitlines()[-SHOWN_OF_A_FAILURE:], f"all of it: {path}", sep="\n")
    return process.returncode


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends it without a traceback
    if sys.argv[1:2] == ["--log"]:
        sys.exit(run(sys.argv[3:], log_name=sys.argv[2]))
    sys.exit(run(sys.argv[1:]))
