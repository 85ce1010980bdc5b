"""Inputs of horovodrun: ranks' output and reports, signed results, hosts' answers, files, variables."""

# private: _addresses_in, _description, _listed, _results: they parse data from outside, and their callers
# only pass it on

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import pickle
from collections.abc import Iterable
from unittest.mock import MagicMock

import scratch
from campaign import Target

from horovod import _native
from horovod.common.agent_messages import MessageParser, Place, object_in, packed
from horovod.common.options import CORE, OPTIONS
from horovod.runner import hosts, payload, run_function, settings
from horovod.runner.agents import frames, preparation, reaching
from horovod.runner.agents.decisions import FixedJob
from horovod.runner.agents.frames import Frame, FrameParser, Order, Splitter
from horovod.runner.agents.job import Job, Told
from horovod.runner.agents.outcome import Outcome
from horovod.runner.agents.output import RankOutput
from horovod.runner.agents.places import places_of
from horovod.runner.errors import LaunchError

RANKS = 4
KEY = bytes(range(32))
_REPORTS = (
    "started node1 4711",
    "ended 0 0",
    "ended 3 1",
    "killed 9 0",
    "refused 127 the command x was not found",
    "note joining",
    "note follows 0,2 lost rank 0",
    "note leaving",
    "stopped 4711",
    "continued",
    "lost node1",
    "unreported 9",
)


def _records() -> Iterable[bytes]:
    one, report = frames.frame, frames.REPORT
    yield b"".join(one(report, text.encode()) for text in _REPORTS[:4])
    yield one(frames.OUTPUT, b"a line\nhalf a line") + one(frames.ERROR, b"50 %\r100 %\r\n")
    yield one(frames.VALUE, bytes(range(256)) * 3) + one(report, _REPORTS[4].encode()) + one(report, b"")


def read_records(data: bytes) -> None:
    """Read records as the driver does, in pieces of any size: each equals the record that was sent."""
    chunk = 1 + hashlib.sha256(data).digest()[0] * 5
    parser, outcome = Splitter(frames.RECORDS), Outcome(RANKS)
    output = RankOutput(RANKS, io.BytesIO(), io.BytesIO())
    again = b""
    for begin in range(0, len(data), chunk):
        for each in parser.feed(data[begin : begin + chunk]):
            again += frames.frame(each.kind, each.body)
            if each.kind == frames.REPORT:
                with contextlib.suppress(ValueError):
                    outcome.take(1, each.body.decode(errors="replace"))
            elif each.kind != frames.VALUE:
                output.write(1, each.kind, each.body)
    output.finish()
    assert data.startswith(again), "bytes were lost"
    outcome.conclusion(1)


def read_report(data: bytes) -> None:
    """Read a report of rank 1; the job ends with a code that a process can have."""
    outcome = Outcome(RANKS)
    with contextlib.suppress(ValueError):
        outcome.take(1, data.decode(errors="replace"))
    outcome.named(1)
    code, sentence = outcome.conclusion(3)
    assert 0 < code <= 255 and sentence, (code, sentence)


def _of_agents() -> Iterable[bytes]:
    """Yield the output of an agent of a host with two ranks, after the words of a login script."""

    def message(worker: int, **request: object) -> bytes:
        return frames.numbered(frames.MESSAGE, worker, json.dumps(request).encode())

    begin = b"welcome\n" + frames.MAGIC + frames.record(frames.HELLO, {"host": "node1"})
    yield (
        begin
        + frames.record(frames.STARTED, {"worker": 0, "pid": 4711})
        + message(0, id=1, do="assign", after=0)
        + message(0, id=2, do="get", key="k")
        + message(1, id=1, do="set", key="k", value="dg==")
        + message(1, id=2, do="check", keys=["k"])
        + message(1, id=3, do="delete", key="k")
        + message(1, do="lost", generation=1, rank=0, reason="no answer")
    )
    output = frames.numbered(frames.WROTE, 1, frames.frame(frames.OUTPUT, b"a line\n"))
    yield (
        begin
        + frames.frame(frames.BEAT)
        + output
        + frames.record(frames.ENDED, {"worker": 1, "status": 0})
        + frames.record(frames.ENDED, {"worker": 0, "status": 9})
    )


def read_frames_of_agent(data: bytes) -> None:
    """Read frames as the driver does; the job continues whatever a worker requests."""
    told, parser = Told(["true"], b"", b""), FrameParser(from_agent=True)
    connections = MagicMock()
    connections.hello.return_value = None
    job = Job(FixedJob([("a", 2)]), told, connections, MagicMock(), MagicMock())
    job.begin(0.0)
    chunk = 1 + hashlib.sha256(data).digest()[0] * 5
    for begin in range(0, len(data), chunk):
        for frame in parser.feed(data[begin : begin + chunk]):
            job.heard("a", frame, 1.0)


def _of_drivers() -> Iterable[bytes]:
    yield (
        frames.MAGIC
        + frames.record(frames.QUESTION, {"about": "reach", "port": 22, "seconds": 2.0, "targets": []})
        + frames.frame(frames.ENVIRONMENT, frames.packed_environment({b"A": b"b"}))
        + Order(3, ["sh", "-c", "true"], {"A": "b"}, has_input=True).frame()
        + frames.numbered(frames.INPUT, 3, b"words")
        + frames.record(frames.STOP, {"worker": 3, "signal": 15})
        + frames.numbered(frames.CREDIT, 4096)
    )


def read_frames_of_driver(data: bytes) -> None:
    for frame in FrameParser(from_agent=False).feed(data):
        if frame.kind == frames.START:
            Order.of(frame)
        elif frame.kind == frames.STOP:
            frame.record(worker=int, signal=int)
        elif frame.kind == frames.QUESTION:
            frame.record()
        elif frame.kind == frames.ENVIRONMENT:
            frames.unpacked_environment(frame.body)
        elif frame.kind != frames.PAYLOAD:
            frame.numbered()


def _packed_environments() -> Iterable[bytes]:
    yield frames.packed_environment({b"A": b"1\n2=3", b"B": b"", b"C": b"\xff"})


def read_packed_environment(data: bytes) -> None:
    """Read an environment; packed again, it has the same meaning."""
    found = frames.unpacked_environment(data)
    assert frames.unpacked_environment(frames.packed_environment(found)) == found


def _of_channels() -> Iterable[bytes]:
    yield packed({"id": 1, "ok": places_of([("a", 1), ("b", 1)])[1].record()})
    yield packed({"id": 2, "error": "no"}) + packed({"event": "hosts_updated", "timestamp": 1.5, "update": 1})


def read_messages(data: bytes) -> None:
    """Read messages of the agent, as a worker does."""
    for text in MessageParser().feed(data):
        if "ok" in (message := object_in(text)):
            Place.of(message["ok"])


class _Unpickled:
    """An object that reports its own unpickling."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return _note, ("unpickled",)


_notes: list[str] = []


def _note(text: str) -> str:
    _notes.append(text)
    return text


def _results() -> Iterable[bytes]:
    for kind, body in ((b"R", pickle.dumps(_Unpickled())), (b"E", b'{"type": "ValueError"}'), (b"R", b"")):
        yield payload.signature(KEY, 1, kind, body) + kind + body  # of another rank than its sender


def read_result(data: bytes) -> None:
    """Read a result; no input may be unpickled, because rank 0 has signed none of them."""
    try:
        run_function._results(KEY, 1, {"code": 0, "culprit": None, "message": ""}, {0: data})
    except RuntimeError as error:
        assert "did not sign" in str(error), error
    else:
        raise AssertionError("a result was taken that nobody signed")
    assert not _notes, "a result was unpickled that nobody signed"


def _environments() -> Iterable[bytes]:
    slurm_job = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "node[001-003,7],gpu[1-2]x", "SLURM_NTASKS": "12"}
    yield _lines({**slurm_job, "SLURM_TASKS_PER_NODE": "2(x5),2", "SLURM_JOB_CPUS_PER_NODE": "8(x6)"})
    yield _lines({**slurm_job, "SLURM_JOB_NODELIST": "a,b[1-2]c[3-4]", "SLURM_NTASKS_PER_NODE": "1"})
    yield _lines({"SLURM_JOB_ID": "7", "SLURM_NODELIST": "localhost", "SLURM_NPROCS": "2"})
    yield _lines({"LSB_JOBID": "1", "LSB_MCPU_HOSTS": "host1 4 host2 4"})


def _lines(environment: dict[str, str]) -> bytes:
    return "\n".join(f"{name}={text}" for name, text in environment.items()).encode()


def _environment(data: bytes) -> dict[str, str]:
    """Return variables as in os.environ, whose texts are bytes of any encoding."""
    pairs = (line.partition(b"=") for line in data.replace(b"\0", b"").split(b"\n"))
    return {name.decode(errors="replace"): text.decode(errors="surrogateescape") for name, _, text in pairs}


def read_slurm(data: bytes) -> None:
    found = hosts.allocation(_environment(data))
    assert found is None or all(host.slots > 0 for host in found.hosts_for(3))


def _settings() -> Iterable[bytes]:
    yield _lines({row.variable: row.default for row in OPTIONS if row.part == CORE and row.default})
    yield b"HOROVOD_THREAD_AFFINITY=0,1\nHOROVOD_FUSION_THRESHOLD=1024\nHOROVOD_CYCLE_TIME=2.5"
    yield b"HOROVOD_ALLREDUCE_ALGORITHM=hierarchical\nHOROVOD_TORUS_ALLREDUCE=1\nHOROVOD_LOG_LEVEL=DEBUG"
    yield b"HOROVOD_CACHE_CAPACITY=0\nHOROVOD_START_TIMEOUT=30\nHOROVOD_STALL_CHECK_TIME_SECONDS=1e3"
    yield b"HOROVOD_NUM_NCCL_STREAMS=4\nHOROVOD_AUTOTUNE=1\nHOROVOD_GLOO_IFACE=eth0\nHOROVOD_COMPRESSION=bit8"


def read_settings(data: bytes) -> None:
    environment = _environment(data)
    settings.environment_warnings(environment)
    settings.rank_environment(settings.merged({}, {}, environment))


def read_core_settings(data: bytes) -> None:
    """Read the settings as hvd.init() does; the engine of one rank reads the settings that it needs."""
    environment = {name: text for name, text in _environment(data).items() if name.startswith("HOROVOD_")}
    before = dict(os.environ)
    os.environ.update(environment)
    try:
        found = _native.Settings.from_environment()
        found.timeline = ""  # any text is the name of a file
        found.log_level = "error"
        [world] = _native.local_worlds(1)
        _native.Engine(world, found, start_thread=False).shutdown()
    finally:
        for name in environment:
            del os.environ[name]
        os.environ.update(before)


def read_hostfile(data: bytes) -> None:
    found = hosts.from_file(str(scratch.file_of("hosts", data)))
    assert all(host.slots > 0 for host in found)
    hosts._listed(found)


def read_hosts(data: bytes) -> None:
    hosts._listed(hosts.from_text(data.decode(errors="surrogateescape")))


_YAML = b"""\
controller: mpi
ddp: {enabled: true, master_addr: "node1", master_port: 29500}
params:
  compression: int4:rotation=hadamard
  fusion_threshold_mb: 32
  cycle_time_ms: 2.5
  cache_capacity: 0x400
  hierarchical_allreduce: no
autotune: {enabled: false, log_file: "x"}
timeline:
  filename: /tmp/t.json
  mark_cycles: True
stall_check: {enabled: yes, warning_time_seconds: 1_0, shutdown_time_seconds: 0}
library_options: {num_nccl_streams: 0, thread_affinity: [0, 1]}
logging: {level: debug, hide_timestamp: off}
"""
_MORE_YAML = b"""\
a: &a [x, 1.5, .inf, 2001-01-01, 2001-01-01 10:00:00 +1:00, 0b11, 1:30]
b: [*a, *a]
c: !!str 5
d: {<<: {e: 1}}
"""


def read_config_file(data: bytes) -> None:
    values, warnings = settings.load(str(scratch.file_of("config.yaml", data)))
    settings.rank_environment(settings.merged({}, values, {}))
    assert all(isinstance(line, str) for line in warnings)


def _facts() -> Iterable[bytes]:
    described = {
        "addresses": [["eth0", "10.0.0.1/24", 1000], ["lo", "127.0.0.1/8", 0]],
        "from": "10.0.0.2",
        "at": "10.0.0.1",
        "software": {"horovod": "0.29.0", "core": "a43ad53123b8e2dc", "PyTorch": "", "Python": "3.11.7"},
    }
    for facts in (described, {**described, "from": "", "at": ""}, ["10.0.0.1", "10.0.0.2"], 12345):
        yield json.dumps(facts).encode()


def read_facts(data: bytes) -> None:
    """Read the facts of a HELLO, and answers to questions: the host is refused, and nothing else happens."""
    reaching.explained("node1", 255, data.decode(errors="replace"))
    with contextlib.suppress(ValueError):
        facts = Frame(frames.HELLO, data).record()
        preparation.build_refusal(facts)
        preparation._description(facts)
    with contextlib.suppress(ValueError, RecursionError):
        preparation._addresses_in(json.loads(data))


def _payloads() -> Iterable[bytes]:
    yield payload.packed(KEY, {"path": ["/usr/lib", ""]}, b"function")
    yield payload.packed(KEY, {"path": []}, b"")


def read_payload(data: bytes) -> None:
    key, header, _ = payload.unpacked(data)
    assert len(key) == payload.KEY_SIZE and all(isinstance(path, str) for path in header["path"])


_HOSTFILE = (
    b"node1 slots=4\nnode2 slots = 2 # two\n\n# none\n10.0.0.1\nnode-3.example.org slots=1\n",
    b"localhost slots=2\r\nx",
)

TARGETS = (
    Target("records", tuple(_records()), read_records, (ValueError,), 6),
    Target("report", tuple(report.encode() for report in _REPORTS), read_report, (), 4),
    Target("result", tuple(_results()), read_result, (), 4),
    Target("frames of an agent", tuple(_of_agents()), read_frames_of_agent, (ValueError,), 3),
    Target("frames of a driver", tuple(_of_drivers()), read_frames_of_driver, (ValueError,), 3),
    Target("messages of an agent", tuple(_of_channels()), read_messages, (ValueError,), 3),
    Target("payload", tuple(_payloads()), read_payload, (ValueError,), 3),
    Target("slurm", tuple(_environments()), read_slurm, (LaunchError,), 5),
    Target("settings of horovodrun", tuple(_settings()), read_settings, (LaunchError,), 4),
    Target("settings of the core", tuple(_settings()), read_core_settings, (ValueError,), 3),
    Target("hostfile", _HOSTFILE, read_hostfile, (LaunchError,), 4),
    Target(
        "hosts", (b"host1:2,host2:4", b"localhost", b"a.b_c-d:1, 10.0.0.1:16"), read_hosts, (LaunchError,), 4
    ),
    Target("config file", (_YAML, _MORE_YAML), read_config_file, (LaunchError,), 0.5),
    Target("variables of ranks", tuple(_packed_environments()), read_packed_environment, (ValueError,), 3),
    Target("facts of a host", tuple(_facts()), read_facts, (), 5, is_json=True),
)
