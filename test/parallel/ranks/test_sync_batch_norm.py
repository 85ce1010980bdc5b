"""SyncBatchNorm over all ranks equals one BatchNorm over the concatenated batches, with equal bits."""

import copy
import io
import itertools
from collections.abc import Iterator
from unittest import mock

import pytest
import torch
from places import Place
from rank_fixtures import process_sets, seeded
from refusals import refused

import horovod.torch as hvd
from horovod.torch import errors, sync_batch_norm

CHANNELS = 6
SHAPES = {"NC": (), "NCL": (5,), "NCHW": (4, 3), "NCDHW": (2, 3, 2)}
# 2e-5 is some hundred roundings of float32; half precision has one rounding of the result.
TOLERANCE = {torch.float64: 1e-12, torch.float32: 2e-5, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}

Layer = torch.nn.modules.batchnorm._BatchNorm


class WholeBatchNorm(Layer):
    """torch's BatchNorm, for input of any number of dimensions."""

    def _check_input_dim(self, input: torch.Tensor) -> None:
        pass


def close(found: torch.Tensor | None, wanted: torch.Tensor | None, tolerance: float = 2e-5) -> None:
    assert (found is None) == (wanted is None)
    if found is not None and wanted is not None:
        assert found.dtype == wanted.dtype
        torch.testing.assert_close(found, wanted, rtol=tolerance, atol=tolerance)


def batches(
    size: int, shape: tuple[int, ...], dtype: torch.dtype = torch.float32, seed: int = 0
) -> list[torch.Tensor]:
    """Return a batch for each rank, equal on all: of several lengths, empty on rank 1, means around 3."""
    generator = torch.Generator().manual_seed(seed)
    lengths = [(4, 0, 7, 3)[rank % 4] for rank in range(size)]
    return [
        (torch.randn(length, CHANNELS, *shape, generator=generator, dtype=torch.float64) * 2 + 3).to(dtype)
        for length in lengths
    ]


def like(layer: hvd.SyncBatchNorm) -> WholeBatchNorm:
    """Return one BatchNorm with the layer's parameters and buffers."""
    whole = WholeBatchNorm(
        layer.num_features, layer.eps, layer.momentum, layer.affine, layer.track_running_stats
    )
    for first in itertools.islice(layer.state_dict().values(), 1):
        whole.to(first.device, first.dtype)
    whole.load_state_dict(layer.state_dict())
    return whole.train(layer.training)


def randomised(layer: hvd.SyncBatchNorm) -> hvd.SyncBatchNorm:
    if layer.affine:
        with seeded(7):
            torch.nn.init.normal_(layer.weight)
            torch.nn.init.normal_(layer.bias)
    return layer


def check(layer: hvd.SyncBatchNorm, inputs: list[torch.Tensor], rank: int, tolerance: float = 2e-5) -> None:
    """Compare a forward and backward pass with the concatenation's: outputs, gradients and buffers."""
    whole = like(layer)
    own = inputs[rank].detach().requires_grad_()
    every = torch.cat(inputs).detach().requires_grad_()
    offset = sum(len(x) for x in inputs[:rank])
    output, wanted = layer(own), whole(every)
    assert output.dtype == own.dtype and output.shape == own.shape
    close(output, wanted[offset : offset + len(own)], tolerance)
    slopes = torch.randn(every.shape, generator=torch.Generator().manual_seed(9)).to(every)
    (output * slopes[offset : offset + len(own)]).sum().backward()
    (wanted * slopes).sum().backward()
    assert own.grad is not None and every.grad is not None
    close(own.grad, every.grad[offset : offset + len(own)], tolerance)
    for found, parameter in zip(layer.parameters(), whole.parameters(), strict=True):
        # Local sums, which DistributedOptimizer would reduce; here the test sums them.
        assert found.grad is not None
        scale = max(1.0, float(parameter.grad.abs().max()))
        total = hvd.allreduce(found.grad, op=hvd.Sum, process_set=layer.process_set)
        close(total / scale, parameter.grad / scale, tolerance)
    for found, buffer in zip(layer.buffers(), whole.buffers(), strict=True):
        close(found, buffer, tolerance)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("shape", SHAPES)
def test_equals_one_batch_norm(shape: str, dtype: torch.dtype, place: Place, rank: int, size: int) -> None:
    layer = randomised(hvd.SyncBatchNorm(CHANNELS)).to(place.device)
    if dtype == torch.float64:
        layer = layer.double()
    for seed in range(2):
        inputs = [place.put(x) for x in batches(size, SHAPES[shape], dtype, seed)]
        check(layer, inputs, rank, TOLERANCE[dtype])
        layer.zero_grad()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_a_model_of_half_precision(dtype: torch.dtype, rank: int, size: int) -> None:
    layer = randomised(hvd.SyncBatchNorm(CHANNELS)).to(dtype)
    check(layer, batches(size, (4, 3), dtype), rank, 4 * TOLERANCE[dtype])
    assert {tensor.dtype for tensor in layer.parameters()} == {dtype}


@pytest.mark.parametrize("momentum", [None, 0.0, 0.3, 1.0])
@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("tracks", [True, False])
def test_options(momentum: float | None, affine: bool, tracks: bool, rank: int, size: int) -> None:
    layer = randomised(hvd.SyncBatchNorm(CHANNELS, 1e-3, momentum, affine, tracks))
    for seed in range(3):
        check(layer, batches(size, (4,), seed=seed), rank)
        layer.zero_grad()


def test_without_bias(rank: int, size: int) -> None:
    original = torch.nn.BatchNorm2d(CHANNELS, bias=False)
    layer = hvd.SyncBatchNorm.convert_sync_batchnorm(original)
    every = torch.cat(batches(size, (4, 3)))
    own = batches(size, (4, 3))[rank]
    offset = sum(len(x) for x in batches(size, ())[:rank])
    close(layer(own), torch.nn.BatchNorm2d(CHANNELS)(every)[offset : offset + len(own)])


@pytest.mark.parametrize("form", ["channels_last", "transposed", "sliced", "expanded", "negated"])
def test_memory_formats(form: str, rank: int, size: int) -> None:
    make = {
        "channels_last": lambda x: x.contiguous(memory_format=torch.channels_last),
        "transposed": lambda x: x.transpose(2, 3),
        "sliced": lambda x: x.repeat(1, 1, 1, 2)[..., ::2],
        "expanded": lambda x: x[..., :1].expand(x.shape),
        "negated": lambda x: torch.complex(x, x).conj().imag,
    }[form]
    inputs = [make(x) for x in batches(size, (4, 4))]
    check(randomised(hvd.SyncBatchNorm(CHANNELS)), inputs, rank)
    if form == "channels_last":
        own = inputs[rank].requires_grad_()
        output = hvd.SyncBatchNorm(CHANNELS)(own)
        output.sum().backward()
        for tensor in (output, own.grad):
            assert tensor is not None and tensor.is_contiguous(memory_format=torch.channels_last)


def test_shapes_may_differ_by_rank(rank: int, size: int) -> None:
    lengths = [1 + 3 * r for r in range(size)]
    rows = torch.randn(CHANNELS, sum(lengths), generator=torch.Generator().manual_seed(1))
    own = rows.split(lengths, dim=1)[rank]
    found = hvd.SyncBatchNorm(CHANNELS)(own.reshape(1, CHANNELS, -1))
    wanted = torch.nn.BatchNorm1d(CHANNELS)(rows.t()).t().split(lengths, dim=1)[rank]
    close(found.reshape(CHANNELS, -1), wanted)


def test_large_means_cancel_nothing(rank: int, size: int) -> None:
    """Sums of squares in float32 would lose all digits here."""
    inputs = [x + 1000 for x in batches(size, (4, 4))]
    layer = hvd.SyncBatchNorm(CHANNELS, momentum=1.0)
    layer(inputs[rank])
    close(layer.running_var, torch.cat(inputs).double().var(dim=(0, 2, 3)).float(), 1e-3)


def test_a_batch_that_is_empty_everywhere() -> None:
    layer, whole = hvd.SyncBatchNorm(CHANNELS), WholeBatchNorm(CHANNELS)
    x = torch.empty(0, CHANNELS, 4, requires_grad=True)
    output = layer(x)
    output.sum().backward()
    whole(x.detach())
    assert output.shape == x.shape and x.grad is not None and x.grad.shape == x.shape
    for found, wanted in zip(layer.state_dict().values(), whole.state_dict().values(), strict=True):
        assert torch.equal(found, wanted)


def test_a_single_value_on_all_ranks_together(rank: int) -> None:
    layer = hvd.SyncBatchNorm(CHANNELS)
    with refused(errors.one_value):
        layer(torch.ones(1 if rank == 0 else 0, CHANNELS))
    assert int(layer.num_batches_tracked) == 0
    layer(torch.ones(1, CHANNELS))


def operations() -> Iterator[list[str]]:
    """Return the names of the operations that the layers start."""
    names: list[str] = []

    def noted(start):  # type: ignore[no-untyped-def]
        def started(tensor, name, **options):  # type: ignore[no-untyped-def]
            names.append(name)
            return start(tensor, name=name, **options)

        return started

    gather, reduce = sync_batch_norm.allgather_async, sync_batch_norm.allreduce_async_
    with (
        mock.patch.object(sync_batch_norm, "allgather_async", noted(gather)),
        mock.patch.object(sync_batch_norm, "allreduce_async_", noted(reduce)),
    ):
        yield names


sent = pytest.fixture(operations)


def test_one_operation_forward_and_one_backward(sent: list[str], rank: int, size: int) -> None:
    own = batches(size, (4, 3))[rank].requires_grad_()
    layer = hvd.SyncBatchNorm(CHANNELS)
    layer(own).sum().backward()
    assert sent == [f"sync_batch_norm.forward.{CHANNELS}", f"sync_batch_norm.backward.{CHANNELS}"]
    layer.eval()(own)
    assert len(sent) == 2, "eval mode needs no other rank"


def test_evaluation_on_one_rank_only(rank: int, size: int) -> None:
    layer = hvd.SyncBatchNorm(CHANNELS)
    layer(batches(size, (4, 3))[rank])
    for tracks in (layer, hvd.SyncBatchNorm(CHANNELS, track_running_stats=False)):
        if rank == 0:
            x = batches(size, (4, 3), seed=5)[0]
            close(tracks.eval()(x), like(tracks)(x))


def test_frozen_input_and_no_grad(sent: list[str], rank: int, size: int) -> None:
    layer = hvd.SyncBatchNorm(CHANNELS)
    inputs = batches(size, (4, 3))
    layer(inputs[rank]).square().sum().backward()
    assert len(sent) == 1 and layer.weight.grad is not None
    whole = like(hvd.SyncBatchNorm(CHANNELS))
    whole(torch.cat(inputs)).square().sum().backward()
    close(hvd.allreduce(layer.weight.grad, op=hvd.Sum) / 100, whole.weight.grad / 100)
    with torch.no_grad():
        assert not layer(inputs[rank]).requires_grad
    assert int(layer.num_batches_tracked) == 2


def test_frozen_parameters(rank: int, size: int) -> None:
    layer = hvd.SyncBatchNorm(CHANNELS).requires_grad_(False)
    own = batches(size, (4, 3))[rank].requires_grad_()
    layer(own).square().sum().backward()
    assert own.grad is not None and layer.weight.grad is None and layer.bias.grad is None


def test_a_layer_used_twice_in_one_pass(rank: int, size: int) -> None:
    layer = randomised(hvd.SyncBatchNorm(CHANNELS))
    whole = like(layer)
    inputs = batches(size, (4, 3))
    own, every = inputs[rank].requires_grad_(), torch.cat(inputs).detach().requires_grad_()
    for x, module in ((own, layer), (every, whole)):
        module(module(x).square()).square().sum().backward()
    assert own.grad is not None and every.grad is not None
    offset = sum(len(x) for x in inputs[:rank])
    close(own.grad, every.grad[offset : offset + len(own)], 2e-4)
    close(layer.running_var, whole.running_var)


def network(norm: type[torch.nn.Module]) -> torch.nn.Module:
    with seeded(3):
        return torch.nn.Sequential(
            torch.nn.Conv2d(2, 8, 3, padding=1), norm(8), torch.nn.ReLU(),
            torch.nn.Conv2d(8, 16, 3, padding=1), norm(16), torch.nn.ReLU(inplace=True),
            torch.nn.Conv2d(16, 4, 3), norm(4), torch.nn.Flatten(), torch.nn.LazyLinear(3),
        ).double()  # fmt: skip


def test_training_a_network(rank: int, size: int) -> None:
    """DistributedOptimizer, with gradients in flight meanwhile, equals one process with all the data."""
    images = torch.randn(
        3, size * 4, 2, 6, 6, generator=torch.Generator().manual_seed(2), dtype=torch.float64
    )
    alone = network(torch.nn.BatchNorm2d)
    alone(images[0, :2])
    together = hvd.SyncBatchNorm.convert_sync_batchnorm(copy.deepcopy(alone))
    plain = torch.optim.SGD(alone.parameters(), lr=0.1, momentum=0.9)
    distributed = hvd.DistributedOptimizer(
        torch.optim.SGD(together.parameters(), lr=0.1, momentum=0.9), together.named_parameters()
    )
    for batch in images:
        for model, optimizer, x in (
            (alone, plain, batch),
            (together, distributed, batch.chunk(size)[rank]),
        ):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
    for (name, found), wanted in zip(together.state_dict().items(), alone.state_dict().values(), strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-9, msg=name)


def test_autocast(rank: int, size: int) -> None:
    layer = randomised(hvd.SyncBatchNorm(CHANNELS))
    with torch.autocast("cpu", torch.bfloat16):
        check(layer, batches(size, (4, 3), torch.bfloat16), rank, TOLERANCE[torch.bfloat16])


def test_it_can_be_copied_and_saved(rank: int, size: int) -> None:
    layer = randomised(hvd.SyncBatchNorm(CHANNELS))
    file = io.BytesIO()
    torch.save(layer, file)
    file.seek(0)
    own = batches(size, (4, 3))[rank]
    wanted = layer(own)
    for other in (copy.deepcopy(layer), torch.load(file, weights_only=False)):
        assert other.process_set is hvd.global_process_set
        close(other(own), wanted)


def test_names_do_not_collide_with_other_traffic(rank: int, size: int) -> None:
    pending = [hvd.allreduce_async(torch.ones(3), name=f"other.{i}") for i in range(5)]
    layers = [hvd.SyncBatchNorm(CHANNELS) for _ in range(3)]
    x = batches(size, (4, 3))[rank].requires_grad_()
    output = x
    for layer, _ in itertools.product(layers, range(2)):
        output = layer(output)
    output.sum().backward()
    for handle in pending:
        assert torch.equal(hvd.synchronize(handle), torch.ones(3))


def test_halves_normalise_by_themselves(rank: int, size: int) -> None:
    halves, mine = [range(size // 2), range(size // 2, size)], int(rank >= size // 2)
    inputs = batches(size, (4, 3))
    inputs[1] = inputs[0] * 2  # so that no half of two ranks is empty
    with process_sets(*halves) as sets:
        layer = randomised(hvd.SyncBatchNorm(CHANNELS, process_set=sets[mine]))
        check(layer, [inputs[member] for member in halves[mine]], halves[mine].index(rank))
        foreign = hvd.SyncBatchNorm(CHANNELS, process_set=sets[1 - mine])
        with pytest.raises(ValueError):
            foreign(inputs[rank])
