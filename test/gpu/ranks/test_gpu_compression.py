"""Compressed operations on a GPU: the CPU's bits, whatever the compressor."""

from typing import Any

import pytest
import torch
from machine import Machine

import horovod.torch as hvd
from horovod.torch.compression import Bit8Compressor, Compressor

C = hvd.Compression
CODECS = {
    "bit16": C.bit16,
    "bit8": C.bit8,
    "e5m2/32": C.bit8(format="e5m2", block_size=32),
    "e3m4": C.bit8(format="e3m4"),
    "int8": C.int8,
    "int4": C.int4,
    "stochastic": C.int8(rounding="stochastic", seed=7),
    "stochastic int4": C.int4(rounding="stochastic", seed=7),
    "hadamard": C.int4(rotation="hadamard", seed=3),
    "lloyd": C.int4(rotation="hadamard", levels="lloyd", seed=3),
}
FLOATS = [torch.float16, torch.bfloat16, torch.float32]
SIZES = [0, 1, 31, 127, 128, 129, 5003]


class WithContext(Compressor):
    """Codes whose number differs by rank, and a context on the GPU; written without a thought of devices."""

    combine = "gather"

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, tuple[torch.Tensor, torch.dtype]]:
        flat = tensor.reshape(-1).float()
        extra = flat.new_zeros(hvd.rank())
        return torch.cat([flat, extra]), (torch.ones_like(flat).reshape(tensor.shape), tensor.dtype)

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: tuple[torch.Tensor, torch.dtype]) -> torch.Tensor:
        ones, dtype = ctx
        return (tensor[: ones.numel()].reshape(ones.shape) * ones).to(dtype)


class Overridden(Bit8Compressor):
    """Gives up the core's codec, and calls it by hand."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        codes, ctx = Bit8Compressor.compress(tensor)
        assert codes.device == tensor.device
        return codes, ctx


OTHERS = {
    "none": C.none,
    "fp16": C.fp16,
    "bf16": C.bf16,
    "topk": C.topk(ratio=0.1),
    "powersgd": C.powersgd(rank=2),
    "own": WithContext,
    "overridden": Overridden,
}


def noise(rank: int, count: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1000 * rank + count)
    return torch.randn(count, generator=generator).to(dtype)


def assert_alike_everywhere(tensor: torch.Tensor) -> None:
    bits = tensor.cpu().view(torch.uint8) if tensor.dim() else tensor.cpu().reshape(1).view(torch.uint8)
    gathered = hvd.allgather_object(bits)
    assert all(torch.equal(gathered[0], other) for other in gathered)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("codec", [name for name in CODECS if not name.startswith("stochastic")])
def test_codecs_give_the_cpus_bits(codec: str, dtype: torch.dtype, machine: Machine, rank: int) -> None:
    tensors = [noise(rank, count, dtype) for count in SIZES]
    for attempt in range(2):  # agreed anew, then from the response cache
        given, want = machine.twice(
            lambda where, x: hvd.grouped_allreduce(
                x, name=f"{where}.{codec}.{dtype}", op=hvd.Average, compression=CODECS[codec]
            ),
            tensors,
        )
        for one, other in zip(given, want, strict=True):
            assert one.device == machine.device
            assert torch.equal(one.cpu(), other), f"{codec} {dtype} {len(other)} elements, {attempt}"
            assert_alike_everywhere(one)


@pytest.mark.parametrize("codec", ["stochastic", "stochastic int4"])
def test_random_numbers_are_others_each_time_and_right_on_average(
    codec: str, machine: Machine, rank: int, size: int
) -> None:
    """That they are the CPU's is seen in training, where each parameter's begin anew."""
    x = noise(rank, 1000)
    want = hvd.allreduce(machine.gpu(x), name="exact").cpu()
    results = [
        hvd.allreduce(machine.gpu(x), name=codec, compression=CODECS[codec]).cpu() for _ in range(16)
    ]
    if size == 1:  # nothing travels, so nothing is rounded
        assert all(torch.equal(each, want) for each in results)
        return
    assert not torch.equal(results[0], results[1])
    assert_alike_everywhere(results[0])
    errors = [float((each - want).square().mean().sqrt()) for each in results]
    of_mean = float((torch.stack(results).mean(0) - want).square().mean().sqrt())
    assert of_mean < 0.5 * sum(errors) / len(errors)


@pytest.mark.parametrize("name", [*CODECS, *OTHERS])
def test_values_that_survive_are_summed_exactly(name: str, machine: Machine, rank: int, size: int) -> None:
    compression = (CODECS | OTHERS)[name]
    exact = name not in ("topk", "powersgd", "hadamard", "lloyd")
    x = machine.gpu(torch.full((8, 300), 2.0 ** (rank // 2)))
    want = torch.full((8, 300), sum(2.0 ** (r // 2) for r in range(size)))
    for _ in range(2):
        total = hvd.allreduce(x, compression=compression, op=hvd.Sum, name=f"powers.{name}")
        assert total.device == machine.device
        assert not exact or torch.equal(total.cpu(), want)
        assert_alike_everywhere(total)
    in_place = x.clone()
    assert hvd.allreduce_(in_place, compression=compression, op=hvd.Sum) is in_place
    assert not exact or torch.equal(in_place.cpu(), want)


@pytest.mark.parametrize(("name", "dtype"), [("fp16", torch.float16), ("bf16", torch.bfloat16)])
def test_casts_are_torchs_and_added_as_they_are(
    name: str, dtype: torch.dtype, machine: Machine, rank: int
) -> None:
    x = machine.gpu(noise(rank, 40 * 50))
    want = hvd.allreduce(x.to(dtype), name=f"plain.{name}").float()
    assert torch.equal(hvd.allreduce(x, name=f"cast.{name}", compression=OTHERS[name]), want)


@pytest.mark.parametrize("name", ["topk", "own", "overridden"])
def test_what_python_computes_is_the_same(name: str, machine: Machine, rank: int) -> None:
    given, want = machine.twice(
        lambda where, x: hvd.allreduce(x[0], name=f"{where}.{name}", compression=OTHERS[name]),
        [noise(rank, 40 * 50).reshape(40, 50)],
    )
    assert torch.equal(given.cpu(), want)


@pytest.mark.parametrize("poison", [float("nan"), float("inf")], ids=str)
@pytest.mark.parametrize("name", [*CODECS, *OTHERS])
def test_what_is_not_finite_reaches_every_rank(
    name: str, poison: float, machine: Machine, rank: int, size: int
) -> None:
    for culprit in {0, size - 1}:
        x = torch.full((5, 700), 1.0)
        if rank == culprit:
            x[3, 123] = poison
        total = hvd.allreduce(machine.gpu(x), compression=(CODECS | OTHERS)[name], name=f"poisoned.{name}")
        assert not torch.isfinite(total[3, 123]).item()


@pytest.mark.parametrize("codec", ["bit16", "bit8", "int4"])
def test_compressed_reducescatter(codec: str, machine: Machine, rank: int, size: int) -> None:
    x = noise(rank, 512 * size).reshape(4 * size, 128)
    given, want = machine.twice(
        lambda where, x: hvd.reducescatter(x[0], name=f"{where}.{codec}", compression=CODECS[codec]), [x]
    )
    assert given.device == machine.device and torch.equal(given.cpu(), want)


def test_float64_and_integers_beside_codes(machine: Machine, rank: int, size: int) -> None:
    wide = hvd.allreduce(machine.gpu(noise(rank, 1000).double()), compression=C.bit8, op=hvd.Sum)
    want = torch.stack([noise(r, 1000).double() for r in range(size)]).sum(0)
    assert wide.dtype == torch.float64 and wide.device == machine.device
    assert (wide.cpu() - want).norm() < 0.06 * want.norm()
    assert_alike_everywhere(wide)
    mixed = hvd.grouped_allreduce(
        [machine.gpu(torch.tensor([2**40 + 1, rank])), machine.gpu(torch.ones(4))],
        compression=C.bit8,
        op=hvd.Sum,
    )
    assert mixed[0].tolist() == [size * (2**40 + 1), sum(range(size))]


@pytest.mark.parametrize("codec", ["bit16", "bit8", "int8", "int4"])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_tensors_that_begin_anywhere(codec: str, dtype: torch.dtype, machine: Machine, rank: int) -> None:
    """Kernels read 16 bytes at a time where they can, and these addresses are no multiples of that."""

    def shifted(where: str, x: Any) -> torch.Tensor:
        parts = [x[0][begin : begin + 1031] for begin in (1, 1040, 2075, 3110)]
        hvd.synchronize(
            hvd.grouped_allreduce_async_(parts, name=f"{where}.{dtype}", compression=CODECS[codec])
        )
        return x[0]

    given, want = machine.twice(shifted, [noise(rank, 5000, dtype)])
    assert torch.equal(given.cpu(), want)


@pytest.mark.parametrize("codec", ["bit8", "int4"])
def test_more_than_a_buffer_holds(codec: str, machine: Machine, rank: int) -> None:
    count = 1_000_003
    given, want = machine.twice(
        lambda where, x: hvd.allreduce(x[0], name=f"{where}.large", compression=CODECS[codec]),
        [noise(rank, count)],
    )
    assert torch.equal(given.cpu(), want)
