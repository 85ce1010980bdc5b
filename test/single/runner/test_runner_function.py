"""horovod.run without a job: its parameters, and the transport of functions and results."""

# private: _called, _called_in_elastic_job, _check_elastic, _job: a step of a run, without a job
# private: _options, _results: a step of a run, without a job

import contextlib
import hmac
import io
import json
import os
import pickle
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from refusals import refused

import horovod
import horovod.runner
from horovod.common import agent_channel
from horovod.common.agent_messages import Place
from horovod.common.errors import Removed
from horovod.common.exceptions import HorovodInternalError, LostRank, WrongArgument
from horovod.runner import errors, function_rank, launch, launchers, payload, processes, run_function
from horovod.runner.agents import places
from horovod.runner.agents.supervision import Ending
from horovod.runner.errors import FunctionFailed

KEY = bytes(range(32))
DONE = {"code": 0, "message": "", "culprit": None}


def nothing() -> None:
    """The function, which is never called here."""


def test_the_names() -> None:
    assert horovod.run is run_function.run and horovod.runner.run is run_function.run
    with pytest.raises(AttributeError, match="no attribute 'runs'"):
        horovod.runs  # noqa: B018 -- it is the access that raises


def test_importing_horovod_is_cheap() -> None:
    code = (
        "import sys, horovod; print({'torch', 'yaml', 'psutil', 'numpy', 'cloudpickle'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_no_module_of_the_launcher_hides_one_of_python() -> None:
    folder = Path(run_function.__file__).parent
    assert not {path.stem for path in folder.glob("*.py")} & set(sys.stdlib_module_names)


BY_SCRIPT = {"host_discovery_script": "x"}


@pytest.mark.parametrize(
    ("parameters", "code", "named"),
    [
        ({"hosts": "a:1", "hostfile": "f"}, "arguments_exclude", "hosts and hostfile"),
        ({"use_gloo": True, "use_mpi": True}, "arguments_exclude", "use_gloo and use_mpi"),
        ({"num_proc": 0}, "wrong_parameter", "num_proc: 0"),
        ({"num_proc": "two"}, "wrong_parameter", "num_proc: 'two'"),
        ({"start_timeout": -1}, "wrong_parameter", "start_timeout: -1"),
        ({"ssh_port": "x"}, "wrong_parameter", "ssh_port: 'x'"),
        ({"compression": "bit8,int4"}, "wrong_parameter", "compression: 'bit8,int4'"),
        ({"min_num_proc": 0}, "wrong_parameter", "min_num_proc: 0"),
        ({"num_proc": 2, "min_num_proc": 3}, "min_np_above", "min_num_proc 3 is above num_proc 2; lower"),
        ({"max_num_proc": 4}, "only_elastic", "max_num_proc; give host_discovery_script"),
        ({"elastic_timeout": 9}, "only_elastic", "elastic_timeout; "),
        ({"slots": 2}, "only_elastic", "slots; "),
        ({"cooldown_range": (1, 2)}, "only_elastic", "cooldown_range; "),
        ({**BY_SCRIPT, "cooldown_range": (2, 1)}, "wrong_value", "cooldown_range 2 1: "),
        ({**BY_SCRIPT, "ddp": True}, "ddp_not_elastic", "ddp: "),
    ],
)
def test_wrong_parameters_are_refused(parameters: dict[str, Any], code: str, named: str) -> None:
    """The error names parameters; horovodrun's error names flags."""
    with refused(WrongArgument, code) as error:
        horovod.run(nothing, **parameters)
    assert named in str(error.value) and "--" not in str(error.value)


def test_parameters_become_options() -> None:
    given = dict(
        np=3,
        hosts="a:1,b:2",
        hostfile=None,
        ssh_port=23,
        verbose=2,
        disable_cache=False,
        network_interfaces=("eth0", "eth1"),
        network_interface=None,
        output_filename="logs",
        mpi_args="--x",
        start_timeout=None,
        compression="int4:error_feedback=1",
        compression_force=True,
    )
    assert run_function._options(given) == {
        "np": 3,
        "hosts": "a:1,b:2",
        "ssh_port": 23,
        "verbose": True,
        "disable_cache": False,
        "network_interfaces": ["eth0", "eth1"],
        "output_filename": "logs",
        "mpi_args": "--x",
        "compression": "int4:error_feedback=1",
        "compression_force": True,
    }
    older = {"network_interfaces": None, "network_interface": "eth0,eth1"}
    assert run_function._options(older) == {"network_interfaces": ["eth0", "eth1"]}


def signed(rank: int, kind: bytes, body: bytes, key: bytes = KEY) -> bytes:
    return payload.signature(key, rank, kind, body) + kind + body


class Trap:
    """Unpickling it fails the test."""

    def __reduce__(self) -> Any:
        return (pytest.fail, ("an unsigned result was unpickled",))


def results(*values: bytes) -> list[Any]:
    return run_function._results(KEY, len(values), DONE, dict(enumerate(values)))


def test_results_by_rank() -> None:
    values = [signed(rank, payload.RETURNED, pickle.dumps(rank * 10)) for rank in range(3)]
    assert results(*values) == [0, 10, 20]


@pytest.mark.parametrize(
    "forged",
    [
        b"",
        b"R",
        pickle.dumps(Trap()),
        bytes(32) + b"R" + pickle.dumps(Trap()),
        signed(0, b"R", pickle.dumps(Trap()), key=bytes(32)),  # another key
        signed(1, b"R", pickle.dumps(Trap())),  # another rank's
        signed(0, b"E", pickle.dumps(Trap()))[:32] + b"R" + pickle.dumps(Trap()),  # another kind
        signed(0, b"X", pickle.dumps(Trap())),
        signed(0, b"R", pickle.dumps(Trap())) + b"x",
    ],
)
def test_what_is_not_signed_is_not_unpickled(forged: bytes) -> None:
    with refused(errors.no_result, who="rank", number=0, why="sent a result that it did not sign"):
        results(forged)


def test_a_rank_that_returned_nothing_is_named() -> None:
    one = {0: signed(0, payload.RETURNED, pickle.dumps(1))}
    with refused(errors.no_result, who="rank", number=1, why="ended without returning"):
        run_function._results(KEY, 2, DONE, one)


class OfTheUser(HorovodInternalError):
    """A subclass of a script."""


class NotHorovodInternalError(Exception):
    """Only its name resembles that of an error caused by other ranks."""


RAISED: list[Exception] = []


def told_of(error: Exception) -> dict[str, Any]:
    """The message of a rank whose function raises this."""
    RAISED[:] = [error]
    return dict(called(raise_it)[1])


def raise_it() -> None:
    raise RAISED[0]


def after(cause: Exception, error: Exception) -> Exception:
    error.__cause__ = cause
    return error


LOST = LostRank.says("lost {ranks:ranks}")
CONSEQUENCES = [
    HorovodInternalError("peer gone"),
    LOST(ranks=[2]),
    OfTheUser("peer gone"),
    RuntimeError("[gloo/transport/tcp/pair.cc] Connection closed by peer"),
    after(LOST(ranks=[2]), RuntimeError("the epoch failed")),
    after(after(HorovodInternalError("peer gone"), OSError("once")), ValueError("twice")),
]
CAUSES = [
    KeyError("k"),
    NotHorovodInternalError("mine"),
    LOST(ranks=[1]),  # it is about the rank that raised it
    after(KeyError("k"), RuntimeError("more")),
]


@pytest.mark.parametrize("is_elastic", [False, True])
def test_the_rank_whose_exception_comes_of_no_other_is_blamed(is_elastic: bool) -> None:
    """By the exceptions' classes, in any order; else the first one, or in an elastic job the last."""

    def failure(*told: tuple[int, Exception]) -> Exception:
        values = {}
        for rank, error in told:
            place = payload.PLACE.pack(1, rank) if is_elastic else b""
            values[rank] = signed(rank, payload.RAISED, place + json.dumps(told_of(error)).encode())
        end = {"code": 1, "message": "it failed", "culprit": told[0][0]}
        with pytest.raises(FunctionFailed) as caught:
            run_function._results(KEY, 3, {**end, "is_elastic": is_elastic}, values)
        return caught.value

    for consequence in CONSEQUENCES:
        for cause in CAUSES:
            for told in ([(0, consequence), (1, cause)], [(1, cause), (0, consequence)]):
                error = failure(*told)
                assert error.ranks == (1,), (consequence, cause)
                assert error.facts["message"] == str(cause) and error.facts["exit_code"] == 1
    error = failure((2, KeyError("one")), (0, KeyError("two")))
    assert error.ranks == ((0,) if is_elastic else (2,))
    error = failure((0, LOST(ranks=[2])), (1, LOST(ranks=[2])))
    assert (error.ranks, error.facts["type"]) == ((int(is_elastic),), "horovod.common.exceptions.LostRank")
    assert error.facts["traceback"] in str(error)
    assert "the job failed with exit code 1: " in str(error)
    assert error.code == ("elastic_raised" if is_elastic else "rank_raised")
    assert pickle.loads(pickle.dumps(error)).facts == error.facts


def test_the_others_that_raised_are_named() -> None:
    ending = {"code": 1, "message": "", "culprit": 0}
    bodies = {rank: json.dumps(told_of(KeyError(rank))).encode() for rank in (2, 0, 1)}
    values = {rank: signed(rank, payload.RAISED, body) for rank, body in bodies.items()}
    with refused(errors.rank_raised, ranks=(2,), others=[0, 1], message="2"):
        run_function._results(KEY, 3, ending, values)


def test_a_rank_that_was_killed_is_blamed_before_those_that_raised() -> None:
    ending = {"code": 137, "message": "rank 1 on host h was killed", "culprit": 1}
    one = {0: signed(0, payload.RAISED, json.dumps(told_of(LOST(ranks=[1]))).encode())}
    with refused(errors.rank_lost, ranks=(1,), exit_code=137, why=ending["message"]):
        run_function._results(KEY, 2, ending, one)


def test_a_job_that_did_not_start_has_the_facts_of_why() -> None:
    why = errors.too_few_slots(np=3, slots=2, hosts="a:2", how="")
    ending = {"error": str(why), "row": why.code, "facts": why.facts}
    with refused(FunctionFailed, why.code, **why.facts) as error:
        run_function._results(KEY, 2, ending, {})
    assert str(error.value) == str(why)


def test_a_payload_is_private_and_goes_away() -> None:
    name = payload.fresh_name()
    contents = payload.packed(KEY, {"path": ["/x"]}, b"function")
    with payload.stored(name, contents) as path, payload.stored(name, contents):  # as hosts of one machine
        assert path.stat().st_mode & 0o077 == 0 and path.parent.stat().st_mode & 0o077 == 0
        key, header, function = payload.unpacked(payload.found(name))
        assert (key, header, bytes(function)) == (KEY, {"path": ["/x"]}, b"function")
    assert not path.parent.exists()
    with pytest.raises(FileNotFoundError, match=name):
        payload.found(name)


def test_somebody_elses_payload_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "name").mkdir(mode=0o755)
    (tmp_path / "name").chmod(0o755)
    (tmp_path / "name" / "payload").write_bytes(b"x")
    for attempt in (lambda: payload.found("name"), lambda: payload.stored("name", b"y").__enter__()):
        with pytest.raises(PermissionError, match="no folder that only this user can enter"):
            attempt()
    (tmp_path / "link").symlink_to(tmp_path / "name")
    with pytest.raises(PermissionError):
        payload.found("link")


def test_the_signature_is_hmac_sha256() -> None:
    expected = hmac.new(KEY, (5).to_bytes(8, "big") + b"R" + b"body", "sha256").digest()
    assert payload.signature(KEY, 5, b"R", b"body") == expected
    assert len(os.urandom(32)) == payload.KEY_SIZE


class Asked:
    """Replaces the job's process: its request, and the values of the ranks that it returns."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.request: dict[str, Any] = {}
        self.header: dict[str, Any] = {}
        monkeypatch.setattr(run_function, "_job", self)

    def __call__(self, request: dict[str, Any], contents: bytes) -> tuple[dict[str, Any], dict[int, bytes]]:
        self.request = request
        key, self.header, function = payload.unpacked(contents)
        call, args, kwargs = pickle.loads(function)
        body = pickle.dumps(call(*args, **kwargs))
        values = {rank: signed(rank, payload.RETURNED, body, key) for rank in range(request["options"]["np"])}
        return DONE, values


def test_a_function_travels_with_its_arguments_and_this_pythons_path(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked(monkeypatch)
    said = horovod.run(lambda *args, **kwargs: (args, kwargs), (1, "b"), {"c": [3]}, num_proc=2, hosts="a:2")
    assert said == [((1, "b"), {"c": [3]})] * 2
    assert asked.request == {
        "options": {"np": 2, "hosts": "a:2"},
        "command": [sys.executable, function_rank.__file__],
    }
    assert asked.header == {"path": sys.path}
    assert horovod.run(lambda: 1, executable="/other/python") == [1]
    assert asked.request["command"][0] == "/other/python"
    assert asked.request["options"] == {"np": 1}


@pytest.mark.parametrize(
    ("older", "name", "options"),
    [
        ({"np": 3, "num_proc": 2}, "np is an older name; use num_proc", {"np": 3}),
        (
            {"network_interface": "eth0"},
            "network_interface is an older name; use network_interfaces",
            {"np": 1, "network_interfaces": ["eth0"]},
        ),
    ],
)
def test_older_names_are_served_and_said_where_they_were_written(
    monkeypatch: pytest.MonkeyPatch, older: dict[str, Any], name: str, options: dict[str, Any]
) -> None:
    asked = Asked(monkeypatch)
    with pytest.warns(DeprecationWarning, match=f"^{name}$") as warned:
        horovod.run(nothing, **older)
    assert [warning.filename for warning in warned] == [__file__]
    assert asked.request["options"] == options


def answering(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    """Make the job's process run this code, with the file `answer` to write, `request` and `rest`."""
    begin = """
import json, os, sys; sys.path[:] = json.loads(sys.argv[1]); answer = open(int(sys.argv[2]), "wb")
from horovod.runner.run_function import read_record, write_record
request = read_record(sys.stdin.buffer); rest = sys.stdin.buffer.read()
"""
    monkeypatch.setattr(run_function, "_START_JOB", begin + code)


def test_the_jobs_own_process_is_asked_and_its_words_are_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answering(
        monkeypatch,
        """
print("out: \\u00e9", flush=True); os.write(2, b"err: \\xff")
write_record(answer, {"code": 0, "asked": request, "values": [[1, 3], [0, len(rest)]]})
answer.write(b"one" + rest)
""",
    )
    ending, values = run_function._job({"a": ["b"]}, b"contents")
    assert (ending["code"], ending["asked"]) == (0, {"a": ["b"]})
    assert values == {1: b"one", 0: b"contents"}
    assert capsys.readouterr() == ("out: \u00e9\n", "err: \ufffd")


def test_a_job_whose_own_process_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, "sys.exit(7)")
    assert run_function._job({}, b"") == ({"error": "the job's own process ended with code 7"}, {})
    monkeypatch.setattr(run_function, "_START_JOB", "import sys; sys.stdin.close(); sys.exit(3)")
    assert run_function._job({}, bytes(1 << 20))[0]["error"].endswith("ended with code 3")  # it is not read


def test_an_interrupt_ends_the_jobs_own_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    told = tmp_path / "told"
    answering(
        monkeypatch,
        f"""
import signal, time, pathlib
signal.signal(signal.SIGTERM, lambda *_: (pathlib.Path({str(told)!r}).touch(), sys.exit(1)))
write_record(answer, {{"code": 0}}); answer.close()
time.sleep(60)
""",
    )

    read_record = run_function.read_record

    def interrupted(file: Any) -> dict[str, Any]:
        assert read_record(file) == {"code": 0}
        raise KeyboardInterrupt

    monkeypatch.setattr(run_function, "read_record", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_function._job({}, b"")
    assert told.exists()


def test_what_does_not_end_when_told_to_is_killed() -> None:
    stubborn = ["sh", "-c", "trap '' TERM; echo; sleep 60"]
    with subprocess.Popen(stubborn, stdout=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdout is not None and process.stdout.readline() == b"\n"
        processes.end_child(process, 0.05)
        assert process.returncode == -signal.SIGKILL
        processes.end_child(process, 0.05)  # which has ended
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # what it had started


class Job:
    """run_function.run_job on pipes, with `start` instead of the launcher."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, start: Callable[..., Any]) -> None:
        self._patch = monkeypatch
        monkeypatch.setattr(run_function.launch, "start", start)
        monkeypatch.setattr(run_function, "end_with_parent", lambda number: None)

    def answer(self, request: dict[str, Any], contents: bytes = b"") -> tuple[dict[str, Any], bytes]:
        asked = io.BytesIO()
        run_function.write_record(asked, request)
        asked.write(contents)
        asked.seek(0)
        self._patch.setattr(sys, "stdin", SimpleNamespace(buffer=asked))
        reader, writer = os.pipe()
        run_function.run_job(writer)
        with open(reader, "rb") as file:
            return run_function.read_record(file), file.read()


def test_the_jobs_own_process_starts_what_it_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    started: list[Any] = []

    def start(*what: Any) -> Ending:
        started.append(what)
        values = {1: b"one", 0: bytearray(b"zero")}
        return Ending(3, "words", 1, values, ends={1: 3, 0: 137})

    monkeypatch.setenv("HOROVOD_COMPRESION", "bit8")
    job = Job(monkeypatch, start)
    request = {"options": {"np": 2, "start_timeout": 5}, "command": ["python", "rank.py"]}
    told = {"code": 3, "message": "words", "culprit": 1, "values": [[1, 3], [0, 4]]}
    told |= {"ends": [[1, 3], [0, 137]], "is_elastic": False}
    assert job.answer(request, b"contents") == (told, b"onezero")
    ((values, command, environment, contents),) = started
    assert (values["np"], values["start_timeout"]) == (2, 5)
    assert (command, contents, environment) == (["python", "rank.py"], b"contents", os.environ)
    assert "did you mean HOROVOD_COMPRESSION?" in capsys.readouterr().err


@pytest.mark.parametrize(("more", "is_elastic"), [({}, False), ({"min_np": 1, "hosts": "a:1,b:1"}, True)])
def test_results_are_read_as_the_job_was_run(
    monkeypatch: pytest.MonkeyPatch, more: dict[str, Any], is_elastic: bool
) -> None:
    """HOROVOD_ELASTIC_RESTART, set for torchrun, does not change a job's parameters."""
    monkeypatch.setenv("HOROVOD_ELASTIC_RESTART", "1")
    started: list[Any] = []

    def start(values: Any, *_: Any) -> Ending:
        started.append(values)
        body = (payload.PLACE.pack(1, 0) if is_elastic else b"") + pickle.dumps("it")
        return Ending(0, "", None, {0: signed(0, payload.RETURNED, body)}, ends={0: 0})

    job = Job(monkeypatch, start)

    def here(request: dict[str, Any], contents: bytes) -> tuple[dict[str, Any], dict[int, bytes]]:
        ending, data = job.answer(request, contents)
        return ending, {0: data}

    monkeypatch.setattr(run_function, "_job", here)
    monkeypatch.setattr(run_function.secrets, "token_bytes", lambda size: KEY[:size])
    assert run_function.run_with_options({"np": 1, **more}, nothing) == ["it"]
    assert started[0].get("elastic_restart", False) == is_elastic


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (errors.no_hosts_found(why="x"), {"row": "no_hosts_found", "facts": {"why": "x"}, "remedy": ""}),
        (
            errors.no_text(why="x", value=b"?"),
            {"row": "no_text", "facts": {"why": "x", "value": "b'?'"}, "remedy": ""},
        ),
        (KeyboardInterrupt("stopped by SIGINT before any rank started"), {}),
    ],
)
def test_a_job_that_does_not_start_says_why(
    monkeypatch: pytest.MonkeyPatch, error: BaseException, told: dict[str, Any]
) -> None:
    def start(*_: Any) -> Ending:
        raise error

    told = {"error": str(error), **told}
    assert Job(monkeypatch, start).answer({"options": {"np": 1}, "command": []}) == (told, b"")


def fails(text: str) -> None:
    raise LookupError(text)


class Unsendable:
    def __reduce__(self) -> Any:
        raise TypeError("stays here")


def called(call: Callable[..., Any], *args: Any, **kwargs: Any) -> tuple[bytes, Any]:
    """(kind, result) of a function that a rank takes out of its payload."""
    kind, body = function_rank._called(memoryview(pickle.dumps((call, args, kwargs))))
    return kind, pickle.loads(body) if kind == payload.RETURNED else json.loads(body)


def test_a_rank_sends_what_its_function_returns_or_raises(capsys: pytest.CaptureFixture[str]) -> None:
    assert called(dict, a=1) == (b"R", {"a": 1})
    assert capsys.readouterr() == ("", "")
    kind, told = called(fails, "not there")
    trace = told.pop("traceback")
    assert told.pop("bases") == ["LookupError", "Exception", "BaseException", "object"]
    told_too = {"what": "its function", "type": "LookupError", "message": "not there", "ranks": []}
    told_too["follows"] = False
    assert (kind, told) == (b"E", told_too)
    assert trace.startswith("Traceback") and trace.endswith("LookupError: not there\n")
    assert "in fails" in trace and "function_rank.py" not in trace
    assert capsys.readouterr() == ("", trace)
    kind, told = called(Unsendable)
    assert (kind, told["type"]) == (b"E", "TypeError")
    assert told["what"] == "its function returned a Unsendable that cannot be sent, and pickling it"
    assert "ValueError" in called(horovod.run, nothing, hosts="a", hostfile="b")[1]["bases"]
    with pytest.raises(SystemExit):
        called(sys.exit, 4)


@pytest.mark.parametrize("code", [0, 1])
def test_a_rank_finds_its_payload_and_signs_its_result(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    reader, writer = os.pipe()
    name = payload.fresh_name()
    monkeypatch.setenv(places.VALUE, str(writer))
    monkeypatch.setenv(places.PAYLOAD, name)
    monkeypatch.setenv("HOROVOD_RANK", "5")
    monkeypatch.setattr(sys, "path", ["/folder/of/the/script", "/kept", "/both"])
    function = pickle.dumps((fails, ("x",), {}) if code else (tuple, ("ab",), {}))
    with payload.stored(
        name, payload.packed(KEY, {"path": ["/theirs", "/both", *sys.path_importer_cache]}, function)
    ):
        assert function_rank.main() == code
    assert sys.path[:2] == ["/theirs", "/both"] and sys.path[-1] == "/kept"
    assert not {places.VALUE, places.PAYLOAD} & set(os.environ)
    with open(reader, "rb") as file:
        result = payload.verified(KEY, 5, file.read())
    assert result is not None and result[0] == (payload.RAISED if code else payload.RETURNED)
    assert code or pickle.loads(result[1]) == ("a", "b")


class Channel:
    """Replaces a worker's channel to its agent."""

    def __init__(self, place: Place | None) -> None:
        self.place = place
        self.heard: list[BaseException | None] = []

    def tell_exception(self, error: BaseException | None) -> None:
        self.heard.append(error)


def told_to_leave() -> None:
    try:
        raise Removed("there is no slot")
    except Removed:
        raise SystemExit(0) from None


@pytest.mark.parametrize(
    ("call", "arguments", "place", "kind", "at"),
    [
        (tuple, ("ab",), Place(3, 1, 2, 0, 1, 1, 2, ("a", "b")), payload.RETURNED, (3, 1)),
        (tuple, ("ab",), None, payload.RETURNED, (0, 5)),
        (fails, ("x",), Place(3, 1, 2, 0, 1, 1, 2, ("a", "b")), payload.RAISED, (3, 1)),
        (told_to_leave, (), Place(3, 1, 2, 0, 1, 1, 2, ("a", "b")), payload.OUT, (3, 1)),
    ],
)
def test_a_worker_of_an_elastic_job_says_where_it_was_last(
    call: Callable[..., Any],
    arguments: tuple[Any, ...],
    place: Place | None,
    kind: bytes,
    at: tuple[int, int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    channel = Channel(place)
    monkeypatch.setattr(agent_channel, "agent_channel", lambda _: channel)
    function = memoryview(pickle.dumps((call, arguments, {})))
    found, body = function_rank._called_in_elastic_job(function, 5)
    assert (found, payload.PLACE.unpack_from(body)) == (kind, at)
    assert [type(error) for error in channel.heard] == ([LookupError] if kind == payload.RAISED else [])
    assert (body[payload.PLACE.size :] == b"") == (kind == payload.OUT)


def test_a_worker_that_leaves_by_itself_has_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_channel, "agent_channel", lambda _: None)
    with pytest.raises(SystemExit):
        function_rank._called_in_elastic_job(memoryview(pickle.dumps((sys.exit, (0,), {}))), 5)


def placed(number: int, generation: int, rank: int, value: Any) -> bytes:
    return signed(number, payload.RETURNED, payload.PLACE.pack(generation, rank) + pickle.dumps(value))


def test_results_of_an_elastic_job_are_in_the_order_of_last_ranks() -> None:
    values = {
        0: placed(0, 4, 1, "b"),
        1: placed(1, 2, 0, "returned before"),
        2: placed(2, 4, 0, "a")[:-3],  # was killed when it sent this
        3: signed(3, payload.OUT, payload.PLACE.pack(3, 1)),
        4: signed(4, payload.RAISED, payload.PLACE.pack(0, 7) + b"{}"),
        12: placed(12, 4, 0, "a"),
    }
    ends = [(0, 0), (1, 0), (2, 137), (3, 0), (4, 1), (12, 0)]
    ending = {**DONE, "ends": ends, "is_elastic": True}
    assert run_function._results(KEY, 2, ending, values) == ["a", "b", "returned before"]
    for number, why in ((0, "sent a result that it did not sign"), (13, "ended without returning")):
        spoiled = {**values, 0: values[0] if number else b"x"}
        with refused(errors.no_result, who="worker", number=number, why=why):
            run_function._results(KEY, 2, {**ending, "ends": [*ends, (number, 0)]}, spoiled)


def test_an_elastic_job_that_failed_where_no_function_raised() -> None:
    ending = {"code": 1, "message": "nobody is left", "ends": [(0, 1)], "is_elastic": True}
    with refused(errors.elastic_failed, exit_code=1, why="nobody is left"):
        run_function._results(KEY, 1, ending, {})


def test_the_parameters_of_elastic_jobs() -> None:
    given = dict(num_proc=1, min_num_proc=2, max_num_proc=4, slots=2, cooldown_range=(1, 2), reset_limit=3,
                 host_discovery_script="x", elastic_timeout=9)  # fmt: skip
    same = {"np": 2, "min_np": 2, "max_np": 4, "slots_per_host": 2, "blacklist_cooldown_range": [1, 2]}
    same |= {"reset_limit": 3, "host_discovery_script": "x", "elastic_timeout": 9}
    assert run_function._options(given) == same
    run_function._check_elastic(same)
    with (
        pytest.warns(DeprecationWarning, match="min_np is an older name; use min_num_proc"),
        refused(WrongArgument, "elastic_few_slots"),
    ):
        horovod.run(nothing, min_np=2, hosts="localhost:1")


@pytest.mark.parametrize("damage", ["short", "no json", "no path", "no texts", "no object"])
def test_a_damaged_payload_is_refused(damage: str) -> None:
    whole = payload.packed(KEY, {"path": ["/x"]}, b"f")
    made = {
        "short": whole[: payload.KEY_SIZE + 12],
        "no json": whole.replace(b"{", b"["),
        "no path": payload.packed(KEY, {"paths": []}, b"f"),
        "no texts": payload.packed(KEY, {"path": ["/x", 1]}, b"f"),
        "no object": payload.packed(KEY, [], b"f"),  # type: ignore[arg-type]
    }[damage]
    with pytest.raises(ValueError, match=f"the payload of {len(made)} bytes is damaged"):
        payload.unpacked(made)


@pytest.mark.parametrize("options", [{"use_mpi": True}, {"launcher": "mpi"}])
def test_mpirun_has_no_way_for_results(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launchers, "installed_mpirun", lambda: "/mpi/bin/mpirun")
    monkeypatch.setattr(launchers, "installed_flavour", lambda mpirun: "Open MPI 5")
    with refused(errors.function_by_mpirun):
        launch.start({"np": 2, **options}, ["python", "x.py"], {}, b"payload")
