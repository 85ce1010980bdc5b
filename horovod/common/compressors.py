"""The package's compressors, their options, and the variables that choose one.

The launcher and `import torch` read them too, so this imports only the standard library. A test compares the
table with the classes in horovod/torch/compression.
"""

from __future__ import annotations

import re

from horovod.common.sentences import closest, did_you_mean

COMPRESSION = "HOROVOD_COMPRESSION"
DDP_COMPRESSION = "HOROVOD_DDP_COMPRESSION"
COMPRESSION_FORCE = "HOROVOD_COMPRESSION_FORCE"

_OF_ALL = ("error_feedback", "min_elements")
_OF_BLOCKS = ("block_size", "rounding", "seed", *_OF_ALL)
COMPRESSORS: dict[str, tuple[str, ...]] = {
    "none": (),
    "fp16": (),
    "bf16": (),
    "bit16": _OF_ALL,
    "bit8": ("format", *_OF_BLOCKS),
    "int8": _OF_BLOCKS,
    "int4": ("rotation", "levels", *_OF_BLOCKS),
    "topk": ("ratio", "k", *_OF_ALL),
    "powersgd": ("rank", "warm_start", "seed", *_OF_ALL),
}
# Names in other packages and papers.
_ELSEWHERE = {
    **dict.fromkeys(("fp8", "float8", "8bit"), "bit8"),
    **dict.fromkeys(("float16", "half", "16bit"), "fp16"),
    "bfloat16": "bf16",
    "4bit": "int4",
    "off": "none",
}
_TEXT = re.compile(r"\s*(\w+)\s*(?::(.*))?", re.DOTALL)


def name_meant(name: str) -> str:
    """The compressor that a wrong name probably means; "" if none is close."""
    return _ELSEWHERE.get(name.lower()) or closest(name, COMPRESSORS)


def complaint(text: str) -> tuple[str, bool]:
    """The error in a compressor's text, as far as names show it ("" if none), and whether it is certain.

    A name that resembles no known one may be of a script's own compressor.
    """
    match = _TEXT.fullmatch(text)
    if match is None:
        return "it is not written as name, or name:option=value,option=value", True
    name, options = match[1], match[2] or ""
    known = COMPRESSORS.get(name.lower())
    if known is None:
        meant = name_meant(name)
        hint = f"; did you mean {meant}?" if meant else ""
        # A name that contains one of ours, such as int8_ef, is more likely a script's own than mistyped.
        is_slip = bool(meant) and not set(name.lower().split("_")) & set(COMPRESSORS)
        return f"there is no {name!r}; there are {', '.join(COMPRESSORS)}{hint}", is_slip
    for option in filter(None, (part.partition("=")[0].strip() for part in options.split(","))):
        if option not in known:
            has = ", ".join(known) or "none"
            hint = did_you_mean(option, known)
            return f"{name} has no option {option!r}{hint} (its options: {has})", name in COMPRESSORS
    return "", True
