"""Order on CUDA streams: the core waits for the caller's stream, and that stream for the core."""

from collections.abc import Iterator

import pytest
import torch
from places import Place
from refusals import refused

import horovod.torch as hvd
from horovod.torch import devices, errors

LARGE = 4_000_003  # elements


@pytest.fixture(autouse=True)
def on_a_gpu(place: Place) -> None:
    if not place.is_gpu:
        pytest.skip("needs a GPU, a real one or an emulated one")


@pytest.fixture
def side(place: Place) -> Iterator[int | torch.cuda.Stream]:
    """The caller's own stream, current inside the test."""
    if place.emulated is None:
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            yield stream
        return
    before = current(place)
    use(place, new_stream(place))
    yield place.emulated.stream
    use(place, before)


def new_stream(place: Place) -> int | torch.cuda.Stream:
    return torch.cuda.Stream() if place.emulated is None else place.emulated.new_stream()


def current(place: Place) -> int | torch.cuda.Stream:
    return torch.cuda.current_stream() if place.emulated is None else place.emulated.stream


def use(place: Place, stream: int | torch.cuda.Stream) -> None:
    if place.emulated is None:
        assert isinstance(stream, torch.cuda.Stream)
        torch.cuda.set_stream(stream)
    else:
        assert isinstance(stream, int)
        place.emulated.stream = stream


def made_later(place: Place, value: float, count: int = LARGE) -> torch.Tensor:
    """Return a tensor that receives its values only when the current stream has done some copies."""
    final = place.put(torch.full((count,), value))
    tensor = place.put(torch.full((count,), -1.0))
    if place.emulated is None:
        for _ in range(20):
            tensor.copy_(final * 2)
        tensor.copy_(final)
        return tensor
    wrong = torch.full((count,), -2.0)
    place.emulated.kept = [final, wrong]  # type: ignore[attr-defined]
    for _ in range(5):
        place.emulated.copy_on(place.emulated.stream, tensor, wrong)
    place.emulated.copy_on(place.emulated.stream, tensor, final)
    return tensor


@pytest.mark.parametrize("compression", [hvd.Compression.none, hvd.Compression.bit8], ids=["none", "bit8"])
def test_the_core_waits_for_the_callers_stream(
    compression: object, place: Place, side: object, rank: int, size: int
) -> None:
    want = float(size * (size + 1) // 2)
    for attempt in range(3):
        tensor = made_later(place, rank + 1.0)
        name = f"later.{compression!r}.{attempt}"
        total = hvd.allreduce(tensor, name=name, op=hvd.Sum, compression=compression)
        assert torch.equal(total.cpu(), torch.full((LARGE,), want))


def test_gathered_and_sent_rows_are_made_later_too(place: Place, side: object, rank: int, size: int) -> None:
    gathered = hvd.allgather(made_later(place, rank + 1.0, 50_000))
    assert gathered.cpu().reshape(size, -1).tolist() == [[r + 1.0] * 50_000 for r in range(size)]
    sent = hvd.alltoall(made_later(place, rank + 1.0, 5_000 * size))
    assert sent.cpu().reshape(size, -1).tolist() == [[r + 1.0] * 5_000 for r in range(size)]
    told = hvd.broadcast(made_later(place, rank + 1.0, 50_000), size - 1)
    assert torch.equal(told.cpu(), torch.full((50_000,), float(size)))


def test_memory_is_not_given_away_too_early(place: Place, rank: int, size: int) -> None:
    """Tensors are dropped when synchronize returns, and others are allocated at once in their memory."""
    for _ in range(20):
        handles = [
            hvd.allreduce_async(place.put(torch.full((100_000,), float(rank + i))), op=hvd.Sum)
            for i in range(4)
        ]
        results = []
        for handle in handles:
            results.append(hvd.synchronize(handle))
            place.put(torch.full((100_000,), float("nan")))
        for i, result in enumerate(results):
            assert isinstance(result, torch.Tensor)
            want = float(sum(range(size)) + i * size)
            assert torch.equal(result.cpu(), torch.full((100_000,), want))


def test_started_on_one_stream_and_synchronized_on_another(place: Place, rank: int, size: int) -> None:
    if place.emulated is not None:
        pytest.skip("torch has no streams on the emulated GPU")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        tensor = made_later(place, rank + 1.0)
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


def test_the_host_does_not_wait_in_steady_state(place: Place, rank: int) -> None:
    """In the block, torch raises at each of its calls that waits for the GPU."""
    if place.emulated is not None or hvd.size() > 1:
        pytest.skip("one rank and a real GPU")
    model = torch.nn.Linear(64, 64).to(place.device)
    plain = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = hvd.DistributedOptimizer(plain, model.named_parameters(), compression=hvd.Compression.bit8)
    x = torch.ones(8, 64, device=place.device)
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


def test_operations_refuse_to_be_captured(place: Place) -> None:
    if place.emulated is not None:
        pytest.skip("torch has no graphs on the emulated GPU")
    x = torch.ones(4, device=place.device)
    graph = torch.cuda.CUDAGraph()
    with refused(errors.captured), torch.cuda.graph(graph):
        hvd.allreduce(x)
    assert devices.current_stream(devices.device_of(x)) >= 0
    assert torch.equal(hvd.allreduce(x, op=hvd.Average).cpu(), torch.ones(4))


def test_a_group_waits_for_the_streams_of_all_its_gradients(place: Place, rank: int, size: int) -> None:
    """One stream makes the first gradient slowly, another the last one at once: its hook starts both."""
    if size == 1:
        pytest.skip("alone the optimizer waits for nothing: gradients are its caller's")
    parameters = [torch.nn.Parameter(place.put(torch.zeros(LARGE))) for _ in range(2)]
    fired: list[torch.Tensor] = []
    streams = [new_stream(place) for _ in parameters]

    def make(parameter: torch.Tensor) -> None:
        use(place, streams[len(fired)])
        parameter.grad = place.put(torch.full((LARGE,), 2.0)) if fired else made_later(place, rank + 1.0)
        fired.append(parameter)

    before = current(place)
    for parameter in parameters:
        parameter.register_post_accumulate_grad_hook(make)  # before the optimizer's hook
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(parameters, lr=0.1), [(f"p{i}", p) for i, p in enumerate(parameters)], groups=1
    )
    torch.stack([parameter.sum() for parameter in parameters]).sum().backward()
    optimizer.synchronize()
    use(place, before)
    assert len(fired) == 2
    for parameter, want in zip(fired, [(size + 1) / 2, 2.0], strict=True):
        assert parameter.grad is not None
        assert torch.equal(parameter.grad.cpu(), torch.full((LARGE,), want))
