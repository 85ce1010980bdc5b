"""A look at a job's script before the start: the library that starts its ranks.

A script may import its functions from elsewhere, or never run the code that is found. So the results serve
warnings, and the choice of mpirun (mpi4py).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_PYTHON = re.compile(r"(.*/)?python[\d.]*")
_MPI4PY = re.compile(r"^[ \t]*(?:import|from)[ \t]+mpi4py\b", re.MULTILINE)
_WITH_VALUE = ("-X", "-W", "--check-hash-based-pycs")  # options of Python whose value is a separate word
_HVD, _DDP = "horovod.torch", "horovod.torch.ddp"
_INIT_GROUP, _WRAPPER = "init_process_group", "DistributedDataParallel"
# Signs that ranks of torch.distributed meet without the variables of --ddp: in a call, and in the text.
_OWN_PLACE = {"init_method", "store", "rank"}
_OWN_MEANS = re.compile(
    r"OMPI_COMM_WORLD|PMI_RANK|SLURM_PROCID|mpi4py|\bspawn\b|putenv"
    r"|(?:setdefault\(|environ\[)\s*[\"'](?:MASTER_ADDR|RANK)[\"']\s*(?:,|\]\s*=[^=])"
)
# Signs that torch.distributed reduces gradients, or that the script starts such a script.
_OF_TORCH = re.compile(rf"{_WRAPPER}|{_INIT_GROUP}|fully_shard|\bDDP\b|\bddp\b|FSDP|Accelerator|Trainer\(")


@dataclass(frozen=True)
class Script:
    """A script's behaviour, as far as its own text shows."""

    name: str
    is_for_hvd: bool = False  # it calls hvd.init(), and names nothing of torch.distributed
    # It makes a process group or wraps a model in DDP, and imports nothing of horovod but horovod.torch.ddp.
    is_for_torch: bool = False
    needs_variables: bool = False  # its process group is made with the variables that --ddp sets


def script_of(command: Sequence[str]) -> Script | None:
    """Return the script that a command runs with Python; None if there is none or it is unreadable."""
    name = _name(command)
    try:
        return _seen(name, Path(name).read_text(encoding="utf-8")) if name else None
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
        return None  # Python reports the error


def imports_mpi4py(command: Sequence[str]) -> str:
    """Return the script of a Python command, or "the code after -c", if it imports mpi4py; else ""."""
    name = _name(command)
    if not name and "-c" in command and _PYTHON.fullmatch(command[0]):
        code = command[command.index("-c") + 1 :][:1]
        return "the code after -c" if code and _MPI4PY.search(code[0].replace(";", "\n")) else ""
    try:
        return name if name and _MPI4PY.search(Path(name).read_text(encoding="utf-8")) else ""
    except (OSError, ValueError):
        return ""  # Python reports the error


def _seen(name: str, text: str) -> Script:
    """Analyse a script's text. SyntaxError and the like if it is not Python."""
    tree = ast.parse(text)
    names = _imported(tree)
    of_horovod = {each for each in names.values() if each.split(".")[0] == "horovod"}
    calls = [(_called(node.func, names), node) for node in ast.walk(tree) if isinstance(node, ast.Call)]
    groups = [call for called, call in calls if called.endswith(_INIT_GROUP)]
    wraps = any(called.endswith(_WRAPPER) for called, _ in calls)
    calls_init = f"{_HVD}.init" in {called for called, _ in calls}
    is_for_torch = bool(groups or wraps) and all(each.startswith(_DDP) for each in of_horovod)
    needs = is_for_torch and any(map(_has_no_place, groups)) and not _OWN_MEANS.search(text)
    return Script(name, calls_init and not _OF_TORCH.search(text), is_for_torch, needs)


def _name(command: Sequence[str]) -> str:
    """Return the script's file name as the command has it; "" for another command."""
    words = iter(command)
    for word in words:
        if word.endswith(".py"):
            return word if word == command[0] else ""
        if _PYTHON.fullmatch(word):
            break
    for word in words:
        if word in _WITH_VALUE:
            next(words, "")
        elif not word.startswith("-") or word in ("-", "-c", "-m"):
            return word if word.endswith(".py") else ""
    return ""


def _imported(tree: ast.AST) -> dict[str, str]:
    """Return name in the script -> dotted name of the imported thing."""
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                found[alias.asname or alias.name] = alias.name
        elif isinstance(node, ast.ImportFrom) and not node.level:
            for alias in node.names:
                found[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return found


def _called(function: ast.expr, names: dict[str, str]) -> str:
    """Return the called function's dotted name, modules unabbreviated; "" if it has none."""
    parts: list[str] = []
    while isinstance(function, ast.Attribute):
        parts.insert(0, function.attr)
        function = function.value
    if not isinstance(function, ast.Name):
        return ".".join(parts)
    parts.insert(0, function.id)
    for end in range(len(parts), 0, -1):
        if (known := ".".join(parts[:end])) in names:
            return ".".join([names[known], *parts[end:]])
    return ".".join(parts)


def _has_no_place(call: ast.Call) -> bool:
    """Whether init_process_group() gets no meeting place as an argument, so that it reads the variables."""
    given = {word.arg: word.value for word in call.keywords}
    if len(call.args) > 1:
        given["init_method"] = call.args[1]
    backend = call.args[0] if call.args else given.get("backend")
    if isinstance(backend, ast.Constant) and backend.value == "mpi":
        return False
    method = given.pop("init_method", None)
    by_variables = method is None or (isinstance(method, ast.Constant) and method.value in (None, "env://"))
    return by_variables and not (_OWN_PLACE & given.keys() or None in given)
