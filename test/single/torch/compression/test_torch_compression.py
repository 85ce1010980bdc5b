"""Direct calls of the compressors: classes and configured ones, checks of shapes and options, subclasses."""

import copy
import inspect
import pickle
from typing import Any

import pytest
import torch
from mirrored_job import DTYPES, MirroredEngine
from refusals import refused

import horovod.torch as hvd
from horovod.torch import compression as module
from horovod.torch import devices, errors
from horovod.torch.compression import Bit8Compressor, Bit16Compressor, Compression, Compressor, resolved
from horovod.torch.compression import errors as compression_errors
from horovod.torch.reduce_ops import OP_NAMES

CODECS = [
    Compression.bit16, Compression.bit8, Compression.bit8(block_size=32), Compression.bit8(format="e3m4"),
    Compression.bit8(format="e5m2"), Compression.int8, Compression.int4,
    Compression.int4(rotation="hadamard", levels="lloyd", rounding="nearest", seed=9),
]  # fmt: skip
EXACT = CODECS[:4]  # codecs that represent the test values exactly
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
SHAPES = [(), (0,), (1,), (127,), (128,), (129,), (3, 0, 5), (6, 50, 7)]


def test_names_are_the_classes() -> None:
    assert Compression.bit8 is Bit8Compressor and Compression.bit16 is Bit16Compressor
    assert Compression.none is module.NoneCompressor and Compression.fp16 is module.FP16Compressor
    assert Compression.bf16 is module.BF16Compressor
    for name in ("none", "fp16", "bf16", "bit16", "bit8"):
        assert issubclass(getattr(Compression, name), Compressor)


@pytest.mark.parametrize("codec", CODECS, ids=repr)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_round_trip_keeps_shape_and_dtype(codec: Any, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    # Multiples of 1/8 up to 1: E4M3, E3M4 and half have them exactly.
    values = (torch.arange(torch.Size(shape).numel()) % 16).sub(8).div(8).to(dtype).reshape(shape)
    encoded, ctx = codec.compress(values)
    assert encoded.dtype == torch.uint8 and encoded.dim() == 1
    assert encoded.numel() == resolved(codec).codec.encoded_bytes(values.numel())
    decoded = codec.decompress(encoded, ctx)
    assert decoded.dtype == dtype and decoded.shape == shape
    assert torch.allclose(decoded, values, rtol=0.0, atol=0.0 if codec in EXACT else 0.4)


@pytest.mark.parametrize("codec", CODECS, ids=repr)
def test_views_are_compressed_in_their_own_order(codec: Any) -> None:
    base = torch.arange(64.0).reshape(8, 8).div(8)
    for view in (
        base.t(),
        base[::2, 1::3],
        base.expand(2, 8, 8),
        torch.view_as_complex(base.reshape(32, 2)).conj().imag,
    ):
        encoded, ctx = codec.compress(view)
        assert torch.equal(encoded, codec.compress(view.contiguous().resolve_neg())[0])
        assert codec.decompress(encoded, ctx).shape == view.shape


@pytest.mark.parametrize("codec", CODECS, ids=repr)
def test_integers_pass_untouched_and_gradients_do_not_interfere(codec: Any) -> None:
    for tensor in (torch.arange(5), torch.tensor([True, False]), torch.tensor(3, dtype=torch.uint8)):
        compressed, ctx = codec.compress(tensor)
        assert compressed is tensor and codec.decompress(compressed, ctx) is tensor
    parameter = torch.nn.Parameter(torch.ones(3))
    decoded = codec.decompress(*codec.compress(parameter))
    assert not decoded.requires_grad and torch.allclose(decoded, torch.ones(3), atol=0.3)


def test_bit8_is_smaller_and_near() -> None:
    tensor = torch.randn(100_000, generator=torch.Generator().manual_seed(1))
    encoded, ctx = Compression.bit8.compress(tensor)
    assert encoded.numel() * 8 / tensor.numel() <= 8.1
    error = (Compression.bit8.decompress(encoded, ctx) - tensor).pow(2).sum() / tensor.pow(2).sum()
    assert 6e-4 < error <= 7.2e-4
    half, ctx = Compression.bit16.compress(tensor)
    assert torch.equal(half.view(torch.float16), tensor.half())
    assert torch.equal(Compression.bit16.decompress(half, ctx), tensor.half().float())


def test_what_is_not_finite() -> None:
    poisoned = torch.ones(300)
    poisoned[10], poisoned[200] = float("nan"), float("-inf")
    for codec in CODECS:
        decoded = codec.decompress(*codec.compress(poisoned))
        assert not torch.isfinite(decoded[10]) and not torch.isfinite(decoded[200])
        assert torch.allclose(decoded[256:], torch.ones(44), atol=1e-6 if codec in EXACT else 0.4)
    saturated = Compression.bit16.decompress(*Compression.bit16.compress(torch.tensor([1e6, -1e6])))
    assert torch.equal(saturated, torch.tensor([65504.0, -65504.0]))


def test_a_damaged_run_is_refused() -> None:
    encoded, ctx = Compression.bit8.compress(torch.ones(200))
    for damaged in (encoded[:-1], encoded.float()):
        dtype = str(damaged.dtype)
        with refused(compression_errors.no_codes, elements=damaged.numel(), dtype=dtype, expected=202):
            Compression.bit8.decompress(damaged, ctx)


def test_options_that_are_honoured() -> None:
    configured = Compression.bit8(
        format="e4m3", block_size=32, rounding="nearest", error_feedback=False, min_elements=5
    )
    assert (configured.block_size, configured.min_elements) == (32, 5)
    assert configured.codec.name == "bit8/32" and Compression.bit8.codec.name == "bit8/128"
    assert Compression.bit16(min_elements=0).min_elements == 0 and Compression.bit16.codec.name == "bit16"
    assert Compression.bit8.min_elements == Compression.bit16.min_elements == 1024
    for twin in (copy.deepcopy(configured), pickle.loads(pickle.dumps(configured))):
        assert twin.codec is configured.codec and repr(twin) == repr(configured)


@pytest.mark.parametrize(
    ("codec", "name"),
    [
        (Compression.bit8(format="e5m2", block_size=1024, seed=3), "bit8/1024/e5m2"),
        (Compression.bit8(format="e3m4", rounding="stochastic"), "bit8/128/e3m4/stochastic"),
        (Compression.bit8(rounding="stochastic", seed=3), "bit8/128/stochastic/seed3"),
        (Compression.int8, "int8/128"),
        (Compression.int8(block_size=64, rounding="stochastic", seed=1), "int8/64/stochastic/seed1"),
        (Compression.int8(seed=1, error_feedback=True), "int8/128"),
        (Compression.int4, "int4/128"),
        (Compression.int4(block_size=32, seed=2), "int4/32"),
        (Compression.int4(rotation="hadamard", seed=2), "int4/128/hadamard/seed2"),
        (Compression.int4(rotation="hadamard", levels="lloyd"), "int4/128/hadamard/lloyd"),
    ],
    ids=str,
)
def test_the_codec_has_the_options_that_matter(codec: Any, name: str) -> None:
    assert resolved(codec).codec.name == name, "a seed of nothing is left out"


def test_stochastic_rounding_draws_anew_and_repeats_itself() -> None:
    tensor = torch.full((20_000,), 0.01)
    tensor[::128] = 1.0
    for make in (
        lambda: Compression.bit8(rounding="stochastic", seed=5),
        lambda: Compression.int8(rounding="stochastic", seed=5),
        lambda: Compression.int4(rounding="stochastic", seed=5),
    ):
        first, second = make(), make()
        calls = [first.decompress(*first.compress(tensor)) for _ in range(3)]
        again = [second.decompress(*second.compress(tensor)) for _ in range(3)]
        assert all(map(torch.equal, calls, again)) and not torch.equal(calls[0], calls[1])
        for values in calls:
            small = values[tensor < 1]
            assert abs(small.mean() - 0.01) < 6 * small.std() / small.numel() ** 0.5 + 1e-7
    nearest = Compression.int4
    rounded = nearest.decompress(*nearest.compress(tensor))
    assert torch.all(rounded[tensor < 1] == 0), "without it the small ones are always lost"


def test_a_subclass_has_its_own_default_and_keeps_or_gives_up_the_codec() -> None:
    class Small(Bit8Compressor):
        def __init__(self) -> None:
            super().__init__(block_size=64)

    class Watching(Bit8Compressor):
        @staticmethod
        def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
            return Bit8Compressor.compress(tensor)

    class Inheriting(Watching):
        pass

    assert Small.codec.name == "bit8/64" and Bit8Compressor.codec.name == "bit8/128"
    assert Small.compress(torch.ones(64))[0].numel() == 65
    assert Watching.codec is None and Inheriting.codec is None and Inheriting().codec is None
    assert Watching.combine == "gather"


def test_documentation_is_found_on_the_methods() -> None:
    for codec in CODECS:
        assert "uint8" in inspect.getdoc(codec.compress)


@pytest.mark.parametrize("op", [hvd.Min, hvd.Max, hvd.Product])
@pytest.mark.parametrize("compression", [Compression.bit8, Compression.bit16(min_elements=3)], ids=repr)
def test_codecs_add_only(compression: Any, op: int, engine: MirroredEngine) -> None:
    with refused(errors.compressed_op, tensor="allreduce.apple", op=OP_NAMES[op]):
        hvd.allreduce(torch.ones(3), name="apple", compression=compression, op=op)
    assert not engine.requests
    hvd.allreduce(
        torch.arange(3), name="apple", compression=compression, op=op
    )  # integers are not compressed


def test_routes_to_the_engine(engine: MirroredEngine) -> None:
    class Gathered(Compressor):
        combine = "gather"

        @staticmethod
        def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.Size]:
            return tensor.to(torch.int16), tensor.shape

        @staticmethod
        def decompress(tensor: torch.Tensor, ctx: torch.Size) -> torch.Tensor:
            return tensor.float().reshape(ctx)

    for i, compression in enumerate(["none", "fp16", "bf16", "bit16", "bit8"]):
        hvd.allreduce(torch.ones(4), name=str(i), compression=getattr(Compression, compression))
    hvd.allreduce(torch.ones(4), name="5", compression=Gathered)
    dtypes = [DTYPES[request.tensors[0].dtype] for request in engine.requests]
    assert dtypes == [torch.float32] * 5 + [torch.uint8]
    codecs = [request.codec for request in engine.requests]
    assert codecs == [None, "fp16", "bf16", "bit16", "bit8/128", None]
    assert [request.operation for request in engine.requests] == ["allreduce"] * 5 + ["allgather"]
    assert engine.names() == [f"allreduce.{i}" for i in range(6)]


def test_casts_are_the_cores_where_they_make_a_tensor_smaller(
    engine: MirroredEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The core casts from and to the tensor itself, in place; torch does all other casts."""

    class Halved(Compression.fp16):  # type: ignore[name-defined]
        @staticmethod
        def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
            return Compression.fp16.compress(tensor / 2)

    def codecs_of(*tensors: torch.Tensor, compression: Any = Compression.fp16, op: int = hvd.Sum) -> Any:
        begin = len(engine.requests)
        hvd.grouped_allreduce_(list(tensors), op=op, compression=compression)
        return [(request.codec, *map(dtype_of, request.tensors)) for request in engine.requests[begin:]]

    def dtype_of(tensor: Any) -> torch.dtype:
        return DTYPES[tensor.dtype]

    wide, narrow = torch.ones(4), torch.ones(4, dtype=torch.bfloat16)
    assert codecs_of(wide, wide.double()) == [("fp16", torch.float32, torch.float64)]
    tensor = engine.requests[-1].tensors[0]
    assert tensor.source == tensor.destination == wide.data_ptr()
    assert codecs_of(wide, compression=Compression.bf16) == [("bf16", torch.float32)]
    assert codecs_of(narrow, narrow.half()) == [(None, torch.float16, torch.float16)]
    assert codecs_of(torch.arange(4)) == [(None, torch.int64)]
    assert codecs_of(wide, op=hvd.Max) == [(None, torch.float16)]
    assert codecs_of(wide, compression=Halved) == [(None, torch.float16)]
    monkeypatch.setattr(devices, "device_of", lambda tensor: 0)
    assert module.codec_for(Compression.fp16, wide) is None
    assert module.codec_for(Compression.bit16, wide).name == "bit16"


def test_gathered_sums_are_made_in_float32_and_float64(engine: MirroredEngine) -> None:
    class Halves(Compressor):
        combine = "gather"

        @staticmethod
        def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, None]:
            return tensor, None

        @staticmethod
        def decompress(tensor: torch.Tensor, ctx: None) -> torch.Tensor:
            return tensor

    for dtype in FLOATS:
        # The sum of two of these exceeds float16, a quarter of it does not.
        tensor = torch.full((3,), 60000.0 if dtype == torch.float16 else 3.0, dtype=dtype)
        result = hvd.allreduce(tensor, compression=Halves, op=hvd.Sum, postscale_factor=0.25)
        assert result.dtype == dtype and torch.equal(result, tensor / 2)
    precise = torch.tensor([1.0 + 2.0**-50], dtype=torch.float64)
    assert torch.equal(hvd.allreduce(precise, compression=Halves), precise)
