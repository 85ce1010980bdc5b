"""The parts of benchmarks/gpu_report.py: their table, and how one part runs and ends.

Standard library only, because the module is imported before anything is installed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from report import Record, read_json

ROOT = Path(__file__).resolve().parents[1]
MOST_MINUTES = 9.0  # of a part: the longest command on a lent machine takes ten
GRACE_SECONDS = 15.0  # time for launchers to end their ranks
NO_TESTS_RAN = 5  # pytest's exit code
KEPT_OUTPUT = 6000  # characters kept of the end of a part's output


@dataclass(frozen=True)
class Part:
    """A part. `command`: a program of benchmarks/, or pytest and a file of test/gpu, with options."""

    name: str
    minutes: float  # limit, after which it is ended
    tells: str
    command: str

    @property
    def is_test(self) -> bool:
        return self.command.startswith("pytest ")


# The most informative parts come first: the machine may be gone before the last.
PARTS = (
    Part("codec", 6, "kernels, fused reduce among them, beside copies of as many bytes",
         "codec.py --codecs bit8/128 int8/128 bit16 --size-mb 256 1024"),
    Part("host", 6, "allreduce of 4 ranks on one GPU through the host, stage by stage",
         "allreduce.py --np 4 --transports host --sizes 100e6 25e6 1e6"),
    Part("nccl", 6, "allreduce over NCCL in a world of one: what every call costs",
         "allreduce.py --np 1 --transports nccl --sizes 1e3 1e6 25e6 100e6"),
    Part("step", 6, "training steps of one rank, which sends nothing: what the optimizer itself costs",
         "training_step.py --np 1 --batch 64 --compressions none bit8"),
    Part("step-shared", 6, "training steps of 2 ranks on one GPU through the host",
         "training_step.py --np 2 --transport host --batch 32"),
    Part("codecs", 9, "kernels of all codecs at smaller sizes", "codec.py --size-mb 16 64"),
    Part("bfloat16", 5, "kernels that read and write bfloat16",
         "codec.py --dtype bfloat16 --codecs bit8/128 int8/128 --size-mb 256"),
    Part("tests", 9, "every operation gives the CPU's bytes, on 1, 2 and 4 ranks",
         "pytest test_gpu_ranks.py"),
    Part("examples", 9, "MNIST and ResNet-50 under every compression", "pytest test_gpu_examples.py"),
    Part("memcheck", 9, "wrong accesses in kernels", "pytest -k memcheck test_gpu_sanitizer.py"),
    Part("racecheck", 9, "races in kernels", "pytest -k racecheck test_gpu_sanitizer.py"),
)  # fmt: skip


def words_of(part: Part, result: Path, is_quick: bool = False) -> list[str]:
    """Return the words after the name of a Python; the figures go to the file `result`."""
    program, *words = part.command.split()
    if part.is_test:
        options = ["-v", "--color=no", "-p", "no:cacheprovider", f"--junitxml={result}"]
        return ["-m", program, *options, *words[:-1], str(ROOT / "test" / "gpu" / words[-1])]
    script = str(ROOT / "benchmarks" / program)
    return [script, "--device", "cuda", *words, "--out", str(result), *(["--quick"] if is_quick else [])]


def run_part(
    part: Part, python: Path, environment: Mapping[str, str], log: Path, is_quick: bool = False
) -> Record:
    """Run a part to its end or its time limit, in its own folder: ROOT's package is not the built one."""
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="gpu-report-") as folder:
        result = Path(folder) / "result"
        command = [str(python), *words_of(part, result, is_quick)]
        with log.open("a+", errors="replace") as output:
            start = output.seek(0, os.SEEK_END)
            code = run_limited(command, part.minutes * 60, environment, output, cwd=Path(folder))
            output.seek(start)
            printed = output.read()
        read = tests_in if part.is_test else read_json
        figures = read(result) if result.exists() else None
    record = {"outcome": outcome(code, figures, part.minutes), "seconds": round(time.monotonic() - begin, 1)}
    return record | {"figures": figures, "output": printed[-KEPT_OUTPUT:]}


def outcome(code: int | None, figures: Record | None, minutes: float) -> str:
    """Return a word or phrase for the part's end; only "done" means that all its checks passed."""
    if code is None:
        return f"ended after {minutes:g} minutes"
    if figures is None or code not in (0, NO_TESTS_RAN):
        return f"failed with exit code {code}"
    return "done" if figures.get("passed", 1) else "skipped"


def tests_in(junit: Path) -> Record:
    """Count the tests of a pytest report that passed, failed and were skipped, with the reasons to skip."""
    cases = list(ElementTree.parse(junit).iter("testcase"))
    failed = [case.get("name", "") for case in cases if {"failure", "error"} & {child.tag for child in case}]
    skipped = [why_skipped(reason) for case in cases for reason in case.iter("skipped")]
    passed = len(cases) - len(failed) - len(skipped)
    return {"benchmark": "tests", "passed": passed, "failed": failed, "skipped": skipped}


def why_skipped(element: ElementTree.Element) -> str:
    """Return why a test was skipped. A skipped module's text is "(FILE, LINE, 'Skipped: WHY')"."""
    _, is_module, reason = (element.text or "").partition("'Skipped: ")
    return reason.removesuffix("')") if is_module else element.get("message", "")


def run_limited(
    command: Sequence[str], seconds: float, environment: Mapping[str, str], output: Any, cwd: Path = ROOT
) -> int | None:
    """Run a command; return its exit code, or None if its time was over. No process of it is left."""
    # A signal must wait until the process to end is known.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    process = None
    try:
        process = subprocess.Popen(
            command,
            cwd=cwd,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_SETMASK, mask),
        )
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        return None
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        if process is not None:
            end_session(process)


def end_session(process: subprocess.Popen[Any]) -> None:
    """End a process and all that it started: launchers first, so that they end their ranks."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    for pid in [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]:
        with suppress(ProcessLookupError):  # it has ended in the meantime
            if os.getsid(pid) == process.pid:
                os.kill(pid, signal.SIGKILL)
