"""Every operation on tensors of a GPU gives what it gives on the CPU, on the GPU."""

from collections.abc import Sequence

import pytest
import torch
from machine import Machine
from refusals import refused

import horovod.torch as hvd
from horovod.common.exceptions import Disagreement

FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
DTYPES = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, *FLOATS, torch.bool]
OPS = {"Average": hvd.Average, "Sum": hvd.Sum, "Min": hvd.Min, "Max": hvd.Max, "Product": hvd.Product}
SHAPES = [(), (0,), (1,), (5, 7), (3, 0, 2), (1031,)]


def values(rank: int, dtype: torch.dtype, shape: tuple[int, ...] = (5, 7)) -> torch.Tensor:
    """Small numbers that differ by rank; sums and products of four are exact in every dtype."""
    numbers = torch.arange(torch.Size(shape).numel())
    if dtype == torch.bool:
        return ((numbers + rank) % 3 == 0).reshape(shape)
    signs = 1 if dtype == torch.uint8 else 1 - 2 * (numbers % 2)
    return (((numbers + rank) % 3 + 1) * signs).reshape(shape).to(dtype)


def assert_same(given: torch.Tensor, want: torch.Tensor, machine: Machine) -> None:
    assert given.device == machine.device and given.dtype == want.dtype
    assert torch.equal(given.cpu(), want)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_allreduce_of_every_dtype_and_op(dtype: torch.dtype, machine: Machine, rank: int) -> None:
    for name, op in OPS.items():
        if dtype == torch.bool and op == hvd.Average:
            with pytest.raises(ValueError, match="bool"):
                hvd.allreduce(machine.gpu(values(rank, dtype)), op=op, name=name)
            continue
        given, want = machine.twice(
            lambda where, x, name=name, op=op: hvd.allreduce(x[0], op=op, name=f"{where}.{name}.{dtype}"),
            [values(rank, dtype)],
        )
        assert_same(given, want, machine)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_allreduce_in_all_its_forms(shape: tuple[int, ...], machine: Machine, rank: int, size: int) -> None:
    own = machine.gpu(values(rank, torch.float32, shape))
    before = own.clone()
    want = sum((values(r, torch.float32, shape) for r in range(size)), torch.zeros(shape))
    assert_same(hvd.allreduce(own, op=hvd.Sum), want, machine)
    assert torch.equal(own, before), "out of place leaves the input alone"
    assert hvd.allreduce_(own, op=hvd.Sum) is own
    assert_same(own, want, machine)
    group = hvd.grouped_allreduce([before, before * 2], op=hvd.Sum)
    assert_same(group[0], want, machine)
    assert_same(group[1], want * 2, machine)
    scaled = hvd.allreduce(before, op=hvd.Sum, prescale_factor=2.0, postscale_factor=0.5)
    assert_same(scaled, want, machine)


def test_a_view_is_reduced_in_place(machine: Machine, rank: int, size: int) -> None:
    whole = machine.gpu(torch.zeros(6, 8))
    view = whole.t()[1:3]
    view.copy_(values(rank, torch.float32, (2, 6)))
    hvd.allreduce_(view, op=hvd.Sum)
    want = torch.zeros(6, 8)
    want.t()[1:3] = sum((values(r, torch.float32, (2, 6)) for r in range(size)), torch.zeros(2, 6))
    assert_same(whole, want, machine)


def test_many_in_flight_in_another_order_on_each_rank(machine: Machine, rank: int, size: int) -> None:
    tensors = [machine.gpu(torch.full((1000 + i,), float(rank + i))) for i in range(20)]
    order = list(range(20)) if rank % 2 else list(reversed(range(20)))
    handles = {i: hvd.allreduce_async_(tensors[i], name=f"flight.{i}", op=hvd.Sum) for i in order}
    while not all(hvd.poll(handle) for handle in handles.values()):
        pass
    for i, handle in handles.items():
        assert hvd.synchronize(handle) is tensors[i]
        assert_same(tensors[i], torch.full((1000 + i,), float(sum(range(size)) + i * size)), machine)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_allgather_and_alltoall(dtype: torch.dtype, machine: Machine, rank: int, size: int) -> None:
    rows = values(rank, dtype, (rank + 2, 3))
    given, want = machine.twice(lambda where, x: hvd.allgather(x[0], name=f"{where}.{dtype}"), [rows])
    assert_same(given, want, machine)
    group = hvd.grouped_allgather([machine.gpu(rows), machine.gpu(rows[:1])])
    assert_same(group[0], want, machine)
    assert len(group[1]) == size

    splits = torch.tensor([r + 1 for r in range(size)], dtype=torch.int32)
    sent = values(rank, dtype, (int(splits.sum()), 2))

    def exchange(where: str, x: Sequence[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        output, received = hvd.alltoall(x[0], x[1], name=f"{where}.{dtype}")
        return output, received

    (output, received), (want, want_received) = machine.twice(exchange, [sent, splits])
    assert_same(output, want, machine)
    assert_same(received, want_received, machine)
    _, received = hvd.alltoall(machine.gpu(sent), splits)
    assert received.device.type == "cpu", "received splits are where splits are"


def test_empty_contributions(machine: Machine, rank: int, size: int) -> None:
    nothing = machine.gpu(torch.zeros(0, 4))
    assert hvd.allgather(nothing).shape == (0, 4)
    some = hvd.allgather(nothing if rank == 0 else machine.gpu(torch.full((2, 4), float(rank))))
    assert some.shape == (2 * (size - 1), 4) and some.device == machine.device


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_broadcast_and_reducescatter(dtype: torch.dtype, machine: Machine, rank: int, size: int) -> None:
    root = size - 1
    own = machine.gpu(values(rank, dtype))
    assert_same(hvd.broadcast(own, root), values(root, dtype), machine)
    assert hvd.broadcast_(own, root) is own
    assert_same(own, values(root, dtype), machine)
    rows = values(rank, dtype, (2 * size + 1, 3))
    for op in (hvd.Sum,) if dtype == torch.bool else (hvd.Sum, hvd.Average):
        given, want = machine.twice(
            lambda where, x, op=op: hvd.reducescatter(x[0], op=op, name=f"{where}.{op}.{dtype}"), [rows]
        )
        assert_same(given, want, machine)
    assert len(hvd.grouped_reducescatter([machine.gpu(rows)] * 2, op=hvd.Sum)) == 2


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64], ids=str)
def test_adasum(dtype: torch.dtype, machine: Machine, rank: int, size: int) -> None:
    generator = torch.Generator().manual_seed(rank)
    x = torch.randn(300, generator=generator, dtype=torch.float32).to(dtype)
    given, want = machine.twice(
        lambda where, x: hvd.allreduce(x[0], op=hvd.Adasum, name=f"adasum.{where}.{dtype}"), [x]
    )
    assert_same(given, want, machine)


def test_sparse(machine: Machine, rank: int, size: int) -> None:
    dense = torch.zeros(8, 2)
    dense[rank], dense[7] = 1.0, 2.0
    reduced = hvd.sparse_allreduce_async(machine.gpu(dense).to_sparse(1), "sparse", hvd.Sum)()
    want = torch.zeros(8, 2)
    want[:size], want[7] = 1.0, 2.0 * size
    assert_same(reduced.to_dense(), want, machine)


def test_gradients_of_operations(machine: Machine, rank: int, size: int) -> None:
    splits = torch.full((size,), 2, dtype=torch.int32)

    def all_of_them(where: str, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
        x = tensors[0].requires_grad_()
        hvd.allreduce(x, op=hvd.Sum, name=f"{where}.ar").sum().backward()
        hvd.grouped_allreduce([x * 2, x * 3], name=f"{where}.gr", op=hvd.Sum)[1].sum().backward()
        hvd.allgather(x * 2, name=f"{where}.ag")[: rank + 1].sum().backward()
        hvd.broadcast(x * 3, 0, name=f"{where}.bc").sum().backward()
        hvd.alltoall(x * 4, splits, name=f"{where}.aa")[0].sum().backward()
        hvd.reducescatter(x * 5, name=f"{where}.rs").sum().backward()
        assert x.grad is not None
        return x.grad

    given, want = machine.twice(all_of_them, [values(rank, torch.float32, (2 * size + 1, 3))])
    assert_same(given, want, machine)


def test_objects_and_sets_of_ranks(machine: Machine, rank: int, size: int) -> None:
    assert hvd.broadcast_object({"rank": rank}, 0) == {"rank": 0}
    assert hvd.allgather_object(rank) == list(range(size))
    if size < 3:
        return
    own = [0, size - 1] if rank in (0, size - 1) else list(range(1, size - 1))
    sets = [hvd.add_process_set([0, size - 1]), hvd.add_process_set(range(1, size - 1))]
    mine = sets[0] if rank in (0, size - 1) else sets[1]
    given = hvd.allreduce(machine.gpu(torch.full((999,), float(rank))), op=hvd.Sum, process_set=mine)
    assert_same(given, torch.full((999,), float(sum(own))), machine)
    gathered = hvd.allgather(machine.gpu(torch.tensor([rank])), process_set=mine)
    assert gathered.tolist() == own
    for each in sets:
        assert hvd.remove_process_set(each)


def test_join_with_what_the_others_have_on_their_gpus(machine: Machine, rank: int, size: int) -> None:
    for step in range(rank + 1):
        x = machine.gpu(torch.full((500,), 1.0))
        total = hvd.allreduce(x, op=hvd.Sum, name=f"joined.{step}")
        assert_same(total, torch.full((500,), float(size - step)), machine)
        compressed = hvd.allreduce(
            x, op=hvd.Sum, name=f"joined.bit8.{step}", compression=hvd.Compression.bit8
        )
        assert_same(compressed, torch.full((500,), float(size - step)), machine)
    assert hvd.join(rank) in range(size)


def test_some_on_gpus_and_some_not(machine: Machine, rank: int, size: int) -> None:
    """A named error on every rank that says who is where; and the job goes on."""
    if size == 1:
        pytest.skip("one rank agrees with itself")
    with refused(Disagreement, "disagree", property="place"):
        if rank == 0:
            with machine.on_cpu():
                hvd.allreduce(torch.ones(5), name="torn")
        else:
            hvd.allreduce(machine.gpu(torch.ones(5)), name="torn")
    assert_same(hvd.allreduce(machine.gpu(torch.ones(5)), name="torn"), torch.ones(5), machine)
