"""horovod.run: calls a function on N ranks from a script or notebook, and returns the ranks' results.

A separate process runs the job: it adopts and ends the processes that ranks leave behind, and handles
signals, which would disturb the caller (a notebook, for example). It unpickles nothing.

    standard input  := length:8  request (JSON)  payload
    descriptor N    := length:8  ending (JSON)   values of the ranks, one after the other

N is its argument. request: {"options": .., "command": [..]}. ending: {"error": .., "row": .., "facts": ..}
if nothing was started, else {"code": .., "message": .., "culprit": .., "values": [[rank, length], ..],
"ends": [[rank, code], ..], "is_elastic": ..}. In an elastic job a worker's number takes the place of a rank.
"""

from __future__ import annotations

import codecs
import inspect
import json
import os
import pickle
import re
import secrets
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import IO, Any, TextIO, TypeAlias

from horovod.common import time_limits
from horovod.common.exceptions import WrongArgument
from horovod.common.options import OPTIONS, Option
from horovod.common.sentences import facts_of
from horovod.runner import errors, function_rank, launch, mistakes, payload, settings
from horovod.runner.elastic.settings import asks_for_elastic, elastic_settings, refuse_alone
from horovod.runner.errors import FunctionFailed, LaunchError
from horovod.runner.processes import end_child, end_with_parent
from horovod.runner.streams import say

_START_JOB = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from horovod.runner.run_function import run_job; run_job(int(sys.argv[2]))"
)
Signed: TypeAlias = tuple[bytes, memoryview]  # kind and body of a result that its rank has signed
_FLAG = re.compile(r"(?<![\w-])(?:-np|-H|--[a-z]+(?:-[a-z]+)*)\b")
_OF_OTHERS = "horovod.common.exceptions.HorovodInternalError"
# Parameters whose names differ from horovodrun's options, and from Horovod's older names.
_OPTION_NAMES = {
    "num_proc": "np",
    "min_num_proc": "min_np",
    "max_num_proc": "max_np",
    "slots": "slots_per_host",
    "cooldown_range": "blacklist_cooldown_range",
}
_PARAMETER_NAMES = {option: parameter for parameter, option in _OPTION_NAMES.items()}
_OLDER = {
    "np": "num_proc",
    "min_np": "min_num_proc",
    "max_np": "max_num_proc",
    "network_interface": "network_interfaces",
}


def run(
    func: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    num_proc: int = 1,
    min_num_proc: int | None = None,
    max_num_proc: int | None = None,
    slots: int | None = None,
    reset_limit: int | None = None,
    cooldown_range: tuple[int, int] | None = None,
    hosts: str | None = None,
    hostfile: str | None = None,
    host_discovery_script: str | None = None,
    start_timeout: int | None = None,
    ssh_port: int | None = None,
    ssh_identity_file: str | None = None,
    disable_cache: bool | None = None,
    output_filename: str | None = None,
    verbose: int | None = None,
    use_gloo: bool | None = None,
    use_mpi: bool | None = None,
    mpi_args: str | None = None,
    network_interface: str | None = None,
    network_interfaces: Sequence[str] | str | None = None,
    executable: str | None = None,
    np: int | None = None,
    min_np: int | None = None,
    max_np: int | None = None,
    ddp: bool | None = None,
    compression: str | None = None,
    compression_force: bool | None = None,
    launcher: str | None = None,
    elastic_timeout: int | None = None,
) -> list[Any]:
    """Call `func(*args, **kwargs)` on `num_proc` ranks; return their results, by rank.

    Function, arguments and results travel by cloudpickle, so lambdas and closures work. Output is shown as by
    horovodrun. Parameters not listed here are horovodrun's flags of the same names.

    With `min_num_proc` or `host_discovery_script` the job is elastic. It returns the results of the last
    membership by last rank, then the earlier results of other workers.

    Args:
        num_proc: number of ranks; in an elastic job 1 means `min_num_proc`.
        executable: the Python that ranks run; default: this one.
        np, min_np, max_np, network_interface: older names of `num_proc`, `min_num_proc`, `max_num_proc`,
            `network_interfaces`.
        ddp: the flag --ddp, for a function that calls torch.distributed.init_process_group() with "gloo" or
            "nccl".
        compression: a text such as "bit8" or "int4:error_feedback=1".
        launcher: "tcp", as the flag --launcher; `use_gloo` is the same. "mpi" and `use_mpi` are refused:
            results come back by agents.
        slots: in an elastic job, slots of a host for which the script gives no number.
        cooldown_range: in an elastic job, seconds until a failed host or slot is used again.
        elastic_timeout: in an elastic job, seconds to wait for workers.

    Raises:
        RuntimeError: a rank failed; names the rank, and has the traceback if the function raised.
        ValueError: parameters contradict each other.
    """
    given = dict(locals())
    _check(given)
    for older, name in _OLDER.items():
        if given[older] is not None:
            warnings.warn(f"{older} is an older name; use {name}", DeprecationWarning, stacklevel=2)
    options = _options(given)
    return run_with_options(options, func, args, kwargs, executable)


def run_with_options(
    options: Mapping[str, Any],
    func: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    executable: str | None = None,
) -> list[Any]:
    """As run(), with horovodrun's options by name, `np` included, as `command_line.parse` returns them."""
    _check_elastic(options)
    call = _pickled(func, tuple(args), dict(kwargs or {}))
    key = secrets.token_bytes(payload.KEY_SIZE)
    command = [executable or sys.executable, function_rank.__file__]
    request = {"options": dict(options), "command": command}
    ending, values = _job(request, payload.packed(key, {"path": sys.path}, call))
    return _results(key, options["np"], ending, values)


def _check_elastic(options: Mapping[str, Any]) -> None:
    try:
        refuse_alone(options, options)
        if asks_for_elastic(options):
            elastic_settings(options)
    except LaunchError as error:
        text, remedy = (_FLAG.sub(_parameter_of, words) for words in (str(error), error.remedy))
        raise WrongArgument(text, code=error.code, facts=error.facts, remedy=remedy) from None


def _parameter_of(flag: re.Match[str]) -> str:
    """Return the parameter of `run` for a flag in an error message; the flag if there is none."""
    names = [option.name for option in OPTIONS if flag[0] in option.flags]
    parameter = _PARAMETER_NAMES.get(names[0], names[0]) if names else ""
    return parameter if parameter in inspect.signature(run).parameters else flag[0]


def _check(given: Mapping[str, Any]) -> None:
    if given["use_gloo"] and given["use_mpi"]:
        raise errors.arguments_exclude(parameters=["use_gloo", "use_mpi"], do="leave both out")
    if given["hosts"] is not None and given["hostfile"] is not None:
        raise errors.arguments_exclude(parameters=["hosts", "hostfile"], do="give one of them")


def _options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return horovodrun's options among the parameters, converted. ValueError names the parameter."""
    both = _by_option_names(given)
    options = {}
    for option in OPTIONS:
        value = both.get(option.name)
        if value is None:
            continue
        try:
            options[option.name] = _converted(option, list(value) if isinstance(value, tuple) else value)
        except ValueError as error:
            parameter = _PARAMETER_NAMES.get(option.name, option.name)
            raise errors.wrong_parameter(**facts_of(error, parameter=parameter)) from None
    return options


def _by_option_names(given: Mapping[str, Any]) -> dict[str, Any]:
    both = {_OPTION_NAMES.get(name, name): value for name, value in given.items() if name not in _OLDER}
    for older, name in _OLDER.items():
        is_unset = name == "num_proc" or given.get(name) is None
        if given.get(older) is not None and is_unset:
            both[_OPTION_NAMES.get(name, name)] = given[older]
    if both.get("np") == 1 and both.get("min_np"):
        both["np"] = both["min_np"]  # 1 is the default
    return both


def _converted(option: Option, value: Any) -> Any:
    if option.words > 1 and isinstance(value, list):
        return [option.convert(one) for one in value]
    return option.convert(bool(value) if option.type == "bool" else value)


def _pickled(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
    import cloudpickle  # type: ignore[import-untyped]

    pickled: bytes = cloudpickle.dumps((func, args, kwargs))
    return pickled


def _job(request: dict[str, Any], contents: bytes) -> tuple[dict[str, Any], dict[int, bytes]]:
    """Run the job in a separate process; return its ending and the values of its ranks."""
    answer, answer_end = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-c", _START_JOB, json.dumps(sys.path), str(answer_end)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        pass_fds=[answer_end],
    )
    os.close(answer_end)
    assert process.stdin is not None and process.stdout is not None and process.stderr is not None
    shown = [
        threading.Thread(target=_show, args=streams, daemon=True)
        for streams in ((process.stdout, sys.stdout), (process.stderr, sys.stderr))
    ]
    for thread in shown:
        thread.start()
    try:
        with open(answer, "rb") as file:
            with suppress(BrokenPipeError), process.stdin:  # its standard error tells why it ended
                write_record(process.stdin, request)
                process.stdin.write(contents)
            ending = read_record(file)
            values = {rank: file.read(length) for rank, length in ending.get("values", ())}
        process.wait()
    finally:  # after an interrupt the job still runs: a terminal interrupts it too, a notebook does not
        end_child(process, time_limits.FUNCTION_END)
        for thread in shown:
            thread.join()
        process.stdout.close()
        process.stderr.close()
    return ending or {"error": f"the job's own process ended with code {process.returncode}"}, values


def _show(stream: IO[bytes], shown_on: TextIO) -> None:
    """Pass output on to Python's own stream, which a notebook or a test may have replaced."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    while data := os.read(stream.fileno(), 1 << 16):
        shown_on.write(decoder.decode(data))
        shown_on.flush()


def _results(key: bytes, ranks: int, ending: Mapping[str, Any], values: Mapping[int, bytes]) -> list[Any]:
    """Return the results by rank; of an elastic job by last ranks, as others have done a lost worker's work.

    FunctionFailed if the job did not start, failed, or lacks a result.
    """
    if "error" in ending:
        known = {"code": ending.get("row", ""), "remedy": ending.get("remedy", "")}
        raise FunctionFailed(ending["error"], facts=ending.get("facts"), **known)
    is_elastic = ending.get("is_elastic", False)  # by options and the variables of the job's process
    signed = _signed(key, values)
    if ending["code"] != 0:
        raise (_explained_elastic if is_elastic else _explained)(ending, signed)
    ended = [number for number, code in ending["ends"] if code == 0] if is_elastic else range(ranks)
    if (number := next((number for number in ended if number not in signed), None)) is not None:
        why = "sent a result that it did not sign" if number in values else "ended without returning"
        raise errors.no_result(who="worker" if is_elastic else "rank", number=number, why=why)
    bodies = _by_last_ranks(signed.values()) if is_elastic else [signed[rank][1] for rank in ended]
    return list(map(pickle.loads, bodies))


def _signed(key: bytes, values: Mapping[int, bytes]) -> dict[int, Signed]:
    verified = {number: payload.verified(key, number, value) for number, value in values.items()}
    return {number: result for number, result in verified.items() if result is not None}


def _by_last_ranks(signed: Iterable[Signed]) -> list[memoryview]:
    """Return the values of workers: first of the last membership, then of earlier ones."""
    returned = [(payload.PLACE.unpack_from(body), body) for kind, body in signed if kind == payload.RETURNED]
    returned.sort(key=lambda each: (-each[0][0], each[0][1]))
    return [body[payload.PLACE.size :] for _, body in returned]


def _explained_elastic(ending: Mapping[str, Any], signed: Mapping[int, Signed]) -> FunctionFailed:
    """The driver's sentence, with the last traceback; an exception caused by another rank counts last."""
    raised = []
    for kind, body in signed.values():
        if kind == payload.RAISED:
            told = json.loads(bytes(body[payload.PLACE.size :]))
            raised.append((payload.PLACE.unpack_from(body)[1], told))
    end = {"exit_code": ending["code"], "why": ending["message"]}
    if not raised:
        return errors.elastic_failed(**end)
    causes = [one for one in raised if _is_cause(*one)]
    rank, told = (causes or raised)[-1]
    return errors.elastic_raised(**end, **{**told, "ranks": [rank]})


def _explained(ending: Mapping[str, Any], signed: Mapping[int, Signed]) -> FunctionFailed:
    """The error about the first rank that raised, unless another rank was killed."""
    bodies = {rank: body for rank, (kind, body) in signed.items() if kind == payload.RAISED}
    raised = {rank: json.loads(bytes(body)) for rank, body in bodies.items()}
    end, culprit = {"exit_code": ending["code"]}, ending["culprit"]
    if not raised or (culprit is not None and culprit not in raised):
        return errors.rank_lost(**end, why=ending["message"], ranks=[] if culprit is None else [culprit])
    # A rank that loses another one raises too, and its report may arrive first.
    causes = [rank for rank, told in raised.items() if _is_cause(rank, told)]
    first = (causes or list(raised))[0]
    told = raised.pop(first)
    also = f" (rank {', '.join(map(str, raised))} raised too)" if raised else ""
    return errors.rank_raised(**end, **{**told, "ranks": [first]}, also=also, others=list(raised))


def _is_cause(rank: int, told: Mapping[str, Any]) -> bool:
    """False if another rank caused the exception: it is Horovod's or gloo's, and not about this rank."""
    return not (told["follows"] or _OF_OTHERS in told["bases"]) or rank in told["ranks"]


# The functions below run in the job's process.


def run_job(descriptor: int) -> None:
    end_with_parent(signal.SIGTERM)
    with open(descriptor, "wb") as answer:
        try:
            _start(read_record(sys.stdin.buffer), sys.stdin.buffer.read(), answer)
        except LaunchError as error:
            known = {"row": error.code, "facts": error.facts, "remedy": error.remedy}
            write_record(answer, {"error": str(error), **known})
        except KeyboardInterrupt:
            write_record(answer, {"error": "stopped by SIGINT before any rank started"})


def _start(request: dict[str, Any], payload: bytes, answer: IO[bytes]) -> None:
    warnings = settings.environment_warnings(os.environ) + mistakes.variable_warnings(os.environ)
    values = settings.merged({**request["options"], "quiet": True}, {}, os.environ)
    for warning in warnings:
        say(f"warning: {warning}")
    ending = launch.start(values, request["command"], os.environ, payload)
    lengths = [(rank, len(value)) for rank, value in ending.values.items()]
    told = {"code": ending.code, "message": ending.message, "culprit": ending.culprit, "values": lengths}
    told |= {"ends": list(ending.ends.items()), "is_elastic": asks_for_elastic(values)}
    write_record(answer, told)
    for value in ending.values.values():
        answer.write(value)


def write_record(file: IO[bytes], record: dict[str, Any]) -> None:
    text = json.dumps(record, default=str).encode()
    file.write(len(text).to_bytes(8, "big") + text)


def read_record(file: IO[bytes]) -> dict[str, Any]:
    """Return the next record; {} at the end of the file."""
    length = int.from_bytes(file.read(8), "big")
    record: dict[str, Any] = json.loads(file.read(length) or "{}")
    return record
