"""Inputs that once made a parser break its contract, shortened: every run of the tests repeats each.

To add one, give the target, the bytes, and the parser's behaviour.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from horovod.runner import payload


class Regression(NamedTuple):
    target: str
    data: bytes
    was: str  # its misbehaviour


_ONE, _TWO = b"\1\0\0\0", b"\2\0\0\0"
_DEEP = b"[" * 5000
_DIGITS = b"9" * 5000  # more than Python converts to a number
_SLURM = b"SLURM_JOB_ID=7\nSLURM_JOB_NODELIST=%s\nSLURM_NTASKS=%s"
_ALIASES = b"".join(b"a%d: &a%d [%s]\n" % (i, i, b", ".join([b"*a%d" % (i - 1)] * 9)) for i in range(1, 30))
_BOMB = b"a0: &a0 [x]\n" + _ALIASES + b"params: {cycle_time_ms: *a29}\n"
_PLAN = {
    "script": "t.py", "ranks": 2, "compression": "bit8", "seed": 1, "epochs": 1, "place": "memory",
    "arguments": [], "threads": 1, "digest": "",
}  # fmt: skip


def _run(log: bytes, **plan: object) -> bytes:
    return json.dumps({**_PLAN, **plan}).encode() + b"\n--- log\n" + log


def _announcement(requests: bytes, answers: int = 0, truth: int = 0) -> bytes:
    """Return one announcement for the set with serial 1, without ids."""
    return _ONE + _ONE + bytes([truth]) + answers.to_bytes(4, "little") + b"\0\0\0\0" + requests + b"\0" * 5


def _request(
    operation: int = 0, op: int = 1, dtype: int = 6, dimensions: tuple[int, ...] = (2,), shapes: int = 1
) -> bytes:
    """Return one request "x" with `shapes` tensors of the dtype and dimensions."""
    ones = b"\0\0\0\0\0\0\xf0\x3f" * 2
    shape = len(dimensions).to_bytes(4, "little") + b"".join(
        (d % 2**64).to_bytes(8, "little") for d in dimensions
    )
    head = bytes([operation, op]) + ones + b"\xff\xff\xff\xff" + b"\0" + b"\1\0\0\0x" + b"\0\0\0\0"
    return head + b"\1\0\0\0" + bytes([dtype]) + shapes.to_bytes(4, "little") + shape * shapes + b"\0\0\0\0"


REGRESSIONS = (
    Regression("report", b"ended 99999 0", "exit code 99999, of which the shell saw 159"),
    Regression("payload", b"", "JSONDecodeError in the rank"),
    Regression("payload", payload.packed(bytes(32), {"path": 3}, b""), "TypeError in the rank"),
    Regression("slurm", _SLURM % (b"a", _DIGITS), "ValueError: too many digits"),
    Regression("slurm", _SLURM % (b"a[0-%s]" % _DIGITS, b"2"), "ValueError: too many digits"),
    Regression("slurm", _SLURM % (b"a" + b"[0-99999]" * 3, b"2"), "10^15 names, all memory"),
    Regression("slurm", _SLURM % (b"a" + b"[1]" * 3000, b"2"), "RecursionError"),
    Regression("hosts", b"a:" + _DIGITS, "ValueError: too many digits"),
    Regression("hostfile", b"a slots=" + _DIGITS, "ValueError: too many digits"),
    Regression("config file", b"a: 2001-99-99", "ValueError: month must be in 1..12"),
    Regression("config file", b"a: !!timestamp x", "AttributeError"),
    Regression("config file", b"a: !!bool x", "KeyError"),
    Regression("config file", b"[" * 1000, "RecursionError"),
    Regression("config file", b"autotune: {enabled: 0x" + b"f" * 5000 + b"}", "ValueError: too many digits"),
    Regression("config file", _BOMB, "a text of 9^29 words, all memory"),
    Regression("facts of a host", _DEEP, "RecursionError"),
    Regression("facts of a host", b"{", "JSONDecodeError"),
    Regression(
        "facts of a host", b'{"addresses": [["eth0"]], "at": "", "from": ""}', "ValueError: unpack"
    ),
    Regression("facts of a host", b'{"addresses": [["e", "1.2.3.4", 1e999]]}', "OverflowError"),
    Regression("facts of a host", b'{"addresses": [], "at": 1, "from": ""}', "AttributeError"),
    Regression(
        "settings of the core", b"HOROVOD_LOG_LEVEL=\xff", "UnicodeDecodeError without the variable's name"
    ),
    Regression("lab run", _run(b'{"event": []}\n'), "TypeError: unhashable"),
    Regression("lab run", _run(b'{"event": %s}\n' % _DIGITS), "ValueError: too many digits"),
    Regression("lab run", _run(_DEEP + b"\n"), "RecursionError"),
    Regression(
        "lab run", _run(b'{"event": "step", "loss": 1%s}\n' % (b"0" * 400)), "OverflowError on the screen"
    ),
    Regression("lab run", _run(b"", arguments=[[]]), "a plan that cannot be hashed"),
    Regression("environment", b'{"hosts": [{"sockets": [[]]}]}', "AttributeError"),
    Regression("environment", _DEEP, "RecursionError"),
    Regression("numbers of the kernel", b"0-99999999999", "all memory"),
    Regression("gathered codes", (2**64 - 1).to_bytes(8, "little"), "JSONDecodeError"),
    Regression("gathered codes", b"\2\0\0\0\0\0\0\0{}", "KeyError"),
    Regression(
        "gathered codes",
        b'\x25\0\0\0\0\0\0\0{"terms": {}, "codes": ["load", [9]]}',
        "a function of torch for a dtype",
    ),
    Regression("init", b'{"sets": 0, "error": null}', "TypeError"),
    Regression(
        "init",
        b'{"sets": [{"ranks": [0, 1], "from_comm": false}, {"ranks": {}, "from_comm": true}], "error": null, '
        b'"is_dynamic": false}',
        "TypeError: a mapping beside a list",
    ),
    Regression("init", _DEEP, "RecursionError"),
    Regression("terms", b"[]", "AttributeError"),
    Regression("terms", b"\xff", "UnicodeDecodeError"),
    Regression(
        "checkpoint",
        b'{"size": 2, "compressors": {}, "residuals": {"1": {"parameters": {}, "loss_scale": 1%s}}}'
        % (b"0" * 400),
        "OverflowError, steps later",
    ),
    Regression("checkpoint", b'{"size": 2}', "KeyError"),
    Regression("checkpoint", b'{"size": 2, "residuals": {"1": 5}, "compressors": {}}', "TypeError"),
    Regression(
        "checkpoint",
        b'{"size": 2, "residuals": {}, "compressors": {"a.weight": {"q": ""}}}',
        "AttributeError, steps later",
    ),
    Regression("announcements", b"\0\0\0\0x", "bytes behind the message were ignored"),
    Regression(
        "announcements", _announcement(b"\0\0\0\0", truth=2), "a truth value of 2, undefined behaviour"
    ),
    Regression(
        "announcements", _announcement(_ONE + _request(operation=99)), "a name read from outside of the table"
    ),
    Regression(
        "announcements", _announcement(_ONE + _request(op=77)), "a name read from outside of the table"
    ),
    Regression("announcements", _announcement(_ONE + _request(dtype=77)), "a dtype of 0 bytes"),
    Regression(
        "announcements", _announcement(_ONE + _request(shapes=2)), "a dtype read from outside of the list"
    ),
    Regression(
        "announcements", _announcement(_ONE + _request(dimensions=(2**62, 8))), "a size that overflows"
    ),
    Regression("announcements", _announcement(_ONE + _request(dimensions=(-1,))), "a negative size"),
    Regression("coordinator", _announcement(_TWO + _request() + _request()), "one rank counted for two"),
    Regression(
        "coordinator", _announcement(b"\0\0\0\0", answers=3), "a rank owed 2^32 - 3 requests, for ever"
    ),
    Regression("GPUs of ranks", b"\0\0\0\0" * 4 + b"x", "bytes behind the message were ignored"),
)
