"""Mistakes in the command line, and horovodrun's messages before it starts any rank."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from page_blocks import text_of
from refusals import refused

from horovod.common import compressors, sentences, variables
from horovod.common.options import BY_VARIABLE
from horovod.runner import by_agents, command_line, errors, launch, mistakes, processes
from horovod.runner.agents.supervision import Ending, Supervision
from horovod.runner.command_line import FLAGS

ROOT = Path(__file__).resolve().parents[3]
MOST_LINES = 5
NAME = re.compile(r"\bHOROVOD_[A-Z0-9_]*[A-Z0-9]\b(?!_)")
FILES = {
    "train.py": "print(1)\n",
    "hvd.py": "import horovod.torch as hvd\nhvd.init()\n",
    "ddp.py": 'import torch.distributed as dist\ndist.init_process_group("gloo")\n',
    "wraps.py": "from torch.nn.parallel import DistributedDataParallel as DDP\nDDP(start.model)\n",
    "registers.py": 'hvd.Compression.register("mybit8", Mine)\n',
    "slot.hosts": "node1 slot=2\n",
    "bare.hosts": "node1 2\n",
    "words.hosts": "node1 slots=two\n",
    "empty.hosts": "# node1 slots=2\n",
    "top.yaml": "compression: bit8\n",
    "tab.yaml": "params:\n\tcycle_time_ms: 1\n",
    "name.yaml": "params: {cycletime_ms: 3}\n",
    "list.yaml": "- np: 2\n",
    "value.yaml": "params: {compression: bit88}\n",
    "type.yaml": "params: {cache_capacity: many}\n",
    "streams.yaml": "library_options: {num_nccl_streams: 4}\n",
}
# (input, error, text in its sentence); NAME=value before the command are variables.
REFUSED = [
    # The command.
    ("horovodrun -np 2 train.py", "script_for_command", "... python train.py?"),
    ("horovodrun -np 2 ./train.py --epochs 3", "script_for_command", "... python ./train.py --epochs 3?"),
    ("horovodrun -np 2", "no_command", "horovodrun -np N [options] COMMAND"),
    ("horovodrun 2 python train.py", "number_for_command", "horovodrun -np 2 python train.py?"),
    ("horovodrun python train.py", "no_ranks", "horovodrun -np N"),
    ("horovodrun python train.py -np 2", "misplaced_options", ": -np; "),
    # Options that contradict each other.
    ("horovodrun -np 2 --min-np 1 --blacklist host python train.py", "blacklist_one_host", "this one"),
    ("horovodrun -np 2 --gloo --mpi python train.py", "launchers_contradict", "--gloo"),
    ("horovodrun -np 2 --master-port 2000 python train.py", "alone", "give --ddp too"),
    ("horovodrun -np 2 --mpi-args x python train.py", "option_of_mpirun", "use --launcher mpi"),
    ("horovodrun -np 2 --bind auto --binding-args x python train.py", "option_of_mpirun", "--binding-args"),
    # Hosts.
    ("horovodrun -np 2 -H localhost python train.py", "too_few_slots", "as localhost:2"),
    ("horovodrun -np 4 -H node1=2,node2=2 python train.py", "host_name", "as node1:2"),
    ("horovodrun -np 4 -H 'node1:2 node2:2' python train.py", "hosts_by_blanks", "host1:2,host2:2"),
    ("horovodrun -np 2 -H node1:two python train.py", "host_slots", "node1"),
    ("horovodrun -np 2 -H node1,node1 python train.py", "host_twice", "node1"),
    ("horovodrun -np 1 -H no-such-host.invalid python train.py", "hosts_refused", "no-such-host.invalid"),
    ("horovodrun -np 2 --hostfile nowhere python train.py", "hostfile_unreadable", "nowhere"),
    ("horovodrun -np 2 --hostfile slot.hosts python train.py", "hostfile_line", "'node1 slot=2'"),
    ("horovodrun -np 2 --hostfile bare.hosts python train.py", "hostfile_line", "line 1: 'node1 2'"),
    ("horovodrun -np 2 --hostfile words.hosts python train.py", "host_slots", "node1"),
    ("horovodrun -np 2 --hostfile empty.hosts python train.py", "hostfile_empty", "empty.hosts"),
    # Compressors.
    (
        "horovodrun -np 2 --compression bti8 python train.py",
        "wrong_value",
        "'bti8'",
        "none, fp16, bf16, bit16",
    ),
    ("horovodrun -np 2 --compression fp8 python train.py", "wrong_value", "mean bit8?"),
    ("horovodrun -np 2 --compression Power_SGD python train.py", "wrong_value", "mean powersgd?"),
    ("horovodrun -np 2 --compression bit8:blocksize=32 python train.py", "wrong_value", "mean block_size?"),
    ("horovodrun -np 2 --compression fp16:k=3 python train.py", "wrong_value", "fp16", "'k'", ": none)"),
    (
        "HOROVOD_COMPRESSION=bit88 horovodrun -np 2 python train.py",
        "wrong_value",
        "HOROVOD_COMPRESSION bit88",
    ),
    ("HOROVOD_DDP_COMPRESSION=in8 horovodrun -np 2 python train.py", "wrong_value", "mean int8?"),
    # Variables.
    ("HOROVOD_CYCLE_TIME=fast horovodrun -np 2 python train.py", "wrong_variable", "_CYCLE_TIME: 'fast'"),
    ("HOROVOD_LOG_LEVEL=loud horovodrun -np 2 python train.py", "wrong_variable", "_LOG_LEVEL: 'loud'"),
    ("HOROVOD_CONTROLLER=gloo horovodrun -np 2 python train.py", "wrong_variable", "_CONTROLLER: 'gloo'"),
    # The config file.
    ("horovodrun -np 2 --config-file tab.yaml python train.py", "config_no_yaml", r"'\t'"),
    (
        "horovodrun -np 2 --config-file list.yaml python train.py",
        "config_no_mapping",
        "`section: {key: value}`",
    ),
    ("horovodrun -np 2 --config-file value.yaml python train.py", "wrong_value", "mean bit8?"),
    (
        "horovodrun -np 2 --config-file type.yaml python train.py",
        "config_value",
        "params.cache_capacity",
        "'many'",
    ),
    ("horovodrun -np 2 --config-file streams.yaml python train.py", "config_unserved", "num_nccl_streams: 4"),
    (
        "horovodrun -np 2 --config-file none.yaml python train.py",
        "config_unreadable",
        "none.yaml",
        "No such file",
    ),
]
# (input, text in the parser's sentence)
NOT_PARSED = [
    ("horovodrun --np 2 python train.py", "--np; did you mean -np?"),
    ("horovodrun -np2 python train.py", "did you mean -np 2?"),
    ("horovodrun -np two python train.py", "'two'"),
    ("horovodrun -np 0 python train.py", ">= 1"),
    ("horovodrun -np", "expected one argument"),
    ("horovodrun -np 2 --compresion bit8 python train.py", "--compresion; did you mean --compression?"),
    ("horovodrun -np 2 --log_level info python train.py", "--log_level; did you mean --log-level?"),
    ("horovodrun -np 2 --Verbose python train.py", "--Verbose; did you mean --verbose?"),
    ("horovodrun -np 2 --fusion-threshold 64 python train.py", "mean --fusion-threshold-mb?"),
    ("horovodrun -np 2 --zzz python train.py", "--zzz; `horovodrun --help`"),
    ("horovodrun –np 2 –verbos python train.py", "--verbos; did you mean --verbose?"),
    ("horovodrun --nproc_per_node=2 train.py", "--nproc_per_node: horovodrun has -np N"),
    ("horovodrun -np 2 -host node1 python train.py", "-host: horovodrun has -H host1:2,host2:2"),
    ("horovodrun -np 2 --mca btl tcp python train.py", '--mca: horovodrun has --mpi-args="--mca ..."'),
    ("horovodrun -np 2 --log-level warn python train.py", "did you mean warning?"),
    ("horovodrun -np 2 --fusion-threshold-mb 64MB python train.py", "'64MB'"),
    ("horovodrun -np 2 --launcher ssh python train.py", "mpi, tcp"),
    ("horovodrun -np 2 --compression bit8,int4 python train.py", "name:option=value"),
]
WARNED = [
    ("HOROVOD_COMPRESION=bit8 horovodrun -np 2 python train.py", "did you mean HOROVOD_COMPRESSION?"),
    ("HOROVOD_FUSION=64 horovodrun -np 2 python train.py", "did you mean HOROVOD_FUSION_THRESHOLD?"),
    ("horovod_HOROVOD=1 HOROVOD_HOME=/x horovodrun -np 2 true", "HOROVOD_HOME is no variable of horovod and"),
    ("HOROVOD_NUM_NCCL_STREAMS=4 horovodrun -np 2 python train.py", "NUM_NCCL_STREAMS=4 is not served"),
    ("horovodrun -np 2 python train.py –hvd True", "if it is a flag, type --hvd"),
    ("horovodrun -np 2 --compression signs python train.py", "and what the script registers"),
    ("horovodrun -np 2 python ddp.py", "ddp.py makes a process group: if this script uses torch.distributed"),
    ("horovodrun -np 2 --compression bit8 python -u ddp.py", ": if this script uses torch.distributed, add"),
    ("horovodrun -np 2 --compression bit8 python wraps.py", "wraps a model in DistributedDataParallel: if"),
    ("horovodrun -np 2 --config-file top.yaml python train.py", "did you mean params.compression?"),
    ("horovodrun -np 2 --config-file name.yaml python train.py", "did you mean params.cycle_time_ms?"),
]
ACCEPTED = [
    "horovodrun –np 2 —compression bit8 python train.py",  # an en dash, and an em dash for two hyphens
    "horovodrun −np 2 ‐–start-timeout 9 true",  # a minus sign; a hyphen of Unicode's and an en dash
    "horovodrun -np 2 --compression BIT8 python train.py",
    "horovodrun -np 2 --compression mybit8 python registers.py",
    "horovodrun -np 2 --log-level INFO python train.py",
    "horovodrun -np 2 --compression bit8 python hvd.py",
    "horovodrun -np 2 --ddp python hvd.py",
    "horovodrun -np 2 --ddp python ddp.py",
    "horovodrun -np 1 python ddp.py",
    "horovodrun -np 2 python wraps.py",
    "HOROVOD_TEST_GPU=1 HOROVOD_WITH_MPI=1 HOROVOD_CYCLE_TIME=2 horovodrun -np 2 python train.py",
]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with FILES, and jobs without ranks, as if each rank had called hvd.init()."""
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith(("HOROVOD_", "SLURM_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(processes, "adopt_orphans", lambda: None)
    monkeypatch.setattr(processes, "end_descendants", lambda **_: None)
    monkeypatch.setattr(by_agents, "Run", NoRun)
    monkeypatch.setattr(Supervision, "ending", lambda *_: Ending(0))


class NoRun:
    """Replaces the run of a job."""

    def __init__(self, _driver: object, _job: object, supervision: Supervision, *_: object) -> None:
        supervision.take(0, "note uses hvd")

    def exit_code(self) -> int:
        return 0


def typed(line: str, monkeypatch: pytest.MonkeyPatch) -> int:
    words = shlex.split(line)
    at = words.index("horovodrun")
    for assignment in words[:at]:
        monkeypatch.setenv(*assignment.split("=", 1))
    try:
        return launch.main(words[at + 1 :])
    except SystemExit as end:
        return int(end.code or 0)


@pytest.mark.parametrize("typed_and_read", REFUSED, ids=lambda row: row[0])
def test_refused(typed_and_read: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    line, code, *named = typed_and_read
    monkeypatch.setattr(launch, "LaunchError", ZeroDivisionError)  # main would print it, and return 2
    with refused(getattr(errors, code)) as error:
        typed(line, monkeypatch)
    said = str(error.value)
    assert all(name in said for name in named) and len(said.splitlines()) <= MOST_LINES


@pytest.mark.parametrize(("line", "read"), NOT_PARSED)
def test_not_parsed(
    line: str, read: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert typed(line, monkeypatch) == 2
    said = capsys.readouterr().err
    assert read in said
    assert len(said.splitlines()) <= MOST_LINES and "Traceback" not in said


@pytest.mark.parametrize(("line", "read"), WARNED)
def test_warned_of(
    line: str, read: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert typed(line, monkeypatch) == 0
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith("horovodrun: warning: ") and read in said


def test_compression_of_the_other_interface_is_warned_of_before_and_after(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert typed("horovodrun -np 2 --ddp --compression bit8 python hvd.py", monkeypatch) == 0
    before, *others = [line for line in capsys.readouterr().err.splitlines() if "announce" not in line]
    assert before.startswith("horovodrun: warning: --compression under --ddp is about the gradients of ")
    assert before.endswith("hvd.py calls hvd.init(): leave out --ddp")
    assert all("leave out --ddp" in line for line in others)


def test_an_elastic_job_is_not_told_to_take_ddp_which_it_cannot() -> None:
    assert len(mistakes.ddp_warnings({}, ["python", "ddp.py"])) == 1
    assert mistakes.ddp_warnings({"min_np": 1}, ["python", "ddp.py"]) == []


@pytest.mark.parametrize("line", ACCEPTED)
def test_accepted(line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert typed(line, monkeypatch) == 0
    assert capsys.readouterr().err == ""


def named_in_the_tree() -> dict[str, str]:
    """Each HOROVOD_ name of the package's sources -> a file that has it. CMake has its own names."""
    folders = ("horovod", "build_support", "scripts", "deploy", "benchmarks", "examples", ".ci", ".github")
    files = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.is_file()]
    files += [ROOT / name for name in ("setup.py", "Makefile", "Dockerfile")]
    build = (ROOT / "CMakeLists.txt").read_text()
    of_cmake = set(NAME.findall(build)) - set(re.findall(r"\$ENV\{(HOROVOD_\w+)", build))
    found = {}
    for path in files:
        if path.suffix not in (".so", ".pyc", ".png"):
            found |= dict.fromkeys(NAME.findall(path.read_text(errors="replace")), str(path))
    assert len(found) > 80
    return {name: path for name, path in found.items() if name not in of_cmake}


def test_no_variable_is_named_anywhere_without_a_row() -> None:
    """A setting must not be read without a row in the tables, as it would then be reported as unknown."""
    assert not {n: path for n, path in named_in_the_tree().items() if variables.unknown({n: "1"})}


def test_every_variable_of_the_options_is_known() -> None:
    assert variables.unknown(dict.fromkeys(BY_VARIABLE, "1")) == []
    for name in BY_VARIABLE:
        assert sentences.closest(f"{name[:-1]}", variables.KNOWN), name


def test_a_variable_of_the_users_own_is_not_shown() -> None:
    (said,) = variables.unknown({"HOROVOD_PASSWORD": "secret", "OTHER": "1"})
    assert "secret" not in said and "did you mean" not in said


def test_pages_explain_mpirun_as_root() -> None:
    """In every section with a command line that a reader may type."""
    pages = [ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/*.py")]
    found = 0
    for page in pages:
        for section in re.split(r"^#{1,3} ", text_of(str(page)), flags=re.MULTILINE):
            if re.search(r"mpirun -np? \d+ python", section):
                found += 1
                assert "--allow-run-as-root" in section, f"{page}: {section.splitlines()[0]}"
    assert found >= 5


def test_what_is_like_nothing_is_left_alone() -> None:
    for word in ("mine", "signs", "some_rows", "x"):
        assert sentences.did_you_mean(word, compressors.COMPRESSORS) == ""
    assert sentences.closest("cache", ["--cache-capacity", "--verbose"]) == "--cache-capacity"
    assert sentences.closest("stall", ["stall_check", "stall_shutdown"]) == "", "two begin so"


COMPLETED = (
    ("--check", ["--check-build"]),
    ("-np 2 --log-level wa", ["warning"]),
    ("--compression po", ["powersgd"]),
    ("--hostfile sl", []),  # bash continues with files
)


def test_bash_completes_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """bash itself completes files of this folder if the script has no completion."""
    script = tmp_path / "completions"
    script.write_text(command_line.completion("bash"))
    asks = f"source {script}\n" + "".join(
        f"COMP_WORDS=(horovodrun {typed}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); COMPREPLY=()\n"
        "_shtab_horovodrun; echo ${COMPREPLY[*]}\n"
        for typed, _ in COMPLETED
    )
    done = subprocess.run(["bash", "-c", asks], capture_output=True, text=True, check=True)
    assert [line.split() for line in done.stdout.splitlines()] == [words for _, words in COMPLETED]
    assert "complete -o bashdefault" in script.read_text()


def test_completion_needs_shtab(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert typed("horovodrun --print-completion zsh", monkeypatch) == 0
    assert capsys.readouterr().out.startswith("#compdef horovodrun")
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert typed("horovodrun --print-completion zsh", monkeypatch) == 2
    assert capsys.readouterr() == ("", f"horovodrun: {errors.no_completion(shell='zsh')}\n")


def test_a_word_of_the_command_is_no_flag() -> None:
    assert mistakes.with_hyphens("–", FLAGS) == mistakes.with_hyphens("-np", FLAGS) == ""
    assert mistakes.command_warnings(["echo", "5–6", "a–b", "—"]) == []


@pytest.mark.parametrize("name", ["int8_ef", "my_int8", "powersgd_v2"])
def test_a_name_of_the_scripts_own_is_no_slip(name: str) -> None:
    """A module that the script imports may register the name."""
    said, is_certain = compressors.complaint(name)
    assert said and not is_certain and compressors.complaint("bti8")[1]


def test_kubernetes_variables_of_a_service_are_no_slips() -> None:
    given = {"HOROVOD_SERVICE_HOST": "a", "HOROVOD_PORT_22_TCP_ADDR": "b", "HOROVOD_X_SERVICE_PORT_SSH": "c"}
    assert variables.unknown(given) == []
    assert len(variables.unknown({"HOROVOD_COMPRESION": "bit8"})) == 1
