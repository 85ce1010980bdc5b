"""Records that are read again: the lab's folders, environments, checkpoints, tables of other programs."""

from __future__ import annotations

import base64
import json
import sys
import warnings
from pathlib import Path
from typing import Any

import scratch
import torch
from campaign import Target

from horovod.lab import environment, errors, folders, logs, progress
from horovod.lab.runs import Plan
from horovod.topology import machine
from horovod.topology.facts import Gpu, Host, Nic, Socket
from horovod.torch.checkpoint import Checkpoint
from horovod.torch.compression.memory import Memory
from horovod.torch.compression.registry import Compression
from horovod.torch.residuals import Residuals
from horovod.tune.__main__ import shown
from horovod.tune.cache import Cache, Key, Stored

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "single" / "support"))
import lab_logs
import topology_machines as machines

_LINE = b"\n--- log\n"  # between a plan, its log and its load, which form one input


def _runs() -> list[bytes]:
    found = []
    for plan in (lab_logs.plan(), lab_logs.plan(ranks=1, epochs=1, arguments=("--lr", "0.1"))):
        folder = lab_logs.written(scratch.folder() / "valid", plan, lab_logs.records(plan, steps=2))
        found.append(
            _LINE.join(((folder / name).read_bytes()) for name in (folders.PLAN, folders.LOG, folders.LOAD))
        )
    return found


def read_run(data: bytes) -> None:
    plan, log, load, *_ = [*data.split(_LINE), b"", b""]
    folder = scratch.file_of(f"run/{folders.PLAN}", plan).parent
    path = scratch.file_of(f"run/{folders.LOG}", log)
    scratch.file_of(f"run/{folders.LOAD}", load)
    for record in progress.GrowingLog(path).news():
        progress.state(record, 2)
        progress.steps_done(record, 2)
    wanted = folders.plan_in(folder)
    if wanted is not None:
        assert isinstance(hash(wanted), int) and wanted == wanted
        folders.is_finished(scratch.folder(), Plan("run", 1, "none", 1, 1))
    run = logs.read(folder)
    assert run.step_seconds and run.epochs and run.training_seconds >= 0


_HOST = Host(
    "node1",
    (Socket(0, machines.XEON, 8, 16, 1 << 36), Socket(1, None, None, 16, None)),
    1 << 37,
    16,
    (Gpu(0, "NVIDIA H100", 1 << 36, "0000:3b:00.0", 0),),
    (),
    (Nic("eth0", None, "virtio_net", 10**9, ("10.0.0.1/24",), None),),
    ("a note",),
)
_ENVIRONMENT = environment.Environment(
    (_HOST,), (environment.Entry("hardware", "cpu", "x"), environment.Entry("software", "os", None))
)


def read_environment(data: bytes) -> None:
    found = environment.from_json(data.decode(errors="surrogateescape"))
    assert environment.from_json(environment.to_json(found)) == found


def read_numbers(data: bytes) -> None:
    assert len(machine.numbers_in(data.decode(errors="replace"))) <= machine.MOST_NUMBERS


class _Alone:
    """Peers of a checkpoint: rank 1 of 2."""

    owner = "optimizer"

    def ranks(self) -> list[int]:
        return [0, 1]

    def position(self) -> int:
        return 1

    def size(self) -> int:
        return 2

    def gathered(self, own: Any, at: int) -> list[Any] | None:
        return None


_GRADIENTS = {
    "a.weight": (torch.ones(4, 8), Compression.bit8(error_feedback=True)),
    "b.weight": (torch.ones(2, 8), Compression.topk),
}
_Q = {"a.weight": {"q": torch.ones(8, 1)}, "b.weight": {"steps": 3}}
_TENSOR, _TUPLE = "tensor", "tuple"  # their representation in JSON, which has neither


def _as_json(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return {_TENSOR: base64.b64encode(value.numpy().tobytes()).decode(), "dtype": str(value.dtype)[6:]}
    if isinstance(value, tuple):
        return {_TUPLE: [_as_json(each) for each in value]}
    if isinstance(value, dict):
        return {str(key): _as_json(each) for key, each in value.items()}
    return value


def _from_json(value: Any) -> Any:
    if isinstance(value, list):
        return [_from_json(each) for each in value]
    if not isinstance(value, dict):
        return value
    if isinstance(value.get(_TENSOR), str):
        try:
            raw = bytearray(base64.b64decode(value[_TENSOR]))
            if not raw:
                return torch.empty(0)
            dtype = getattr(torch, value.get("dtype", ""), None)
            return torch.frombuffer(raw, dtype=dtype if isinstance(dtype, torch.dtype) else torch.uint8)
        except (ValueError, TypeError):
            return None
    if isinstance(value.get(_TUPLE), list):
        return tuple(_from_json(each) for each in value[_TUPLE])
    return {int(key) if key in ("0", "1") else key: _from_json(each) for key, each in value.items()}


def _checkpoint() -> tuple[Checkpoint, Residuals, Memory]:
    residuals, memory = Residuals(is_kept=True), Memory()
    return Checkpoint(residuals, memory, _Alone()), residuals, memory


def _saved() -> bytes:
    checkpoint, residuals, memory = _checkpoint()
    for name, (gradient, compressor) in _GRADIENTS.items():
        feedback = residuals.of(name, gradient, compressor)
        assert feedback is not None
        if name == "b.weight":
            feedback.keep(gradient, gradient * 0.5)
        else:
            feedback.restore("sent", 0, torch.full((gradient.numel(),), 0.25))
    memory.load_state_dict(_Q)
    residuals.follow(1024.0)
    residuals.rescale()
    checkpoint.on_reduction()
    saved = checkpoint.state_dict()
    return json.dumps(
        _as_json({**saved, "residuals": {0: saved["residuals"][1], 1: saved["residuals"][1]}})
    ).encode()


def load_checkpoint(data: bytes) -> None:
    """Load the objects that torch.load made of a damaged or foreign file."""
    try:
        saved = _from_json(json.loads(data))
    except (ValueError, RecursionError):
        return
    checkpoint, residuals, memory = _checkpoint()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        checkpoint.load_state_dict(saved, list(_GRADIENTS))
        residuals.follow(512.0)
        residuals.rescale()
        for name, (gradient, compressor) in _GRADIENTS.items():
            feedback = residuals.of(name, gradient, compressor)
            assert feedback is not None and bool(torch.isfinite(torch.as_tensor(_sent(feedback))).all())
        exchange = Compression.powersgd(rank=1).rounds(torch.ones(4, 8), memory.of("a.weight", None))
        next(exchange)
    checkpoint.state_dict()


def _sent(feedback: Any) -> Any:
    values = feedback.read("sent")[1]
    return values if isinstance(values, torch.Tensor) else torch.from_dlpack(values)


_KEY = Key("machine", "0123", "Net", "2 on 1", "1.0", "optimizer, bit8")
_TUNED = Stored(_KEY, {"HOROVOD_CYCLE_TIME": "2"}, {"gain": [1.2, 1.1, 1.3], "steps": 350})


def _tuned() -> bytes:
    cache = Cache(scratch.folder() / "valid tuned", print)
    cache.keep(_TUNED)
    return cache.path(_KEY).read_bytes()


def read_tuned(data: bytes) -> None:
    """A damaged record counts as absent; it can be written again, and shown."""
    cache = Cache(scratch.folder() / "tuned", lambda line: None)
    cache.keep(_TUNED)
    cache.path(_KEY).write_bytes(data)
    found = cache.find(_KEY)
    assert found is None or found.key == _KEY
    assert all(shown(each) for each in cache.all())
    assert cache.keep(_TUNED) and cache.find(_KEY) == _TUNED


TARGETS = (
    Target("tuned", (_tuned(),), read_tuned, (), 1, is_json=True),
    Target("lab run", tuple(_runs()), read_run, (errors.LogError,), 4, is_json=True),
    Target(
        "environment",
        (environment.to_json(_ENVIRONMENT).replace("\n", "").encode(),),
        read_environment,
        (ValueError,),
        3,
        True,
    ),
    Target("numbers of the kernel", (b"0-3,8", b"0", b"0-15,32-47"), read_numbers, (ValueError,), 2),
    Target("checkpoint", (_saved(),), load_checkpoint, (ValueError,), 2, is_json=True),
)
