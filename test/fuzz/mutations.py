"""Spoils valid inputs: the same seed and number always give the same bytes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

MOST_BYTES = 1 << 16
_INTEGERS = (
    0,
    1,
    2,
    127,
    128,
    255,
    256,
    65535,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**40,
    2**63 - 1,
    2**63,
    2**64 - 1,
)
_NUMBERS = (
    b"-1", b"0", b"00", b"1_0", b"+1", b"1e999", b"-1e999", b"1e-999", b"0x7f", b"0b_", b"nan", b"NaN",
    b"inf", b"Infinity", b"4294967296", b"9223372036854775807", b"18446744073709551616", b"9" * 400,
    b"9" * 5000, "\u0663".encode(), "\u00b2".encode(), b"1.2.3", b"0-99999999999", b"99999",
)  # fmt: skip
_WORDS = (
    *_NUMBERS,
    b"\0", b"\xff", b"\xfe\xff", b"\xc0\x80", b"\xed\xa0\x80", "\u2028".encode(), b"\x0b", b"\x85", b"\r",
    b"\n", b"[", b"{", b"(", b'"', b"'", b"`", b"\\", b"\x1b[", b"%s", b"${HOME}", b",", b":", b"=", b"#",
    b"&a ", b"*a", b"null", b"true", b"[]", b"{}", b'""', b"[[]]", b'{"a":{}}', b"!!float x",
    b"!!timestamp x", b"2001-99-99", b"../", b"a" * 300, "\U0001f680".encode(), b"-", b"--", b" ", b"\t",
)  # fmt: skip
_JUNK: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 3, 2**31, 2**63, 2**64, 10**400, 0.5, 1e308, -1e308, float("nan"),
    float("inf"), "", "a", "a b", "\u0663", "\0", "\ud800", "9" * 5000, "10.0.0.1/24", "0.0.0.0/0", "::1",
    [], [[]], [0], {}, {"": 0}, {"a": [{}]},
)  # fmt: skip


@dataclass(frozen=True)
class Spoiler:
    """Makes inputs out of valid ones. `is_json`: these are JSON, or lines of it; values are exchanged too."""

    samples: Sequence[bytes]
    is_json: bool = False

    def input(self, key: str) -> bytes:
        """The input that belongs to a key."""
        random = Random(key)
        data = random.choice(self.samples)
        if self.is_json and random.random() < 0.6:
            data = _with_other_values(random, data)
            if random.random() < 0.7:
                return data[:MOST_BYTES]
        for _ in range(min(1 + int(random.expovariate(0.8)), 6)):
            data = random.choice(_WAYS)(random, data, self.samples)[:MOST_BYTES]
        return data


_Way = Callable[[Random, bytes, Sequence[bytes]], bytes]


def _range(random: Random, data: bytes) -> tuple[int, int]:
    """A stretch of the data, more often a short one."""
    begin = random.randint(0, len(data))
    return begin, min(len(data), begin + int(random.expovariate(0.1)))


def _flipped_bit(random: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    if not data:
        return data
    at = random.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << random.randrange(8)]) + data[at + 1 :]


def _changed_bytes(random: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    begin, end = _range(random, data)
    return data[:begin] + random.randbytes(end - begin) + data[end:]


def _truncated(random: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    return data[: random.randint(0, len(data))]


def _without_a_part(random: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    begin, end = _range(random, data)
    return data[:begin] + data[end:]


def _with_random_bytes(random: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    at = random.randint(0, len(data))
    return data[:at] + random.randbytes(random.randint(1, 16)) + data[at:]


def _with_a_part_twice(random: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    (begin, end), at = _range(random, data), random.randint(0, len(data))
    return data[:at] + data[begin:end] + data[at:]


def _with_a_part_often(random: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    begin = random.randint(0, len(data))
    part = data[begin : begin + random.randint(1, 8)]
    return data[:begin] + part * random.choice((10, 300, 3000)) + data[begin:]


def _spliced(random: Random, data: bytes, samples: Sequence[bytes]) -> bytes:
    other = random.choice(samples)
    return data[: random.randint(0, len(data))] + other[random.randint(0, len(other)) :]


def _with_an_integer(random: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    """A length or count that is extreme, or beside that of the data."""
    size = random.choice((1, 2, 4, 4, 8, 8))
    at = random.randint(0, max(0, len(data) - size))
    number = random.choice((*_INTEGERS, len(data), len(data) - at + random.randint(-2, 2), 2**32 - len(data)))
    order = random.choice(("little", "little", "big"))
    return data[:at] + (number % 2 ** (8 * size)).to_bytes(size, order) + data[at + size :]  # type: ignore[arg-type]


def _with_a_word(random: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    at = random.randint(0, len(data))
    word = random.choice(_WORDS)
    return (
        data[:at] + word * random.choice((1, 1, 1, 1, 2, 3000)) + data[at + random.choice((0, len(word))) :]
    )


def _with_another_number(random: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    numbers = list(re.finditer(rb"-?\d+", data))
    if not numbers:
        return data
    found = random.choice(numbers)
    return data[: found.start()] + random.choice(_NUMBERS) + data[found.end() :]


_WAYS: tuple[_Way, ...] = (
    _flipped_bit, _flipped_bit, _changed_bytes, _truncated, _without_a_part, _with_random_bytes,
    _with_a_part_twice,
    _with_a_part_often, _spliced, _with_an_integer, _with_an_integer, _with_a_word, _with_another_number,
)  # fmt: skip


def _with_other_values(random: Random, data: bytes) -> bytes:
    """JSON in which some values are others; of several lines, of one of them."""
    lines = data.split(b"\n")
    at = random.randrange(len(lines))
    for begin in (at, *range(len(lines))):
        try:
            value = json.loads(lines[begin])
        except ValueError:
            continue
        for _ in range(random.randint(1, 2)):
            value = _with_another_value(random, value)
        lines[begin] = json.dumps(value).encode()
        break
    return b"\n".join(lines)


def _with_another_value(random: Random, value: Any) -> Any:
    if not isinstance(value, dict | list) or not value or random.random() < 0.15:
        return random.choice(_JUNK)
    keys = list(value) if isinstance(value, dict) else list(range(len(value)))
    key = random.choice(keys)
    whole = value.copy()
    if random.random() < 0.1:
        del whole[key]
    else:
        whole[key] = _with_another_value(random, whole[key])
    if isinstance(whole, dict) and random.random() < 0.05:
        whole["unknown"] = random.choice(_JUNK)
    return whole
