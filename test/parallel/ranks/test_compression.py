"""Compressed allreduce: what is lost is bounded, nothing else is, and all ranks end with the same bits."""

import pytest
import torch

import horovod.torch as hvd
from horovod.torch.compression import Bit8Compressor, Compressor, resolved

NATIVE = [hvd.Compression.bit16, hvd.Compression.bit8, hvd.Compression.bit8(block_size=32)]
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


class TopHalf(Compressor):
    """Sends values and places of the larger elements of each rank; how many differs by rank."""

    combine = "gather"

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, tuple[torch.Size, torch.dtype]]:
        flat = tensor.reshape(-1).double()
        places = torch.topk(flat.abs(), min(flat.numel(), flat.numel() // 2 + hvd.rank())).indices
        return torch.stack([places.double(), flat[places]]), (tensor.shape, tensor.dtype)

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: tuple[torch.Size, torch.dtype]) -> torch.Tensor:
        shape, dtype = ctx
        places, values = tensor[0].long(), tensor[1]
        return (
            torch.zeros(shape.numel(), dtype=torch.float64)
            .scatter(0, places, values)
            .to(dtype)
            .reshape(shape)
        )


class Halving:
    """Has nothing but the two methods: such a compressor's outputs are summed, as in Horovod."""

    def compress(self, tensor: torch.Tensor) -> tuple[torch.Tensor, torch.dtype]:
        return (tensor * 0.5).half(), tensor.dtype

    def decompress(self, tensor: torch.Tensor, ctx: torch.dtype) -> torch.Tensor:
        return tensor.to(ctx) * 2


class Counting(Bit8Compressor):
    """Overrides a method, which must then be called."""

    calls = 0

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, object]:
        Counting.calls += 1
        return Bit8Compressor.compress(tensor)


EVERY = [
    hvd.Compression.none,
    hvd.Compression.fp16,
    hvd.Compression.bf16,
    *NATIVE,
    TopHalf,
    Halving(),
    Counting,
]


def name_of(compression: object) -> str:
    return getattr(compression, "__name__", type(compression).__name__)


def noise(rank: int, shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(rank)).to(dtype)


def assert_same_bits_everywhere(tensor: torch.Tensor) -> None:
    bits = tensor.contiguous().reshape(-1).view(torch.uint8)
    assert torch.equal(hvd.allgather(bits).reshape(hvd.size(), -1), bits.expand(hvd.size(), -1))


@pytest.mark.parametrize("compression", EVERY, ids=name_of)
@pytest.mark.parametrize("op", [hvd.Sum, hvd.Average])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_sums_are_close_and_equal_on_all_ranks(
    compression: object, op: int, dtype: torch.dtype, size: int
) -> None:
    shape = (37, 129)
    exact = sum(noise(r, shape, dtype).double() for r in range(size)) / (size if op == hvd.Average else 1)
    result = hvd.allreduce(noise(hvd.rank(), shape, dtype), compression=compression, op=op)
    assert result.dtype == dtype and result.shape == shape
    assert_same_bits_everywhere(result)
    error = ((result.double() - exact) ** 2).sum() / (exact**2).sum()
    # Relative squared errors. bit8: 7.0e-4 for normal noise, made twice (contributions, sum), and a tenth
    # more for the luck of few samples and the rounding to dtype. TopHalf drops the smaller half, a tenth of
    # the noise's energy at most. The others round at worst to bfloat16, half a unit in whose last place is
    # 2^-9 of a value: for values, for their sum and for the result.
    if compression is TopHalf:
        assert error <= 0.1
    elif isinstance(resolved(compression), Bit8Compressor):
        assert error <= 2 * 7.0e-4 * 1.1
    else:
        assert error <= (3 * 2.0**-9) ** 2


@pytest.mark.parametrize("compression", EVERY, ids=name_of)
def test_values_that_survive_compression_are_summed_exactly(
    compression: object, rank: int, size: int
) -> None:
    # Powers of two of one sign: every codec has them, and so do their sums over two or four ranks.
    tensor = torch.full((8, 300), 2.0 ** (rank // 2))
    want = tensor.new_full((8, 300), sum(2.0 ** (r // 2) for r in range(size)))
    if compression is TopHalf:
        tensor, want = torch.zeros(8, 300), torch.zeros(8, 300)
        tensor[rank, : 100 + rank] = 4.0
        for r in range(size):
            want[r, : 100 + r] = 4.0
    for _ in range(3):  # agreed anew, then from the response cache
        assert torch.equal(hvd.allreduce(tensor, compression=compression, op=hvd.Sum, name="powers"), want)
    scaled = hvd.allreduce(
        tensor,
        compression=compression,
        op=hvd.Average,
        prescale_factor=0.5,
        postscale_factor=4.0,
        name="scaled",
    )
    assert torch.equal(scaled, want * 2 / size)
    in_place = tensor.clone()
    assert hvd.allreduce_(in_place, op=hvd.Sum, compression=compression) is in_place
    assert torch.equal(in_place, want)
    group = hvd.grouped_allreduce([tensor, tensor * 2], compression=compression, op=hvd.Sum)
    assert torch.equal(group[0], want) and torch.equal(group[1], want * 2)


@pytest.mark.parametrize("count", [33, 100_000])
def test_what_is_cast_overflows_and_averages_do_not(count: int, rank: int) -> None:
    large = torch.full((count,), 60_000.0)
    for compression in (hvd.Compression.fp16, hvd.Compression.bf16):
        average = hvd.allreduce(large, compression=compression)
        assert torch.allclose(average, large, rtol=2.0**-8)
        assert_same_bits_everywhere(average)
    large[-1] = 70_000.0 if rank == 0 else 0.0  # infinite as a half, and a number in bfloat16
    for op in (hvd.Sum, hvd.Average):
        assert hvd.allreduce(large, op=op, compression=hvd.Compression.fp16)[-1] == float("inf")
        assert hvd.allreduce(large, op=op, compression=hvd.Compression.bf16)[-1].isfinite()


@pytest.mark.parametrize("compression", EVERY, ids=name_of)
@pytest.mark.parametrize("poison", [float("nan"), float("inf")], ids=str)
def test_a_nan_of_one_rank_reaches_every_rank(
    compression: object, poison: float, rank: int, size: int
) -> None:
    for culprit in range(size):
        tensor = torch.full((5, 700), 1.0)
        if rank == culprit:
            tensor[3, 123] = poison
        result = hvd.allreduce(tensor, compression=compression, name="poisoned")
        assert not torch.isfinite(result[3, 123])
        if compression is not TopHalf:
            flat = result.reshape(-1)
            flat[3 * 700 // 128 * 128 : 3 * 700 + 128 + 128] = 1.0  # the culprit's own blocks may suffer
            assert torch.equal(flat, torch.ones(3500))


@pytest.mark.parametrize("compression", NATIVE, ids=name_of)
@pytest.mark.parametrize("shape", [(), (1,), (0,), (3, 0, 2), (129,), (2, 3, 5, 7)], ids=str)
def test_any_shape(compression: object, shape: tuple[int, ...], rank: int, size: int) -> None:
    result = hvd.allreduce(torch.full(shape, 2.0), compression=compression, op=hvd.Sum)
    assert torch.equal(result, torch.full(shape, 2.0 * size))


@pytest.mark.parametrize("compression", EVERY, ids=name_of)
def test_integers_are_untouched(compression: object, rank: int, size: int) -> None:
    if isinstance(compression, Halving):
        pytest.skip("this compressor halves whatever it is given")
    tensor = torch.tensor([2**40 + 1, -3, rank])
    want = torch.tensor([size * (2**40 + 1), -3 * size, sum(range(size))])
    assert torch.equal(hvd.allreduce(tensor, compression=compression, op=hvd.Sum), want)
    mixed = hvd.grouped_allreduce([tensor, torch.ones(4)], compression=compression, op=hvd.Sum)
    assert torch.equal(mixed[0], want)


def test_an_overridden_method_is_called() -> None:
    before = Counting.calls
    hvd.allreduce(torch.ones(300), compression=Counting)
    assert Counting.calls == before + 1


@pytest.mark.parametrize("compression", EVERY, ids=name_of)
def test_gradient_is_compressed_in_the_same_way(compression: object, rank: int, size: int) -> None:
    x = torch.full((4, 300), 1.0, requires_grad=True)
    y = hvd.allreduce(x, compression=compression, op=hvd.Sum, prescale_factor=2.0)
    gradient = torch.zeros(4, 300)
    gradient[0, :100] = 2.0 ** (rank // 2)
    y.backward(gradient)
    want = torch.zeros(4, 300)
    want[0, :100] = 2 * sum(2.0 ** (r // 2) for r in range(size))
    assert torch.equal(x.grad, want)


def test_a_compressor_that_depends_on_rank_local_context_says_so(rank: int) -> None:
    class ScaleInContext(Compressor):
        combine = "gather"

        @staticmethod
        def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, int]:
            return tensor.repeat(rank + 1), rank + 1

        @staticmethod
        def decompress(tensor: torch.Tensor, ctx: int) -> torch.Tensor:
            return tensor.reshape(ctx, -1)[0]

    with pytest.raises(hvd.HorovodInternalError, match="ScaleInContext"):
        hvd.allreduce(torch.ones(6), compression=ScaleInContext)
