"""Messages between ranks: the core's messages, codecs' bytes, and objects that horovod.torch gathers."""

# private: _agreed, _check_software, _is_proof, _read: they parse data from outside

from __future__ import annotations

import contextlib
import json
import struct
from collections.abc import Iterable
from functools import partial

import numpy as np
import torch
from campaign import Target

from horovod import _native
from horovod import _native_testing as testing
from horovod.common import membership, variables
from horovod.common.exceptions import HorovodInternalError
from horovod.common.rendezvous import card, meeting, store
from horovod.torch import gathered
from horovod.torch.compression.registry import Compression
from horovod.torch.compression.topk import TopKCompressor
from horovod.torch.ddp import agreement
from horovod.torch.ddp import errors as ddp_errors
from horovod.torch.reduce_ops import ReduceArguments, Sum
from horovod.tune.tuner import Decision

SIZE = 3


def _worlds_with_a_set(in_order: bool = False) -> tuple[list[_native.World], list[_native.Engine]]:
    """Three stepped ranks. The last two have a process set, coordinated by rank 0, which is no member."""
    worlds = _native.local_worlds(SIZE)
    settings = _native.Settings()
    settings.stall_check_disable = True
    engines = [_native.Engine(world, settings, start_thread=False, in_order=in_order) for world in worlds]
    added = [engine.add_process_set([1, 2]) for engine in engines]
    while not all(engine.poll(handle) for engine, handle in zip(engines, added, strict=True)):
        for engine in engines:
            engine.step(1.0)
    return worlds, engines


def _submit(engine: _native.Engine, values: np.ndarray, codec: _native.Codec) -> list[int]:
    """Submit an operation of every kind in the set."""
    number = {"float32": 6, "int64": 4}[values.dtype.name]
    tensor = _native.Tensor(values.ctypes.data, values.ctypes.data, list(values.shape), number)
    gather = _native.Tensor(values.ctypes.data, 0, list(values.shape), number)
    found = [
        engine.allreduce("sum", [tensor], _native.Reduction(), 1),
        engine.allreduce("group", [tensor, tensor], _native.Reduction(op=1, prescale=0.5), 1),
        engine.allgather("gather", [gather], 1),
        engine.broadcast("broadcast", tensor, 1, 1),
        engine.barrier("barrier", 1),
    ]
    if values.dtype == np.float32:
        found.append(engine.allreduce("coded", [tensor], _native.Reduction(codec=codec), 1))
    return found


def _received(world: _native.World) -> list[bytes]:
    return list(iter(lambda: testing.receive(world), None))


def _written(in_order: bool = False) -> tuple[list[bytes], list[bytes]]:
    """Return (announcements, responses) as engines write them."""
    announcements, responses = [], []
    for values in (np.ones((2, 3), np.float32), np.ones(4, np.int64)):
        worlds, engines = _worlds_with_a_set(in_order)
        for engine in engines[1:]:
            _submit(engine, values, _native.get_codec("bit8"))
            engine.step(50.0)
        said = _received(worlds[0])
        announcements += said
        for world, message in zip(
            worlds[1:], said, strict=True
        ):  # the messages of rank 0's engine as a coordinator
            testing.post(world, 0, message)
        engines[0].step(1.0)
        responses += _received(worlds[1])
        _close(engines)
    return announcements, responses


def _close(engines: Iterable[_native.Engine]) -> None:
    for engine in engines:
        with contextlib.suppress(HorovodInternalError):
            engine.shutdown()


_ANNOUNCEMENTS, _RESPONSES = _written()
_ORDERED, _ = _written(in_order=True)
# A caller in set 1 waits for "sum", and may continue without it.
_ANNOUNCEMENTS.append(b"\1\0\0\0\1\0\0\0\0" + bytes(21) + b"\3\0\0\0sum\1")


def _begun(ids: tuple[int, ...], ends: tuple[int, ...]) -> bytes:
    """Return a message of set 1 that begins operations by known ids, in parts that end at `ends`."""
    listed = [struct.pack(f"<{1 + len(each)}I", len(each), *each) for each in (ids, ends)]
    return struct.pack("<IIBI", 1, 1, 0, 0) + listed[0] + bytes(8) + b"\1" + listed[1] + bytes(5)


_AGREED = _ORDERED[:2]  # of both members of the set: after them, rank 0 knows requests by ids
_ORDERED += [_begun((1, 2), (1, 2)), _begun((1, 2), (2,)), _begun((2,), (1,))]


def read_announcements(data: bytes) -> None:
    assert testing.rewritten_announcements(data) == data, "understood as something else"


def read_responses(data: bytes) -> None:
    assert testing.rewritten_responses(data) == data, "understood as something else"


def read_device_peer(data: bytes) -> None:
    assert testing.rewritten_device_peer(data) == data, "understood as something else"


def coordinate(data: bytes, in_order: bool = False) -> None:
    """Rank 0 receives the message from both members of a set; ranks can read its answers."""
    worlds, engines = _worlds_with_a_set(in_order)
    try:
        if in_order:
            for world, message in zip(worlds[1:], _AGREED, strict=True):
                testing.post(world, 0, message)
            engines[0].step(1.0)
        testing.post(worlds[1], 0, data)
        engines[0].step(1.0)
        testing.post(worlds[2], 0, data)
        engines[0].step(1.0)
        for world in worlds[1:]:
            for message in _received(world):
                read_responses(message)
    finally:
        _close(engines)


_CODECS = [
    _native.codec_named(name)
    for name in (
        "bit16",
        "bit8/128",
        "bit8/32/e5m2",
        "int8/128",
        "int4/128",
        "int4/128/hadamard",
        "int4/64/hadamard/lloyd",
    )
]
_COUNT = 300


def _encoded() -> Iterable[bytes]:
    values = np.random.default_rng(1).standard_normal(_COUNT).astype(np.float32)
    for index, codec in enumerate(_CODECS):
        run = np.zeros(codec.encoded_bytes(_COUNT), np.uint8)
        codec.encode(values.ctypes.data, 6, _COUNT, run.ctypes.data)
        yield bytes([index]) + run.tobytes()


def decode(data: bytes) -> None:
    """Decode any bytes as codes, from an exact buffer, so that a sanitizer notices reads beyond it."""
    codec = _CODECS[data[0] % len(_CODECS) if data else 0]
    length = codec.encoded_bytes(_COUNT)
    run = np.frombuffer(data[1 : 1 + length].ljust(length, b"\xa5"), np.uint8).copy()
    out = np.zeros(_COUNT, np.float32)
    codec.decode(run.ctypes.data, _COUNT, out.ctypes.data, 6)
    codec.decode_add(run.ctypes.data, _COUNT, out.ctypes.data)
    codec.decode_two(run.ctypes.data, run.ctypes.data, _COUNT, 0.5, out.ctypes.data)


def name_codec(data: bytes) -> None:
    codec = _native.codec_named(data.decode(errors="replace"))
    assert codec.name == data.decode()


_TOP = TopKCompressor(k=3)
_TENSOR = torch.arange(12, dtype=torch.float32).reshape(3, 4)
_OWN = gathered.contribution("allreduce.x", _TENSOR, ReduceArguments(Sum, 1.0, 1.0), _TOP)


def read_gathered(data: bytes) -> None:
    """Combine another rank's payload with ours."""
    both = torch.cat(
        [_OWN.payload, torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else torch.empty(0)]
    )
    out = gathered.reduced(_OWN, both.to(torch.uint8), [_OWN.payload.numel(), len(data)])
    assert out.shape == _TENSOR.shape


def read_top(data: bytes) -> None:
    codes = (
        torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else torch.empty(0, dtype=torch.uint8)
    )
    assert _TOP.decompress(codes, (torch.float32, _TENSOR.shape)).shape == _TENSOR.shape


_DECISION = Decision("searching", 5, {"HOROVOD_CYCLE_TIME": "2", "HOROVOD_COMPRESSION": "none"})


def read_decision(data: bytes) -> None:
    decision = Decision.from_text(data.decode(errors="replace"))
    assert decision.next_in >= 1 and all(name.startswith("HOROVOD_") for name in decision.settings)


_WANTED = {
    "sets": [{"ranks": [0, 1], "from_comm": False}, {"ranks": [1, 2], "from_comm": True}],
    "error": None,
    "is_dynamic": False,
    "tuning": {name: "0" for name in variables.TUNED_ALIKE},
    "host": "node1",
    "software": {"horovod": "0.29.0", "PyTorch": "2.13.0", "Python": "3.11.7"},
}
_REFUSED = {
    "sets": [],
    "error": ["ValueError", "init(process_sets=...) takes hvd.ProcessSet objects"],
    "is_dynamic": True,
    "tuning": {name: "1" for name in variables.TUNED_ALIKE},
    "host": "node2",
    "software": {"horovod": "0.29.0", "PyTorch": "", "Python": "3.12.1"},
}
_TERMS = {"layer.weight": "[4, 4] float32 bit8/128", "layer.bias": "[4] float32 none"}


def read_wanted(data: bytes) -> None:
    by_rank = [_WANTED, membership._read(1, data, _WANTED, "hvd.init()"), _WANTED]
    membership._check_software(by_rank, 1)
    agreed = membership._agreed(by_rank, SIZE)
    assert all(0 <= rank < SIZE for ranks in agreed for rank in ranks)


def read_terms(data: bytes) -> None:
    agreement.check_agreement([_TERMS, agreement.terms_from_bytes(data)])


_CARDS = (
    {
        "version": 1, "package": "0.29.0", "host": "b x 24 4026531836", "namespace": "x 4026531840",
        "name": "b, process 7", "addresses": [["lo", "127.0.0.1/8", 0], ["eth0", "10.0.0.2/24", 1000]],
        "route": "10.0.0.2", "wanted": [], "nonce": "5a" * 32, "has_secret": False,
    },
    {
        "version": 1, "package": "0.29.0", "host": "c", "namespace": "y", "name": "c, process 8",
        "addresses": [["ib0", "fd00::2/64", 0], ["eth0", "10.0.0.3/24", 1000]], "route": "",
        "wanted": ["eth0", "fd00::/8"], "nonce": "a5" * 32, "has_secret": True,
    },
)  # fmt: skip
_CARD = card.parsed(0, json.dumps(_CARDS[0]).encode())


def read_card(data: bytes) -> None:
    """Read the card of one rank, whose facts decide where all ranks listen."""
    theirs = card.parsed(1, data)
    assert card.parsed(1, theirs.to_bytes()) == theirs, "understood as something else"
    assert len(meeting.listening_addresses([_CARD, theirs, _CARD])) == SIZE
    assert len(meeting.session_key(b"secret", [_CARD, theirs])) == 32


def read_ports(data: bytes) -> None:
    ports, proof = meeting.said_by(1, data, _CARD, 2)
    assert len(ports) == 2 and all(0 < port < 65536 for port in ports)
    meeting._is_proof(proof, bytes(32), 1)


def read_published(data: bytes) -> None:
    assert len(store.unpacked(data, SIZE, "a store")) == SIZE


def name_compressor(data: bytes) -> None:
    Compression.from_text(data.decode(errors="replace"))


_TEXTS = (
    b"bit8", b"int4:rotation=hadamard,block_size=64", b"topk:ratio=0.01", b"powersgd:rank=2,warm_start=false",
    b"bit8:error_feedback=1,min_elements=0,format=e5m2", b"topk:k=10,error_feedback=0",
)  # fmt: skip
_NAMES = (
    b"bit16",
    b"bit8/128",
    b"int4/128/hadamard/lloyd/seed7",
    b"int8/32/stochastic/seed18446744073709551615",
)
_PEERS = (
    b"\x19Y\0\0\x03\0\0\0gpu\0\0\0\0\x04\0\0\0auto",
    b"\0\0\0\0\x01\0\0\0x\x05\0\0\0 none\x04\0\0\0nccl",
)

TARGETS = (
    Target("announcements", _ANNOUNCEMENTS, read_announcements, (HorovodInternalError,), 12),
    Target("responses", _RESPONSES, read_responses, (HorovodInternalError,), 12),
    Target("GPUs of ranks", _PEERS, read_device_peer, (HorovodInternalError,), 4),
    Target("coordinator", _ANNOUNCEMENTS, coordinate, (HorovodInternalError,), 1),
    Target("order of ranks", _ORDERED, partial(coordinate, in_order=True), (HorovodInternalError,), 1),
    Target("codes", tuple(_encoded()), decode, (), 6),
    Target("codec name", _NAMES, name_codec, (ValueError,), 3),
    Target("gathered codes", (_OWN.payload.numpy().tobytes(),), read_gathered, (HorovodInternalError,), 3),
    Target("top codes", (_TOP.compress(_TENSOR)[0].numpy().tobytes(),), read_top, (ValueError,), 3),
    Target("compression", _TEXTS, name_compressor, (ValueError,), 3),
    Target(
        "init",
        tuple(json.dumps(each).encode() for each in (_WANTED, _REFUSED)),
        read_wanted,
        (ValueError, NotImplementedError),
        2,
        is_json=True,
    ),
    Target(
        "card", tuple(json.dumps(each).encode() for each in _CARDS), read_card, (ValueError,), 3, is_json=True
    ),
    Target(
        "ports",
        (b'{"ports": [4000, 65535], "proof": "00ff"}', b'{"error": "cannot listen at 10.0.0.2"}'),
        read_ports,
        (ValueError,),
        1,
        is_json=True,
    ),
    Target("published", (store.packed([b"", b"one", bytes(300)]),), read_published, (ValueError,), 2),
    Target("decision", (_DECISION.to_text().encode(),), read_decision, (ValueError,), 2),
    Target("terms", (json.dumps(_TERMS).encode(),), read_terms, (ddp_errors.RanksDisagree,), 2, is_json=True),
)
