"""What training scripts do with hvd besides calling it by the book."""

import threading
import time
import warnings

import numpy as np
import pytest
import torch
from api_cases import numbers, share
from torch.utils.data import DataLoader, Dataset, TensorDataset
from torch.utils.data.distributed import DistributedSampler

import horovod.torch as hvd


def test_averaging_a_metric(rank: int, size: int) -> None:
    """A loss with its history, a plain number, an accuracy: 0-dimensional tensors under a name."""
    loss = (torch.full((3,), float(rank), requires_grad=True) * 2).mean()
    for _ in range(3):
        assert hvd.allreduce(loss, name="avg_loss").item() == size - 1
        assert hvd.allreduce(torch.tensor(rank / 1), name="avg_accuracy").item() == (size - 1) / 2
        assert hvd.allreduce(loss.detach(), name="avg_detached").item() == size - 1


def test_numbers_of_numpy(rank: int, size: int) -> None:
    """Factors, roots, ranks and names are often computed."""
    own = torch.full((3,), float(rank + 1))
    total = float(sum(range(1, size + 1)))
    for factor in (np.float64(0.5), np.float32(0.5), 2, np.int64(2), torch.tensor(0.5).item()):
        result = hvd.allreduce(own, op=hvd.Sum, prescale_factor=factor, name=f"factor.{float(factor)}")
        assert torch.equal(result, torch.full((3,), total * float(factor)))
        result = hvd.allreduce(own, op=hvd.Sum, postscale_factor=factor)
        assert torch.equal(result, torch.full((3,), total * float(factor)))
    root = np.int64(size - 1)
    assert torch.equal(hvd.broadcast(own, root), torch.full((3,), float(size)))
    assert hvd.broadcast_object(rank, np.int32(1)) == 1
    assert torch.equal(hvd.allreduce(own, name=7, op=hvd.Sum), torch.full((3,), total))


@pytest.mark.parametrize("seed", range(3))
def test_random_factors_scale_integers_in_float64(seed: int, rank: int, size: int) -> None:
    factor = float(np.random.default_rng(seed).uniform())
    for dtype in (torch.int32, torch.int64):
        parts = [numbers(r, dtype, (17, 17)) for r in range(size)]
        scaled = [(part.double() * factor).to(dtype) for part in parts]
        assert torch.equal(hvd.allreduce(parts[rank], op=hvd.Sum, prescale_factor=factor), sum(scaled))
        want = (sum(parts).double() * factor).to(dtype)
        assert torch.equal(hvd.allreduce(parts[rank], op=hvd.Sum, postscale_factor=factor), want)


def test_threads(rank: int, size: int) -> None:
    """Operations may come from several threads; names tell them apart."""
    failures: list[BaseException] = []

    def work(thread: int) -> None:
        try:
            for i in range(25):
                result = hvd.allreduce(torch.full((50,), float(rank)), op=hvd.Sum, name=f"{thread}.{i}")
                assert torch.equal(result, torch.full((50,), float(sum(range(size)))))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()
    assert not failures


def test_other_threads_run_while_one_waits(rank: int) -> None:
    """Waiting does not hold the interpreter's lock."""
    counted = 0
    if rank == 0:
        waiting = threading.Thread(target=lambda: hvd.allreduce(torch.ones(2), name="slow"))
        waiting.start()
        end = time.monotonic() + 0.1
        while time.monotonic() < end:
            counted += 1
        assert waiting.is_alive() and counted > 1000
    hvd.barrier()
    if rank == 0:
        waiting.join(10)
    else:
        hvd.allreduce(torch.ones(2), name="slow")


def test_inference_mode(rank: int, size: int) -> None:
    with torch.inference_mode():
        own = torch.full((4,), float(rank))
        total = torch.full((4,), float(sum(range(size))))
        assert torch.equal(hvd.allreduce(own, op=hvd.Sum), total)
        assert hvd.allgather(own[:1]).tolist() == [float(r) for r in range(size)]
        assert torch.equal(hvd.allreduce_(own, op=hvd.Sum), total)
        assert hvd.broadcast_(torch.tensor(rank), 1) == 1


def test_in_place_on_data_of_parameters(rank: int, size: int) -> None:
    layer = torch.nn.Linear(3, 2)
    for parameter in layer.parameters():
        parameter.data.fill_(rank)
        hvd.allreduce_(parameter.data, op=hvd.Sum)
        assert (parameter == sum(range(size))).all() and parameter.requires_grad and parameter.is_leaf
    layer(torch.ones(1, 3)).sum().backward()
    handles = [hvd.allreduce_async_(p.grad, name=n) for n, p in layer.named_parameters()]
    for handle, parameter in zip(handles, layer.parameters(), strict=True):
        assert hvd.synchronize(handle) is parameter.grad


def test_memory_formats(rank: int, size: int) -> None:
    images = torch.arange(2 * 3 * 4 * 4.0).reshape(2, 3, 4, 4).contiguous(memory_format=torch.channels_last)
    assert torch.equal(hvd.allreduce(images, op=hvd.Sum), images * size)
    assert torch.equal(hvd.allgather(images)[2:4], images)
    assert torch.equal(hvd.broadcast(images, 0), images)
    assert torch.equal(hvd.allreduce(images[:, ::2, 1:], op=hvd.Sum), images[:, ::2, 1:] * size)


@pytest.mark.parametrize("rows", [1, 3, 2001])
def test_large_tensors(rows: int, rank: int, size: int) -> None:
    """Of some megabytes, cut in whole rows: one row, fewer than four ranks have, and many."""
    columns = 1_000_003 // rows
    own = torch.arange(float(rows * columns)).reshape(rows, columns).remainder(1000) + rank
    total = size * (own - rank) + sum(range(size))
    assert torch.equal(hvd.allreduce(own, op=hvd.Sum), total)
    assert torch.equal(hvd.reducescatter(own, op=hvd.Sum), total[share(rows, rank, size)])
    assert torch.equal(hvd.broadcast(own, size - 1), own - rank + size - 1)
    gathered = hvd.allgather(own).reshape(size, rows, columns)
    assert all(torch.equal(gathered[r], own - rank + r) for r in range(size))
    splits = torch.zeros(size, dtype=torch.int32)
    splits[(rank + 1) % size] = rows  # everything to the next rank
    received, received_splits = hvd.alltoall(own, splits)
    before = (rank - 1) % size
    assert torch.equal(received, own - rank + before)
    assert received_splits.tolist() == [rows if r == before else 0 for r in range(size)]


def test_only_rank_0_does_something(rank: int, size: int) -> None:
    """Saving a checkpoint: the others wait, then all resume from what rank 0 has."""
    if rank == 0:
        time.sleep(0.05)
    hvd.barrier()
    epoch = hvd.broadcast(torch.tensor(7 if rank == 0 else 0), root_rank=0, name="resume_from_epoch").item()
    state = hvd.broadcast_object({"epoch": 7, "best": [0.5]} if rank == 0 else None, root_rank=0)
    assert epoch == state["epoch"] == 7 and hvd.allgather_object((rank, state["best"]))[-1] == (
        size - 1,
        [0.5],
    )


class RankOfTheWorker(Dataset[torch.Tensor]):
    """What a worker sees when it seeds or shards by rank."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> torch.Tensor:
        refused = 0
        try:
            hvd.allreduce(torch.ones(1))
        except hvd.HorovodInternalError as error:
            refused = int(error.code == "forked")
        return torch.tensor([hvd.rank(), hvd.size(), int(hvd.is_initialized()), refused])


def test_forked_workers_know_their_rank(rank: int, size: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        loader = DataLoader(RankOfTheWorker(), num_workers=2, multiprocessing_context="fork")
        assert all(row.tolist() == [[rank, size, 1, 1]] for row in loader)


def test_data_loader_with_forked_workers(rank: int, size: int) -> None:
    """Workers inherit the memory of a rank, not its part in the job."""
    data = TensorDataset(torch.arange(8.0 * size))
    sampler = DistributedSampler(data, num_replicas=hvd.size(), rank=hvd.rank(), shuffle=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # fork in a process with threads
        loader = DataLoader(
            data, batch_size=4, sampler=sampler, num_workers=2, multiprocessing_context="fork"
        )
        total = sum(hvd.allreduce(batch.sum(), op=hvd.Sum, name="batch").item() for (batch,) in loader)
    assert total == sum(range(8 * size))
    hvd.barrier()


def test_float64_keeps_its_digits(rank: int, size: int) -> None:
    own = torch.linspace(0, 1, 1001, dtype=torch.float64) + rank
    want = torch.linspace(0, 1, 1001, dtype=torch.float64) + (size - 1) / 2
    assert torch.allclose(hvd.allreduce(own), want, rtol=1e-15, atol=1e-15)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -0.0], ids=str)
def test_special_values(value: float, rank: int) -> None:
    """Loss scalers depend on seeing what one rank sees."""
    own = torch.tensor([value if rank == 1 else 1.0, 2.0])
    for op in (hvd.Sum, hvd.Average):
        result = hvd.allreduce(own, op=op)
        assert torch.isfinite(result[0]) == (value == 0) and torch.isfinite(result[1])
    assert repr(hvd.allgather(own)[2].item()) == repr(value)


def test_results_are_the_same_bits_everywhere(rank: int, size: int) -> None:
    own = torch.rand(1001, generator=torch.Generator().manual_seed(rank))
    for op in (hvd.Average, hvd.Sum, hvd.Product):
        result = hvd.allreduce(own, op=op)
        assert all(torch.equal(row, result) for row in hvd.allgather(result.unsqueeze(0)))
