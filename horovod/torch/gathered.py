"""The allgather route of allreduce, for codes that cannot be added before they are decompressed.

Every rank gathers all codes, decompresses and adds them. A rank's contribution is one run of bytes, so sizes
and shapes may differ by rank:

    payload := length of the header (8 bytes, little endian), header (JSON), zeros up to a multiple of 16,
               codes as their dtype's bytes, zeros up to a multiple of 16

The header describes the codes and the terms of the operation. For the core this is an allgather of bytes, so
each rank checks from the headers that all ranks agree.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from horovod.common.sentences import facts_of
from horovod.torch import errors
from horovod.torch.compression import compressor_name
from horovod.torch.reduce_ops import OP_NAMES, Average, ReduceArguments
from horovod.torch.residuals import TensorFeedback, compressed_with
from horovod.torch.tensors import aligned

LONGEST_HEADER = 1024  # bytes that are read at once; a longer header costs one more copy


class Contribution(NamedTuple):
    """This rank's contribution to a gathered allreduce, and what it needs to read the others'."""

    label: str
    payload: torch.Tensor
    terms: dict[str, Any]
    ctx: Any
    compressor: Any


def contribution(
    label: str,
    tensor: torch.Tensor,
    arguments: ReduceArguments,
    compressor: Any,
    feedback: TensorFeedback | None = None,
) -> Contribution:
    """Compress ``tensor`` and return its payload. ``label`` is the operation's wire name."""
    values = tensor.detach()
    if arguments.prescale != 1.0:
        values = values * arguments.prescale
    codes, ctx = compressed_with(compressor, values, feedback)
    terms = {
        "shape": list(tensor.shape),
        "dtype": _dtype_name(tensor.dtype),
        "op": OP_NAMES[arguments.op],
        "prescale": arguments.prescale,
        "postscale": arguments.postscale,
        "compressor": compressor_name(compressor),
    }
    header = json.dumps({"terms": terms, "codes": [_dtype_name(codes.dtype), list(codes.shape)]}).encode()
    start = aligned(8 + len(header))
    code_bytes = codes.detach().contiguous().reshape(-1).view(torch.uint8)
    head = torch.frombuffer(
        bytearray((len(header).to_bytes(8, "little") + header).ljust(start, b"\0")), dtype=torch.uint8
    )
    padding = code_bytes.new_zeros(aligned(code_bytes.numel()) - code_bytes.numel())
    payload = torch.cat([head.to(codes.device), code_bytes, padding])
    return Contribution(label, payload, terms, ctx, compressor)


def reduced(own: Contribution, gathered: torch.Tensor, sizes: Sequence[int]) -> torch.Tensor:
    """Return the allreduced tensor, from all ranks' payloads.

    Contributions are added in rank order, so that all ranks get the same bits.

    HorovodInternalError if ranks disagree, or a rank's codes cannot be decompressed.
    """
    parts = _unwrapped(own.label, torch.split(gathered, list(sizes)))
    _check_agreement(own.label, [terms for terms, _ in parts])
    dtype = getattr(torch, own.terms["dtype"])
    total = None
    for rank, (_, codes) in enumerate(parts):
        total = _added(total, own, codes, rank)
    assert total is not None
    scale = own.terms["postscale"] / (len(sizes) if own.terms["op"] == OP_NAMES[Average] else 1)
    return (total if scale == 1.0 else total.mul_(scale)).to(dtype)


def _added(total: torch.Tensor | None, own: Contribution, codes: torch.Tensor, rank: int) -> torch.Tensor:
    """Add a rank's decompressed codes to ``total`` in place. None starts a new sum."""
    wide = torch.float64 if own.terms["dtype"] == "float64" else torch.float32
    try:
        if callable(add := getattr(own.compressor, "decompress_add", None)):
            if total is None:
                total = torch.zeros(own.terms["shape"], dtype=wide, device=codes.device)
            add(codes, own.ctx, total)
            return total
        values: torch.Tensor = own.compressor.decompress(codes, own.ctx).to(wide)
    except Exception as error:
        about = facts_of(
            error,
            tensor=own.label,
            ranks=[rank],
            dtype=str(codes.dtype),
            shape=list(codes.shape),
            compressor=own.terms["compressor"],
        )
        raise errors.not_decompressed(**about) from error
    if list(values.shape) != own.terms["shape"]:
        raise errors.decompressed_otherwise(
            tensor=own.label,
            ranks=[rank],
            compressor=own.terms["compressor"],
            got=list(values.shape),
            shape=own.terms["shape"],
        )
    return values.clone() if total is None else total.add_(values)


def _unwrapped(label: str, payloads: Sequence[torch.Tensor]) -> list[tuple[dict[str, Any], torch.Tensor]]:
    parts = []
    for rank, (payload, header) in enumerate(zip(payloads, _headers(payloads), strict=True)):
        try:
            parts.append(_parts_of(payload, header))
        except (ValueError, TypeError, LookupError, RuntimeError, RecursionError) as error:
            about = facts_of(error, tensor=label, ranks=[rank], why=f"{type(error).__name__}: {error}")
            raise errors.not_understood(**about) from error
    return parts


def _parts_of(payload: torch.Tensor, header: bytes) -> tuple[dict[str, Any], torch.Tensor]:
    length = int.from_bytes(header[:8], "little")
    said = json.loads(header[8 : 8 + length])
    terms, (dtype_name, shape) = said["terms"], said["codes"]
    dtype = getattr(torch, dtype_name, None)
    if not isinstance(terms, dict) or not isinstance(dtype, torch.dtype):
        raise ValueError(f"no terms, or no dtype: {dtype_name!r}")
    if not all(isinstance(size, int) and size >= 0 for size in shape):
        raise ValueError(f"no shape: {shape!r}")
    start = aligned(8 + length)
    count = math.prod(shape) * dtype.itemsize
    if start + count > payload.numel():
        raise ValueError(f"{payload.numel()} bytes, and codes of {count} bytes from byte {start} on")
    return terms, payload[start : start + count].view(dtype).reshape(shape)


def _headers(payloads: Sequence[torch.Tensor]) -> list[bytes]:
    """Return the first bytes of each payload, with its header.

    From a GPU they come in one copy, for which the host waits: only the host can compare terms and find the
    sizes of codes. This is the price of a compressor that the core does not know.
    """
    firsts = torch.cat([payload[:LONGEST_HEADER] for payload in payloads]).cpu().numpy().tobytes()
    headers, begin = [], 0
    for payload in payloads:
        header = firsts[begin : begin + LONGEST_HEADER]
        begin += min(LONGEST_HEADER, payload.numel())
        length = int.from_bytes(header[:8], "little")
        if 8 + length > LONGEST_HEADER:
            header = payload[: min(8 + length, payload.numel())].cpu().numpy().tobytes()
        headers.append(header)
    return headers


def _check_agreement(label: str, terms_by_rank: list[dict[str, Any]]) -> None:
    for term in terms_by_rank[0]:
        values = [terms.get(term) for terms in terms_by_rank]
        if any(value != values[0] for value in values):
            raise errors.terms_differ(tensor=label, term=term, values=dict(enumerate(map(str, values))))


def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
