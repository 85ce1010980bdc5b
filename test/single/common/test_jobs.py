"""Several ranks in one process: the state of a job belongs to the job that the thread has entered."""

from __future__ import annotations

import re
import threading

import pytest
import torch
from refusals import refused
from thread_ranks import run_ranks

import horovod.torch as hvd
from horovod.common import errors, jobs, software


def test_every_thread_is_a_rank() -> None:
    def work() -> tuple[int, int, list[int] | None, int | None, float]:
        total = hvd.allreduce(torch.full((3,), float(hvd.rank())), op=hvd.Sum)
        everyone = hvd.global_process_set
        return hvd.rank(), hvd.size(), everyone.ranks, everyone.rank(), float(total[0])

    assert run_ranks(3, work) == [(rank, 3, [0, 1, 2], rank, 3.0) for rank in range(3)]
    assert not hvd.is_initialized()
    assert hvd.global_process_set.ranks is None


def test_ranks_of_different_builds_are_refused_when_they_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    def work() -> None:
        raise AssertionError("they met")

    def loaded() -> dict[str, str]:
        with lock:
            return {"horovod": releases.pop(), "PyTorch": "2"}

    lock, releases = threading.Lock(), ["0.1", "0.2"]
    monkeypatch.setattr(software, "loaded", loaded)
    differences = re.compile(r"^horovod is 0\.[12] on rank 0 \(.+\), 0\.[12] on rank 1 ")
    with refused(errors.builds_differ, differences=differences):
        run_ranks(2, work)


def test_another_torch_is_warned_of_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    lock, releases = threading.Lock(), ["2.4.0", "2.5.0", "2.5.0"]

    def loaded() -> dict[str, str]:
        with lock:
            return {"horovod": "1", "PyTorch": releases.pop()}

    monkeypatch.setattr(software, "loaded", loaded)
    assert run_ranks(3, hvd.size) == [3, 3, 3]
    (record,) = caplog.records
    assert "PyTorch is 2." in record.getMessage() and "install the same on all hosts" in record.getMessage()


def test_jobs_at_the_same_time_are_apart() -> None:
    """Both use the same names, and counters for unnamed operations: the jobs do not affect each other."""
    totals: dict[int, list[tuple[float, float]]] = {}

    def job(size: int) -> None:
        def work() -> tuple[float, float]:
            for _ in range(5 * size):
                unnamed = hvd.allreduce(torch.ones(2), op=hvd.Sum)
            return float(unnamed[0]), float(hvd.allreduce(torch.ones(2), name="same", op=hvd.Sum)[0])

        totals[size] = run_ranks(size, work)

    threads = [threading.Thread(target=job, args=(size,)) for size in (2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert totals == {size: [(float(size), float(size))] * size for size in (2, 3)}


@pytest.mark.parametrize(
    "compression", [hvd.Compression.none, hvd.Compression.bit8, hvd.Compression.powersgd]
)
def test_training(compression: object) -> None:
    """Each rank has its own hooks, end of the backward pass, and memory of compressors."""
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Tanh(), torch.nn.Linear(64, 64))
    state = model.state_dict()

    def work() -> list[torch.Tensor]:
        own = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Tanh(), torch.nn.Linear(64, 64))
        own.load_state_dict(state)
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD(own.parameters(), lr=0.1), own.named_parameters(), compression=compression
        )
        generator = torch.Generator().manual_seed(hvd.rank())
        for _ in range(4):
            optimizer.zero_grad()
            own(torch.randn(8, 64, generator=generator)).square().sum().backward()
            optimizer.step()
        return [parameter.detach() for parameter in own.parameters()]

    first, second = run_ranks(2, work)
    assert all(map(torch.equal, first, second))
    assert not torch.equal(first[0], state["0.weight"])


def test_a_gradient_is_reduced_for_the_job_of_the_forward_pass() -> None:
    """Also if the backward pass runs on a thread without a job, as autograd's GPU threads."""

    def work() -> torch.Tensor:
        x = torch.full((2,), 1.0 + hvd.rank(), requires_grad=True)
        y = hvd.allreduce(x, op=hvd.Sum).sum()
        thread = threading.Thread(target=y.backward)
        thread.start()
        thread.join()
        assert x.grad is not None
        return x.grad

    assert [gradient.tolist() for gradient in run_ranks(2, work)] == [[2.0, 2.0]] * 2


def test_a_hook_works_for_the_job_that_the_optimizer_was_made_in() -> None:
    def work() -> float:
        weight = torch.nn.Parameter(torch.zeros(1))
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=1.0), [("weight", weight)])
        loss = (weight * (hvd.rank() + 1)).sum()
        thread = threading.Thread(target=loss.backward)
        thread.start()
        thread.join()
        optimizer.step()
        return weight.item()

    assert run_ranks(2, work) == [-1.5, -1.5]


def test_an_error_of_one_rank_ends_the_job() -> None:
    def work() -> None:
        if hvd.rank() == 1:
            raise LookupError("of rank 1")
        hvd.allreduce(torch.ones(1), name="nobody else's")

    with pytest.raises((LookupError, hvd.HorovodInternalError)):
        run_ranks(2, work)


def test_what_a_job_keeps_goes_with_it() -> None:
    job = jobs.Job()
    kept = job.belongings.own(list)
    kept.append(1)
    assert job.belongings.own(list) is kept
    job.belongings.forget()
    assert job.belongings.own(list) == []
    assert jobs.current() is not job
    with job.entered():
        assert jobs.current() is job
        other = jobs.Job()
        assert other.run(jobs.current) is other
        assert jobs.current() is job
