"""Corrupt valid inputs: the same seed and number always give the same bytes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

MOST_BYTES = 1 << 16
_POWERS = (2**bits for bits in (7, 8, 31, 40, 63))
_INTEGERS = (0, 1, 2, *_POWERS, *(2**bits - 1 for bits in (7, 8, 16, 31, 32, 63, 64)))
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
    """Makes inputs out of valid ones. `is_json`: they are JSON, or lines of it; values are exchanged too."""

    samples: Sequence[bytes]
    is_json: bool = False

    def input(self, key: str) -> bytes:
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
_Put = Callable[[Random, bytes], bytes]  # returns the replacement of a stretch


def _in_place_of(put: _Put, lengths: Callable[[Random], int] = lambda random: 0) -> _Way:
    """Return the mutation that replaces a stretch with a random start and length."""

    def changed(random: Random, data: bytes, _: Sequence[bytes]) -> bytes:
        begin = random.randint(0, len(data))
        end = min(len(data), begin + lengths(random))
        return data[:begin] + put(random, data[begin:end]) + data[end:]

    return changed


def _short(random: Random) -> int:
    return int(random.expovariate(0.1))


def _flipped_bit(random: Random, part: bytes) -> bytes:
    return bytes(byte ^ 1 << random.randrange(8) for byte in part)


def _often(random: Random, part: bytes) -> bytes:
    return part * random.choice((11, 301, 3001))


def _with_a_part_twice(random: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    begin, at = random.randint(0, len(data)), random.randint(0, len(data))
    return data[:at] + data[begin : begin + _short(random)] + data[at:]


def _spliced(random: Random, data: bytes, samples: Sequence[bytes]) -> bytes:
    other = random.choice(samples)
    return data[: random.randint(0, len(data))] + other[random.randint(0, len(other)) :]


def _with_an_integer(random: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    """Replace a length or count by an extreme one, or by a neighbour of the data's length."""
    size = random.choice((1, 2, 4, 4, 8, 8))
    at = random.randint(0, max(0, len(data) - size))
    number = random.choice((*_INTEGERS, len(data), len(data) - at + random.randint(-2, 2), 2**32 - len(data)))
    order = random.choice(("little", "little", "big"))
    return data[:at] + (number % 2 ** (8 * size)).to_bytes(size, order) + data[at + size :]  # type: ignore[arg-type]


def _with_a_word(random: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    at = random.randint(0, len(data))
    word = random.choice(_WORDS)
    repeated = word * random.choice((1, 1, 1, 1, 2, 3000))
    return data[:at] + repeated + data[at + random.choice((0, len(word))) :]


def _with_another_number(random: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    numbers = list(re.finditer(rb"-?\d+", data))
    if not numbers:
        return data
    found = random.choice(numbers)
    return data[: found.start()] + random.choice(_NUMBERS) + data[found.end() :]


_FLIPPED = _in_place_of(_flipped_bit, lambda random: 1)
_WAYS: tuple[_Way, ...] = (
    *(_FLIPPED, _FLIPPED, _with_a_part_twice, _spliced, _with_an_integer, _with_an_integer, _with_a_word),
    _with_another_number,
    _in_place_of(lambda random, part: random.randbytes(len(part)), _short),
    _in_place_of(lambda random, part: b"", _short),
    _in_place_of(lambda random, part: b"", lambda random: MOST_BYTES),  # cut off the end
    _in_place_of(lambda random, part: random.randbytes(random.randint(1, 16))),
    _in_place_of(_often, lambda random: random.randint(1, 8)),
)


def _with_other_values(random: Random, data: bytes) -> bytes:
    """Change some values of JSON; of several lines, change one of them."""
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
