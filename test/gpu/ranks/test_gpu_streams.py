"""The core waits for what a caller's stream does before, that stream for the core, no host for either."""

from collections.abc import Iterator

import pytest
import torch
from machine import Machine

import horovod.torch as hvd
from horovod.torch import devices

LARGE = 4_000_003  # elements


@pytest.fixture
def side(machine: Machine) -> Iterator[int | torch.cuda.Stream]:
    """A stream of the caller's own, current inside the test."""
    if machine.emulated is None:
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            yield stream
        return
    before = current(machine)
    use(machine, new_stream(machine))
    yield machine.emulated.stream
    use(machine, before)


def new_stream(machine: Machine) -> int | torch.cuda.Stream:
    return torch.cuda.Stream() if machine.emulated is None else machine.emulated.new_stream()


def current(machine: Machine) -> int | torch.cuda.Stream:
    return torch.cuda.current_stream() if machine.emulated is None else machine.emulated.stream


def use(machine: Machine, stream: int | torch.cuda.Stream) -> None:
    """Makes a stream the current one."""
    if machine.emulated is None:
        assert isinstance(stream, torch.cuda.Stream)
        torch.cuda.set_stream(stream)
    else:
        assert isinstance(stream, int)
        machine.emulated.stream = stream


def made_later(machine: Machine, value: float, count: int = LARGE) -> torch.Tensor:
    """A tensor that has its values only when the current stream has made them, some copies from now."""
    final = machine.gpu(torch.full((count,), value))
    tensor = machine.gpu(torch.full((count,), -1.0))
    if machine.emulated is None:
        for _ in range(20):
            tensor.copy_(final * 2)
        tensor.copy_(final)
        return tensor
    wrong = torch.full((count,), -2.0)
    machine.emulated.kept = [final, wrong]  # type: ignore[attr-defined]
    for _ in range(5):
        machine.emulated.copy_on(machine.emulated.stream, tensor, wrong)
    machine.emulated.copy_on(machine.emulated.stream, tensor, final)
    return tensor


@pytest.mark.parametrize("compression", [hvd.Compression.none, hvd.Compression.bit8], ids=["none", "bit8"])
def test_the_core_waits_for_the_callers_stream(
    compression: object, machine: Machine, side: object, rank: int, size: int
) -> None:
    want = float(size * (size + 1) // 2)
    for attempt in range(3):
        tensor = made_later(machine, rank + 1.0)
        name = f"later.{compression!r}.{attempt}"
        total = hvd.allreduce(tensor, name=name, op=hvd.Sum, compression=compression)
        assert torch.equal(total.cpu(), torch.full((LARGE,), want))


def test_gathered_and_sent_rows_are_made_later_too(
    machine: Machine, side: object, rank: int, size: int
) -> None:
    gathered = hvd.allgather(made_later(machine, rank + 1.0, 50_000))
    assert gathered.cpu().reshape(size, -1).tolist() == [[r + 1.0] * 50_000 for r in range(size)]
    sent = hvd.alltoall(made_later(machine, rank + 1.0, 5_000 * size))
    assert sent.cpu().reshape(size, -1).tolist() == [[r + 1.0] * 5_000 for r in range(size)]
    told = hvd.broadcast(made_later(machine, rank + 1.0, 50_000), size - 1)
    assert torch.equal(told.cpu(), torch.full((50_000,), float(size)))


def test_memory_is_not_given_away_too_early(machine: Machine, rank: int, size: int) -> None:
    """Tensors are dropped when synchronize returns, and others are made at once where they were."""
    for _ in range(20):
        handles = [
            hvd.allreduce_async(machine.gpu(torch.full((100_000,), float(rank + i))), op=hvd.Sum)
            for i in range(4)
        ]
        results = []
        for handle in handles:
            results.append(hvd.synchronize(handle))
            machine.gpu(torch.full((100_000,), float("nan")))
        for i, result in enumerate(results):
            assert isinstance(result, torch.Tensor)
            want = float(sum(range(size)) + i * size)
            assert torch.equal(result.cpu(), torch.full((100_000,), want))


def test_started_on_one_stream_and_synchronized_on_another(machine: Machine, rank: int, size: int) -> None:
    if machine.emulated is not None:
        pytest.skip("torch has no streams on the emulated GPU")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        tensor = made_later(machine, rank + 1.0)
        handles = [
            hvd.allreduce_async(tensor, op=hvd.Sum, compression=hvd.Compression.topk(ratio=1.0), name="topk"),
            hvd.allreduce_async(tensor, op=hvd.Sum, name="exact"),
            hvd.allgather_async(tensor, name="gathered"),
        ]
    want = float(size * (size + 1) // 2)
    topk, exact, gathered = (hvd.synchronize(handle) for handle in handles)
    assert isinstance(topk, torch.Tensor) and isinstance(exact, torch.Tensor)
    assert isinstance(gathered, torch.Tensor)
    assert (topk == want).all() and (exact == want).all() and gathered.sum() == want * LARGE


def test_the_host_does_not_wait_in_steady_state(machine: Machine, rank: int) -> None:
    """torch raises at any call of its own that waits for the GPU."""
    if machine.emulated is not None or hvd.size() > 1:
        pytest.skip("one rank and a real GPU")
    model = torch.nn.Linear(64, 64).to(machine.device)
    plain = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = hvd.DistributedOptimizer(plain, model.named_parameters(), compression=hvd.Compression.bit8)
    x = torch.ones(8, 64, device=machine.device)
    for step in range(6):
        if step == 3:
            torch.cuda.set_sync_debug_mode("error")
        try:
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()
        finally:
            if step == 5:
                torch.cuda.set_sync_debug_mode("default")


def test_operations_refuse_to_be_captured(machine: Machine) -> None:
    if machine.emulated is not None:
        pytest.skip("torch has no graphs on the emulated GPU")
    x = torch.ones(4, device=machine.device)
    graph = torch.cuda.CUDAGraph()
    with pytest.raises(RuntimeError, match="cannot be captured"), torch.cuda.graph(graph):
        hvd.allreduce(x)
    assert devices.current_stream(devices.device_of(x)) >= 0
    assert torch.equal(hvd.allreduce(x, op=hvd.Average).cpu(), torch.ones(4))


def test_a_group_waits_for_the_streams_of_all_its_gradients(machine: Machine, rank: int, size: int) -> None:
    """The first gradient is made slowly on one stream, the last at once on another: its hook starts both."""
    if size == 1:
        pytest.skip("alone the optimizer waits for nothing: gradients are its caller's")
    parameters = [torch.nn.Parameter(machine.gpu(torch.zeros(LARGE))) for _ in range(2)]
    fired: list[torch.Tensor] = []
    streams = [new_stream(machine) for _ in parameters]

    def make(parameter: torch.Tensor) -> None:
        use(machine, streams[len(fired)])
        parameter.grad = machine.gpu(torch.full((LARGE,), 2.0)) if fired else made_later(machine, rank + 1.0)
        fired.append(parameter)

    before = current(machine)
    for parameter in parameters:
        parameter.register_post_accumulate_grad_hook(make)  # before the optimizer's own
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(parameters, lr=0.1), [(f"p{i}", p) for i, p in enumerate(parameters)], groups=1
    )
    torch.stack([parameter.sum() for parameter in parameters]).sum().backward()
    optimizer.synchronize()
    use(machine, before)
    assert len(fired) == 2
    for parameter, want in zip(fired, [(size + 1) / 2, 2.0], strict=True):
        assert parameter.grad is not None
        assert torch.equal(parameter.grad.cpu(), torch.full((LARGE,), want))
