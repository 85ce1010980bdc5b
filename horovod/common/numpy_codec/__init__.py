"""The wire formats in readable NumPy: how a float32 becomes a few bits and comes back.

The teaching twin of the native codecs in ``horovod/native/codec``: it produces the same bytes, and can be
followed with pencil and paper. Every step works on sign, exponent and significand as integers, or on float32
arithmetic of a fixed order; no cast hides a step. docs/compression_explained.md explains the formats,
docs/wire_format.md the bytes of a run.
"""

from horovod.common.numpy_codec.bit_runs import (
    bit8_decode,
    bit8_encode,
    bit16_decode,
    bit16_encode,
    bit16_saturated,
    block_scales,
)
from horovod.common.numpy_codec.integer_runs import (
    hadamard,
    int4_decode,
    int4_encode,
    int8_decode,
    int8_encode,
    rotated_decode,
    rotated_encode,
)
from horovod.common.numpy_codec.minifloat import (
    E3M4,
    E4M3,
    E5M2,
    HALF,
    MinifloatFormat,
    decode_minifloat,
    divide_rounding_to_even,
    encode_minifloat,
)
from horovod.common.numpy_codec.named import NamedCodec, codec_of_text, encoded_bytes, named_codec
from horovod.common.numpy_codec.runs import nmse, random_numbers, rotation_signs

__all__ = [
    "E3M4", "E4M3", "E5M2", "HALF", "MinifloatFormat", "NamedCodec", "bit8_decode", "bit8_encode",
    "bit16_decode", "bit16_encode", "bit16_saturated", "block_scales", "codec_of_text", "decode_minifloat",
    "divide_rounding_to_even", "encode_minifloat", "encoded_bytes", "hadamard", "int4_decode", "int4_encode",
    "int8_decode", "int8_encode", "named_codec", "nmse", "random_numbers", "rotated_decode", "rotated_encode",
    "rotation_signs",
]
