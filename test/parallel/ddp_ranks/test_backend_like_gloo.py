"""Scripts for a gloo group work with a group of the backend "horovod", with identical results.

Without HOROVOD_COMPRESSION nothing is compressed, and with it only large sums are.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
import torch.distributed.checkpoint as checkpoint
from refusals import refused
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from horovod.torch.ddp import errors
from horovod.torch_autoload import register_backend

register_backend()

TIMEOUT = datetime.timedelta(seconds=60)


@pytest.fixture(scope="module", params=["none", "bit8"])
def group(job: None, request: pytest.FixtureRequest) -> Iterator[dist.ProcessGroup]:
    """A group. All tensors below are small, so that with bit8 none is compressed either."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("HOROVOD_COMPRESSION", request.param)
        made = dist.new_group(backend="horovod", timeout=TIMEOUT)
    yield made
    dist.destroy_process_group(made)


def values(rank: int) -> torch.Tensor:
    return torch.arange(6, dtype=torch.float32) * (rank + 1)


def test_it_says_what_it_is(group: dist.ProcessGroup, rank: int, size: int) -> None:
    assert dist.get_backend(group) == "horovod"
    assert (group.rank(), group.size()) == (dist.get_rank(group), dist.get_world_size(group)) == (rank, size)
    assert group.name() == "horovod"
    assert dist.get_process_group_ranks(group) == list(range(size))
    assert dist.get_backend_config(group) == "cpu:horovod,cuda:horovod"


@pytest.mark.parametrize("op", ["SUM", "AVG", "MIN", "MAX", "PRODUCT"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64])
def test_all_reduce_and_reduce(group: dist.ProcessGroup, rank: int, op: str, dtype: torch.dtype) -> None:
    if op == "AVG" and dtype == torch.int64:
        pytest.skip("no average of integers")
    for collective in (dist.all_reduce, lambda tensor, op, group: dist.reduce(tensor, 0, op, group)):
        ours, gloos = values(rank).to(dtype), values(rank).to(dtype)
        collective(ours, getattr(dist.ReduceOp, op), group)
        collective(gloos, getattr(dist.ReduceOp, op), None)
        assert torch.equal(ours, gloos)


def test_all_reduce_of_complex_and_sparse_tensors(group: dist.ProcessGroup, rank: int, size: int) -> None:
    number = torch.tensor([1 + 2j, 3.0]) * (rank + 1)
    dist.all_reduce(number, group=group)
    assert torch.equal(number, torch.tensor([1 + 2j, 3.0]) * sum(range(1, size + 1)))
    sparse = torch.sparse_coo_tensor([[rank]], [1.0], (size,))
    dist.all_reduce(sparse, group=group)
    assert torch.equal(sparse.to_dense(), torch.ones(size))


def test_works_are_those_of_gloo(group: dist.ProcessGroup, rank: int, size: int) -> None:
    tensor = torch.ones(5)
    work = dist.all_reduce(tensor, group=group, async_op=True)
    assert work.wait(TIMEOUT) and work.is_completed()
    assert torch.equal(tensor, torch.full((5,), float(size)))
    (result,) = work.get_future().wait()
    assert result.data_ptr() == tensor.data_ptr()


def test_broadcast_gather_and_scatter(group: dist.ProcessGroup, rank: int, size: int) -> None:
    source = size - 1
    tensor = values(rank)
    dist.broadcast(tensor, source, group)
    assert torch.equal(tensor, values(source))
    parts = [torch.empty(6) for _ in range(size)]
    dist.all_gather(parts, values(rank), group)
    assert all(torch.equal(part, values(n)) for n, part in enumerate(parts))
    whole = torch.empty(6 * size)
    dist.all_gather_into_tensor(whole, values(rank), group)
    assert torch.equal(whole, torch.cat([values(n) for n in range(size)]))
    at_root = [torch.empty(6) for _ in range(size)] if rank == 0 else None
    dist.gather(values(rank), at_root, 0, group)
    assert at_root is None or all(torch.equal(part, values(n)) for n, part in enumerate(at_root))
    part = torch.empty(6)
    dist.scatter(part, [values(n) for n in range(size)] if rank == source else None, source, group)
    assert torch.equal(part, values(rank))


def test_reduce_scatter(group: dist.ProcessGroup, rank: int, size: int) -> None:
    expected = values(rank) * 0 + rank * size + sum(range(size))
    rows = [torch.full((6,), float(n + rank)) for n in range(size)]
    part = torch.empty(6)
    dist.reduce_scatter(part, rows, group=group)
    assert torch.equal(part, expected)
    dist.reduce_scatter_tensor(part.zero_(), torch.cat(rows), group=group)
    assert torch.equal(part, expected)


def test_all_to_all(group: dist.ProcessGroup, rank: int, size: int) -> None:
    received = torch.empty(size)
    dist.all_to_all_single(received, torch.arange(size) + 10.0 * rank, group=group)
    assert received.tolist() == [10.0 * n + rank for n in range(size)]
    counts = [n + 1 for n in range(size)]  # n + 1 elements go to rank n
    uneven = torch.empty(size * (rank + 1))
    dist.all_to_all_single(
        uneven, torch.full((sum(counts),), float(rank)), [rank + 1] * size, counts, group=group
    )
    assert uneven.tolist() == [float(n) for n in range(size) for _ in range(rank + 1)]


def test_send_and_receive(group: dist.ProcessGroup, rank: int, size: int) -> None:
    if size == 1:
        pytest.skip("nobody to send to")
    following, preceding = (rank + 1) % size, (rank - 1) % size
    sent = dist.isend(values(rank), following, group)
    received = torch.empty(6)
    dist.irecv(received, preceding, group).wait()
    sent.wait()
    assert torch.equal(received, values(preceding))
    both = [
        dist.P2POp(dist.isend, values(rank) + 1, following, group),
        dist.P2POp(dist.irecv, received, preceding, group),
    ]
    for work in dist.batch_isend_irecv(both):
        work.wait()
    assert torch.equal(received, values(preceding) + 1)
    if rank == 0:
        for _ in range(size - 1):
            one = torch.empty(1)
            source = dist.recv(one, group=group)
            assert one.item() == source
    else:
        dist.send(torch.tensor([float(rank)]), 0, group)


def test_objects(group: dist.ProcessGroup, rank: int, size: int) -> None:
    objects: list[Any] = [None] * size
    dist.all_gather_object(objects, {"rank": rank}, group)
    assert objects == [{"rank": n} for n in range(size)]
    one = [{"rank": rank}]
    dist.broadcast_object_list(one, 0, group)
    assert one == [{"rank": 0}]
    mine: list[Any] = [None]
    dist.scatter_object_list(mine, list(range(size)) if rank == 0 else None, 0, group)
    assert mine == [rank]
    gathered: list[Any] | None = [None] * size if rank == 0 else None
    dist.gather_object(rank, gathered, 0, group)
    assert gathered is None or gathered == list(range(size))


def test_barriers(group: dist.ProcessGroup) -> None:
    dist.barrier(group)
    dist.barrier(group, async_op=True).wait()
    group.monitored_barrier(TIMEOUT)  # torch.distributed.monitored_barrier serves only the name "gloo"


def test_coalescing(group: dist.ProcessGroup, rank: int, size: int) -> None:
    sums = [values(rank), values(rank) + 1]
    with dist._coalescing_manager(group, async_ops=True) as works:
        for tensor in sums:
            dist.all_reduce(tensor, group=group)
    works.wait()
    expected = sum(values(n) for n in range(size))
    assert torch.equal(sums[0], expected) and torch.equal(sums[1], expected + size)
    wholes = [torch.empty(6 * size), torch.empty(6 * size)]
    with dist._coalescing_manager(group):
        for whole in wholes:
            dist.all_gather_into_tensor(whole, values(rank), group)
    assert all(torch.equal(whole, torch.cat([values(n) for n in range(size)])) for whole in wholes)


def test_functional_collectives(group: dist.ProcessGroup, rank: int, size: int) -> None:
    total = functional.all_reduce(values(rank), "sum", group)
    assert torch.equal(total, sum(values(n) for n in range(size)))
    whole = functional.all_gather_tensor(values(rank), 0, group)
    assert torch.equal(whole, torch.cat([values(n) for n in range(size)]))
    part = functional.reduce_scatter_tensor(torch.ones(2 * size), "sum", 0, group)
    assert torch.equal(part, torch.full((2,), float(size)))


def test_groups_of_some_ranks(group: dist.ProcessGroup, rank: int, size: int) -> None:
    even = dist.new_group(list(range(0, size, 2)), backend="horovod")
    if rank % 2 == 0:
        tensor = torch.ones(3)
        dist.all_reduce(tensor, group=even)
        assert torch.equal(tensor, torch.full((3,), float(len(range(0, size, 2)))))
        dist.destroy_process_group(even)
    mine, _ = dist.new_subgroups(1)
    assert dist.get_world_size(mine) == 1


def test_device_meshes(group: dist.ProcessGroup, size: int) -> None:
    mesh = DeviceMesh.from_group(group, "cpu")
    assert mesh.size() == size
    tensor = torch.ones(2)
    dist.all_reduce(tensor, group=mesh.get_group())
    assert tensor.tolist() == [size, size]
    two = init_device_mesh("cpu", (1, size), mesh_dim_names=("replicate", "shard"))
    assert two["shard"].size() == size


def test_distributed_checkpoint(group: dist.ProcessGroup, rank: int, tmp_path: Path) -> None:
    folder = [str(tmp_path)]
    dist.broadcast_object_list(folder, 0, group)
    checkpoint.save({"weight": values(0)}, checkpoint_id=folder[0], process_group=group)
    loaded = {"weight": torch.zeros(6)}
    checkpoint.load(loaded, checkpoint_id=folder[0], process_group=group)
    assert torch.equal(loaded["weight"], values(0))
    dist.barrier(group)


def test_what_torch_may_ask_for(group: dist.ProcessGroup) -> None:
    group.get_group_store().set("horovod.test", "1")
    assert group.get_group_store().get("horovod.test") == b"1"
    group.set_timeout(TIMEOUT)
    assert group._get_backend(torch.device("cpu")).options._timeout == TIMEOUT
    assert not group._has_hooks()
    with refused(errors.splits_no_group):
        group.split_group([0])
