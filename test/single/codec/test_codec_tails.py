"""Arrays of every short length and of lengths near whole vectors, byte for byte at every instruction set.

Kernels process vectors of 4 to 64 elements and treat the remainder separately; the NumPy twin does not.
"""

from __future__ import annotations

import numpy as np
import pytest
from codec_cases import NAMES, assert_same_bits, gradient_like, with_specials
from native_codec import LEVELS, added, decode, decode_add, decode_two, encode, placed

from horovod import _native as native
from horovod.common.numpy_codec import named_codec

LONGEST = 70


@pytest.mark.parametrize("name", NAMES)
def test_what_is_left_over_of_vectors(name: str) -> None:
    """Guards before and after each output do not change; addresses are odd."""
    twin = named_codec(name)
    codecs = [native.codec_named(name, level=level) for level in LEVELS]
    everything, start = with_specials(gradient_like(LONGEST)), gradient_like(LONGEST, seed=4)
    for count in range(LONGEST + 1):
        x = placed(everything[:count], 4 * (count % 5))
        expected = twin.encode(x, 0.5)
        values = twin.decode(expected, count)
        with np.errstate(over="ignore", invalid="ignore"):
            doubled = (values + values) * np.float32(0.25)
        for codec in codecs:
            what = f"{count} elements at {codec.level}: "
            run, _ = encode(codec, x, 0.5, offset=count % 7)
            assert_same_bits(run, expected, what)
            assert_same_bits(decode(codec, run, count, offset=4 * (count % 3)), values, what)
            assert_same_bits(decode_add(codec, run, start[:count]), added(start[:count], values), what)
            assert_same_bits(decode_two(codec, run, run, count, 0.25), doubled, what)
