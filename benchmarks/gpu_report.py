"""Run the benchmarks, tests and compute-sanitizer of one GPU, in parts, with one command and no network.

    python3 benchmarks/gpu_report.py --wheels               # with a network: fetch what the other needs
    python3 benchmarks/gpu_report.py                        # on the GPU's machine: build, run parts not done
    python3 benchmarks/gpu_report.py --minutes 9            # the same, as far as it gets in 9 minutes
    python3 benchmarks/gpu_report.py --part codec --again   # one part, whether done or not
    python benchmarks/gpu_report.py --shown FILE            # tables of a report.json; measures nothing

The folder --out keeps report.json, the record of each part that has ended, and report.log, the output of all
parts. docs/measured/gpu.json is such a report.json; docs/benchmarks.md describes its use. Only --shown needs
more than the standard library, because the program starts before anything is installed: it builds this
package in an environment of the machine's PyTorch and of wheels that were fetched elsewhere.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import site
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import report
from report import Record

sys.path.append(str(Path(__file__).resolve().parents[1]))

from build_support.requirements import ALWAYS, OPENMPI

ROOT = Path(__file__).resolve().parents[1]
OUT, REPORT = ROOT / "build" / "gpu_report", "report.json"
MOST_MINUTES = 9.0  # of a part: the longest command on a lent machine takes ten
GRACE_SECONDS = 15.0  # time for launchers to end their ranks
NO_TESTS_RAN = 5  # pytest's exit code
KEPT_OUTPUT = 6000  # characters kept of the end of a part's output

TARGET = "3.12"  # the Python of the machine with the GPU
PLATFORMS = ("manylinux2014_x86_64", "manylinux_2_27_x86_64", "manylinux_2_28_x86_64")
REQUIREMENTS = (
    *(*ALWAYS, OPENMPI, "numpy", "cloudpickle", "PyYAML", "psutil", "packaging"),  # to build and to run
    "nvidia-ml-py>=12",
    *("mpi4py", "ml_dtypes", "pytest>=8", "pytest-timeout", "tqdm"),  # of benchmarks, tests and examples
)
MOST_MIB = 60.0
WHEELS = ROOT / "build" / "gpu_wheels"
ENVIRONMENT = ROOT / "build" / "gpu_environment"
BUILD_MINUTES = 9.0

# A program that checks, before the build, whether the machine can be measured.
FINDS_A_GPU = "import sys, torch; sys.exit(not torch.cuda.is_available())"
FACTS = """
import json, sys
sys.path.insert(0, sys.argv[1])
import report, torch
from gpus import open_place
print(json.dumps(report.machine() | {"torch": torch.__version__} | open_place(0, 0).facts))
"""

EMULATED = (
    "**Emulated**: that it runs, and that bytes are right, is all that this shows; its times mean nothing."
)
QUICK = "**Tiny sizes** (`--quick`): this shows only that the benchmark runs."
SHOWN = ("GPU", "driver", "CUDA", "torch", "python", "commit")
LAST_LINES = 12  # of a failed part's output

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
        read = tests_in if part.is_test else report.read_json
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


# The Python that has this package, built for the machine's GPU


class Unfit(Exception):
    """This machine cannot be measured; the message has the reason and the remedy."""


def fetch_wheels(folder: Path = WHEELS, run: Callable[..., Any] = subprocess.run) -> float:
    """Fill the folder with the wheels that a machine without a network needs; return its size in MiB."""
    shutil.rmtree(folder, ignore_errors=True)
    platforms = [f"--platform={platform}" for platform in PLATFORMS]
    only = ["--only-binary=:all:", f"--python-version={TARGET}", "--implementation=cp", *platforms]
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet"]
    run([*pip, *only, "--dest", str(folder), *REQUIREMENTS], check=True)
    return size_of(folder)


def size_of(folder: Path) -> float:
    """Return the MiB of the folder's wheels. Raises Unfit if they are too many to carry to the machine."""
    size = sum(wheel.stat().st_size for wheel in folder.glob("*.whl")) / 2**20
    if size > MOST_MIB:
        raise Unfit(f"{folder} has {size:.1f} MiB of wheels, and {MOST_MIB:g} are the most")
    return size


def prepare(log: Path) -> Path:
    """Build the package as it is now in a separate environment; return that environment's Python."""
    if subprocess.run([sys.executable, "-c", FINDS_A_GPU], check=False).returncode:
        raise Unfit(f"{sys.executable} has no PyTorch that finds a GPU: nothing was built or measured")
    wheels = sorted(WHEELS.glob("*.whl"))
    if not wheels:
        raise Unfit(f"there are no wheels in {WHEELS}: run `make gpu-wheels` where there is a network")
    python = make_environment(ENVIRONMENT)
    # The machine's numpy belongs to its PyTorch; all other packages come before the machine's.
    own = [str(wheel) for wheel in wheels if not wheel.name.startswith("numpy-")]
    install(python, ["--ignore-installed", "--no-deps", *own], log)
    install(python, ["--find-links", str(WHEELS), "numpy"], log)
    print("building horovod for this GPU", flush=True)
    install(python, ["--ignore-installed", "--no-deps", "--no-build-isolation", str(ROOT)], log)
    return python


def make_environment(folder: Path) -> Path:
    """Make a virtual environment that also has this Python's packages, even those of an environment."""
    subprocess.run([sys.executable, "-m", "venv", "--clear", "--without-pip", str(folder)], check=True)
    python = folder / "bin" / "python"
    ask = "import sysconfig; print(sysconfig.get_path('purelib'))"
    answer = subprocess.run([str(python), "-c", ask], capture_output=True, text=True, check=True)
    seen = [path for path in (*site.getsitepackages(), site.getusersitepackages()) if Path(path).is_dir()]
    lines = [f"import site; site.addsitedir({path!r})\n" for path in seen]
    (Path(answer.stdout.strip()) / "machine.pth").write_text("".join(lines))
    return python


def install(python: Path, words: list[str], log: Path) -> None:
    """Install with this Python's pip, as the environment has none. Raises Unfit with pip's last words."""
    pip = [sys.executable, "-m", "pip", "--isolated", "--disable-pip-version-check", "--python", str(python)]
    with log.open("a+") as output:
        settings = environment_of(python) | {"HOROVOD_WITH_CUDA": "1"}
        code = run_limited([*pip, "install", "--no-index", *words], BUILD_MINUTES * 60, settings, output)
        if code != 0:
            last = log.read_text(errors="replace")[-3000:]
            raise Unfit(f"pip install {' '.join(words)}: exit code {code}; {log} ends with\n{last}")


def environment_of(python: Path) -> dict[str, str]:
    """Return variables for programs of that Python: its programs come first on PATH, then this Python's."""
    folders = [str(python.parent), str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]
    return os.environ | {"PATH": os.pathsep.join(folders), "PYTHONUNBUFFERED": "1"}


def facts_of(python: Path, environment: Mapping[str, str]) -> dict[str, Any]:
    """Return facts about machine, GPU, driver, CUDA and PyTorch. Raises Unfit if there is no GPU."""
    benchmarks = ROOT / "benchmarks"
    # Not in ROOT, whose package may not be built and would be imported instead of the built one.
    ask = [str(python), "-c", FACTS, str(benchmarks)]
    done = subprocess.run(ask, cwd=benchmarks, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Unfit(f"nothing can be measured: {done.stderr.strip().splitlines()[-1]}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found | {"commit": commit()}


def commit() -> str:
    """Return the sources' commit; in a copy without .git, the variable GPU_REPORT_COMMIT has it."""
    said = os.environ.get("GPU_REPORT_COMMIT", "")
    if said or not (ROOT / ".git").exists():
        return said or "unknown"
    # Figures are written into docs.
    changed = git("status", "--porcelain", "--untracked-files=no", "--", ":!docs")
    return git("describe", "--always") + ("-dirty" if changed else "")


def git(*words: str) -> str:
    return subprocess.check_output(["git", *words], cwd=ROOT, text=True).strip()


# All parts, one after the other


def read_records(file: Path) -> dict[str, Record]:
    return dict(report.read_json(file)) if file.exists() else {}


def to_do(chosen: argparse.Namespace) -> list[Part]:
    done = {} if chosen.again else read_records(chosen.out / REPORT)
    return [part for part in PARTS if part.name in chosen.part and part.name not in done]


def table(records: dict[str, Record]) -> str:
    cells = []
    for part in PARTS:
        record = records.get(part.name)
        spent = f"{record['seconds']:.0f} s" if record else ""
        cells.append([part.name, part.tells, record["outcome"] if record else "", spent, f"{part.minutes:g}"])
    return report.table(["part", "what it tells", "outcome", "took", "minutes at most"], cells, left=3)


def measure(chosen: argparse.Namespace, python: Path, deadline: float) -> None:
    """Run the parts that are not done, in the table's order; record each as soon as it ends."""
    environment = environment_of(python)
    facts = facts_of(python, environment)
    print(report.machine_text(facts), flush=True)
    for number, part in enumerate(to_do(chosen)):
        if number and time.monotonic() + part.minutes * 60 > deadline:
            print(f"{part.name} may take {part.minutes:g} minutes, more than are left: call this again")
            return
        print(f"{part.name}: {part.tells}", flush=True)
        record = run_part(part, python, environment, chosen.out / "report.log", chosen.quick)
        today = datetime.now(timezone.utc).date().isoformat()
        record |= {"quick": chosen.quick, "date": today, "facts": facts}
        report.write_json(chosen.out / REPORT, read_records(chosen.out / REPORT) | {part.name: record})
        print(f"{part.name}: {record['outcome']}, {record['seconds']:.0f} s", flush=True)


# The records as Markdown


def section(records: Mapping[str, Record]) -> str:
    """Return Markdown: the missing parts, then every part that ran, in the table's order."""
    if not records:
        return "Not measured on a GPU yet."
    missing = [f"`{part.name}`" for part in PARTS if part.name not in records]
    texts = [f"Not measured on a GPU yet: {', '.join(missing)}."] if missing else []
    texts += [part_text(part, records[part.name]) for part in PARTS if part.name in records]
    return "\n\n".join(texts)


def part_text(part: Part, record: Record) -> str:
    facts = record["facts"]
    is_emulated = facts["GPU"].startswith("emulated")
    where = report.measured_on({name: facts[name] for name in SHOWN if name in facts})
    texts = [
        f"### On {'an emulated' if is_emulated else 'a'} GPU: {part.name}",
        f"{part.tells[0].upper()}{part.tells[1:]}: {record['outcome']}, {record['seconds']:.0f} s,"
        f" {record['date']}. {where}",
        *([EMULATED] if is_emulated else []),
        *([QUICK] if record["quick"] else []),
        *(tables(record["figures"]) if record["figures"] else []),
    ]
    if record["outcome"].startswith(("failed", "ended")):
        last = record["output"].splitlines()[-LAST_LINES:]
        texts += ["The last that it printed:", "\n".join(["```text", *last, "```"])]
    return "\n\n".join(texts)


def tables(figures: Record) -> list[str]:
    """Return the tables that the program prints of these figures."""
    import allreduce
    import codec_on_gpu
    import training_step

    kind = figures["benchmark"]
    if kind == "tests":
        counts = [f"{figures['passed']} passed", f"{len(figures['failed'])} failed"]
        skipped = "; ".join(sorted(set(figures["skipped"])))
        counts.append(f"{len(figures['skipped'])} skipped" + (f" ({skipped})" if skipped else ""))
        return [f"Tests: {', '.join(counts)}."]
    rows: list[Record] = figures["rows"]
    if kind == "codec on a GPU":
        kernels = report.table_of(rows, codec_on_gpu.COLUMNS, left=3)
        return [kernels, "ResNet-50's gradients as a bucket:", codec_on_gpu.bucket_table(figures["bucket"])]
    if kind == "training step":
        return [training_step.table_of(rows)]
    stages = allreduce.stage_table(rows)
    conclusions = "\n".join(f"* {line}" for line in allreduce.conclusions(rows))
    return [
        allreduce.gpu_table(rows),
        *(["Stages of one call:", stages] if stages else []),
        *([conclusions] if conclusions else []),
    ]


def arguments(words: list[str]) -> argparse.Namespace:
    parser = report.options("What one GPU can show, in parts, on from where they were.", "quick")
    option = parser.add_argument
    names = [part.name for part in PARTS]
    option("--out", type=Path, default=OUT, metavar="FOLDER", help="of records (default build/gpu_report)")
    option("--part", nargs="+", choices=names, default=names, metavar="NAME", help="only these (see --list)")
    option("--again", action="store_true", help="also what is done already")
    option("--minutes", type=float, default=float("inf"), help="begin no part that may end later, but one")
    option("--installed", action="store_true", help="build nothing: this Python has the package")
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--list", action="store_true", help="print the parts and how they have ended, no more")
    only.add_argument("--wheels", action="store_true", help="fetch what is carried into build/gpu_wheels")
    only.add_argument("--shown", type=Path, metavar="FILE", help="print the tables of a report.json, no more")
    chosen = parser.parse_args(words)
    chosen.out = chosen.out.resolve()
    return chosen


def do_parts(chosen: argparse.Namespace) -> None:
    """Build the package, run the parts, and print the tables with the Python that has the package."""
    deadline = time.monotonic() + chosen.minutes * 60
    chosen.out.mkdir(parents=True, exist_ok=True)
    if to_do(chosen):
        log = chosen.out / "report.log"
        python = Path(sys.executable) if chosen.installed else prepare(log)
        measure(chosen, python, deadline)
        subprocess.run([str(python), __file__, "--shown", str(chosen.out / REPORT)], check=True)


def carry_out(chosen: argparse.Namespace) -> int:
    if chosen.wheels:
        size = fetch_wheels()
        print(f"{size:.1f} MiB of {MOST_MIB:g} in {WHEELS}")
        return 0
    if chosen.shown:
        print(section(read_records(chosen.shown)))
        return 0
    if not chosen.list:
        do_parts(chosen)
    records = read_records(chosen.out / REPORT)
    print(table(records))
    all_done = all(name in records and records[name]["outcome"] == "done" for name in chosen.part)
    return 0 if chosen.list or all_done else 1


def main(words: list[str]) -> int:
    # SIGTERM ends the running part with this program: SystemExit passes through every `finally`.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        return carry_out(arguments(words))
    except Unfit as why:
        raise SystemExit(f"gpu_report.py: {why}") from None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
