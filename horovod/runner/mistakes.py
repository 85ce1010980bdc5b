"""Common mistakes on the command line, each with a message before anything starts."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from horovod.common import variables
from horovod.common.compressors import complaint
from horovod.common.sentences import did_you_mean
from horovod.runner import errors
from horovod.runner.elastic.settings import asks_for_elastic
from horovod.runner.errors import flag_of
from horovod.runner.script import script_of
from horovod.runner.settings import COMPRESSIONS

USAGE = "horovodrun -np N [options] COMMAND [ARGUMENT ...]"

# Hyphens, dashes and minus signs by which books and word processors replace hyphens.
_DASHES = "\u2010\u2011\u2012\u2013\u2014\u2015\u2212\ufe58\ufe63\uff0d"
_DASHED = re.compile(rf"[{_DASHES}]+-?([A-Za-z].*)", re.DOTALL)
# Options of mpirun, torchrun and Slurm -> horovodrun's equivalent.
_ELSEWHERE = {
    **dict.fromkeys(("--nproc_per_node", "--nproc-per-node"), "-np N, the number of ranks of all hosts"),
    **dict.fromkeys(("--nnodes", "-N", "--npernode", "-ppn"), "-H host1:2,host2:2, hosts with their slots"),
    **dict.fromkeys(("--host", "-host", "--hostlist", "--hosts_string"), "-H host1:2,host2:2"),
    **dict.fromkeys(("-machinefile", "--machinefile"), "--hostfile FILE"),
    **dict.fromkeys(
        ("--rdzv_endpoint", "--rdzv-endpoint", "--node_rank", "--node-rank"), "-H host1:2,host2:2"
    ),
    **dict.fromkeys(("--bind-to", "--map-by", "--rank-by", "--mca"), '--mpi-args="{} ..."'),
    **dict.fromkeys(("--allow-run-as-root", "--oversubscribe"), "nothing: it is so anyway"),
    "-x": "nothing: ranks get the environment as it is",
}
# Option -> the option that it requires, and its effect.
_NEEDS = {
    "topology_file": ("topology", "says where --topology draws"),
    "tune_launch_steps": ("tune_launch", "says how many steps each job of --tune-launch makes"),
    **dict.fromkeys(("master_addr", "master_port"), ("ddp", "says where the ranks of --ddp meet")),
}
_REGISTERS = b"Compression.register("


def explained_flag(flag: str, known: Iterable[str]) -> str:
    name = flag.partition("=")[0]
    if name in _ELSEWHERE:
        return f"unrecognized option {name}: horovodrun has {_ELSEWHERE[name].format(name)}"
    hint = did_you_mean(name, known)
    return f"unrecognized option {name}{hint or '; `horovodrun --help` lists all'}"


def with_hyphens(word: str, known: Iterable[str]) -> str:
    """Return the flag with proper hyphens if it begins with a typographic dash; else ""."""
    match = _DASHED.fullmatch(word)
    if match is None:
        return ""
    short = f"-{match[1]}"
    return short if short.partition("=")[0] in set(known) else f"-{short}"


def check_command(command: Sequence[str], flags: Iterable[str], knows_ranks: bool) -> None:
    """LaunchError if the command cannot be one, or contains options of horovodrun that are missing."""
    if not command:
        raise errors.no_command(usage=USAGE)
    first = command[0]
    if first.isdigit() and len(command) > 1 and not knows_ranks:
        raise errors.number_for_command(command=first, meant=shlex.join(command))
    if first.endswith(".py") and shutil.which(first) is None:
        meant = shlex.join(["python", *command])
        raise errors.script_for_command(command=first, meant=meant)
    misplaced = [word for word in command if word in set(flags)]
    if not knows_ranks and misplaced:
        raise errors.misplaced_options(options=misplaced, usage=USAGE)


def refuse_without_other(given: Mapping[str, Any], values: Mapping[str, Any]) -> None:
    """LaunchError for a flag that has no meaning without another one."""
    for name, (other, about) in _NEEDS.items():
        if name in given and not values.get(other):
            raise errors.alone(option=flag_of(name), about=about, other=flag_of(other))


def command_warnings(command: Sequence[str]) -> list[str]:
    """Return a sentence for each argument of the command that looks like a flag with a typographic dash."""
    return [
        f"the argument {word} of the command begins with a dash (U+{ord(word[0]):04X}) that is no hyphen; if "
        f"it is a flag, type {with_hyphens(word, ())}"
        for word in command[1:]
        if _DASHED.fullmatch(word)
    ]


def variable_warnings(environment: Mapping[str, str]) -> list[str]:
    return [f"{sentence} (docs/configuration.md lists all)" for sentence in variables.unknown(environment)]


def compression_warnings(
    values: Mapping[str, Any], environment: Mapping[str, str], command: Sequence[str]
) -> list[str]:
    """Return warnings about compressors that only the script may know. LaunchError for a certain mistake.

    A script may register compressors; then its names are not checked.
    """
    given = values.get("compression")
    texts = (
        {name: environment.get(name, "") for name in COMPRESSIONS}
        if given is None
        else {"--compression": given}
    )
    warnings = []
    for name, text in texts.items():
        said, is_certain = complaint(text) if text.strip() else ("", True)
        if said and not any(map(_registers, command)):
            if is_certain:
                raise errors.wrong_value(option=name, value=text, why=said)
            warnings.append(f"{name} {text}: {said}, and what the script registers")
    return warnings


def ddp_warnings(values: Mapping[str, Any], command: Sequence[str]) -> list[str]:
    """Return a sentence if --ddp is missing for a torch.distributed script, or wrong for a Horovod script."""
    script = script_of(command)
    if script is None or asks_for_elastic(values):
        return []
    compresses = values.get("compression", "none") != "none"
    if values.get("ddp"):
        about = "--compression under --ddp is about the gradients of DistributedDataParallel"
        said = f"{about}, and {script.name} calls hvd.init(): leave out --ddp"
        return [said] if script.is_for_hvd and compresses else []
    if not (script.needs_variables or (compresses and script.is_for_torch)) or values.get("np") == 1:
        return []
    what = "makes a process group" if script.needs_variables else "wraps a model in DistributedDataParallel"
    return [f"{script.name} {what}: if this script uses torch.distributed, add --ddp"]


def _registers(word: str) -> bool:
    """Whether the word is a file that registers a compressor."""
    if not word.endswith(".py") or not os.path.isfile(word):
        return False
    try:
        return _REGISTERS in Path(word).read_bytes()
    except OSError:
        return False
