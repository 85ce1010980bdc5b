"""Large sums of a group of the backend "horovod" travel compressed, and all ranks get the same bits."""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from ddp_training import all_equal, flat
from refusals import refused
from torch.distributed.algorithms.join import Join
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from horovod.common.exceptions import Disagreement
from horovod.torch import Compression
from horovod.torch.ddp import errors
from horovod.torch_autoload import register_backend

register_backend()

TIMEOUT = datetime.timedelta(seconds=60)
LARGE = 20_000  # elements: above the default of HOROVOD_BACKEND_MIN_ELEMENTS
STEP = 2.0**-3  # bit8 has 3 bits of mantissa; its largest relative error is half of this

MakeGroup = Callable[..., dist.ProcessGroup]


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch, together: None) -> Iterator[MakeGroup]:
    """Make a group of all ranks under variables, given without their prefix HOROVOD_."""
    groups: list[dist.ProcessGroup] = []

    def make_group(**variables: str) -> dist.ProcessGroup:
        for name, text in ({"COMPRESSION": "bit8"} | variables).items():
            monkeypatch.setenv(f"HOROVOD_{name}", text)
        groups.append(dist.new_group(backend="horovod", timeout=TIMEOUT))
        return groups[-1]

    yield make_group
    dist.barrier()  # no rank leaves the gloo group while another still connects
    for group in groups:
        dist.destroy_process_group(group)


def values(rank: int, count: int = LARGE, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(rank)
    return torch.rand(count, generator=generator).to(dtype) + 0.5


def exact_sum(size: int, count: int = LARGE) -> torch.Tensor:
    return torch.stack([values(rank, count).double() for rank in range(size)]).sum(0)


def is_compressed(summed: torch.Tensor, exact: torch.Tensor, size: int) -> bool:
    """Return whether the error is that of one or two quantisations; fail if it is larger, or ranks differ."""
    assert all_equal(summed)
    error = ((summed.double() - exact) / exact).abs().max().item()
    assert error <= (1 + STEP / 2) ** 2 - 1
    return error > 2.0**-9  # bfloat16's rounding is smaller


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_a_large_sum_is_compressed(make: MakeGroup, rank: int, size: int, dtype: torch.dtype) -> None:
    group = make()
    exact = torch.stack([values(n, dtype=dtype).double() for n in range(size)]).sum(0)
    summed = values(rank, dtype=dtype)
    dist.all_reduce(summed, group=group)
    assert is_compressed(summed, exact, size) == (size > 1)


def test_two_ranks_sum_what_the_codec_makes_of_their_values(make: MakeGroup, rank: int, size: int) -> None:
    if size != 2:
        pytest.skip("more ranks reduce slices, and quantise sums again")
    group = make()
    summed = values(rank)
    dist.all_reduce(summed, group=group)
    decoded = [Compression.bit8.decompress(*Compression.bit8.compress(values(n))) for n in range(2)]
    assert torch.equal(summed, decoded[0] + decoded[1])


def test_an_average_is_compressed(make: MakeGroup, rank: int, size: int) -> None:
    group = make()
    average = values(rank)
    dist.all_reduce(average, dist.ReduceOp.AVG, group)
    assert is_compressed(average, exact_sum(size) / size, size) == (size > 1)


@pytest.mark.parametrize("op", ["MIN", "MAX", "PRODUCT"])
def test_other_operations_are_exact(make: MakeGroup, rank: int, size: int, op: str) -> None:
    group = make()
    ours, gloos = values(rank), values(rank)
    dist.all_reduce(ours, getattr(dist.ReduceOp, op), group)
    dist.all_reduce(gloos, getattr(dist.ReduceOp, op), None)
    assert torch.equal(ours, gloos)


def test_what_is_small_or_of_integers_is_exact(make: MakeGroup, rank: int, size: int) -> None:
    group = make()
    small = values(rank, 16_383)
    dist.all_reduce(small, group=group)
    gloos = values(rank, 16_383)
    dist.all_reduce(gloos)
    assert torch.equal(small, gloos)
    integers = torch.arange(LARGE) + rank
    dist.all_reduce(integers, group=group)
    assert torch.equal(integers, torch.arange(LARGE) * size + sum(range(size)))


def test_how_large_is_large(make: MakeGroup, rank: int, size: int) -> None:
    def compresses(group: dist.ProcessGroup, count: int) -> bool:
        summed = values(rank, count)
        dist.all_reduce(summed, group=group)
        return is_compressed(summed, exact_sum(size, count), size)

    many = size > 1
    assert compresses(make(), 16_384) == many
    smaller = make(BACKEND_MIN_ELEMENTS="100")
    assert compresses(smaller, 100) == many and not compresses(smaller, 99)
    larger = make(COMPRESSION="bit8:min_elements=30000", BACKEND_MIN_ELEMENTS="")
    assert compresses(larger, 30_000) == many and not compresses(larger, 29_999)


def test_works_in_flight(make: MakeGroup, rank: int, size: int) -> None:
    """Compressed and other sums, started in one order and waited for in another."""
    group = make()
    large, small, last = values(rank), values(rank, 10), values(rank, 2 * LARGE)
    works = [dist.all_reduce(tensor, group=group, async_op=True) for tensor in (large, small, last)]
    (result,) = works[2].get_future().wait()
    assert result.data_ptr() == last.data_ptr()
    assert works[0].wait(TIMEOUT) and works[1].wait()
    assert works[0].is_completed() and works[0].is_success() and works[0].exception() is None
    assert works[0].get_future().done() and works[0].get_future().value()[0] is large
    for tensor in (large, small, last):
        is_compressed(tensor, exact_sum(size, tensor.numel()), size)


@pytest.mark.parametrize("text", ["bit8", "fp16", "topk:error_feedback=0", "powersgd:error_feedback=0"])
def test_sums_in_inference_mode(make: MakeGroup, rank: int, size: int, text: str) -> None:
    """As in Lightning's validation: tensors made in inference mode cannot be written to outside of it."""
    group = make(COMPRESSION=text)
    with torch.inference_mode():
        summed = values(rank).view(100, -1)
        dist.all_reduce(summed, group=group)
    trained = values(rank).view(100, -1)
    dist.all_reduce(trained, group=group)
    assert torch.equal(trained, summed) or "powersgd" in text, "which remembers its last step"
    assert size == 1 or not torch.equal(trained, values(rank).view(100, -1))


def test_a_callback_may_wait_for_another_sum(make: MakeGroup, rank: int, size: int) -> None:
    """torch's PowerSGD hook does this."""
    group = make()
    first, second = values(rank), values(rank, 2 * LARGE)

    def again(_: object) -> torch.Tensor:
        (result,) = dist.all_reduce(second, group=group, async_op=True).get_future().wait()
        return result

    work = dist.all_reduce(first, group=group, async_op=True)
    assert work.get_future().then(again).wait().data_ptr() == second.data_ptr()
    for tensor in (first, second):
        is_compressed(tensor, exact_sum(size, tensor.numel()), size)


def test_callbacks_run_in_one_order_on_all_ranks(make: MakeGroup, rank: int, size: int) -> None:
    """Operations that callbacks start must match those of other ranks."""
    if size == 1:
        pytest.skip("one rank's sums are gloo's: callbacks on its two threads may wait for each other")
    group = make()
    # The first takes a while, so that none ends before all have their callbacks.
    firsts = [values(rank, 200 * LARGE), *(values(rank) for _ in range(7))]
    seconds = [torch.full((LARGE,), float(n)) for n in range(8)]
    order: list[int] = []

    def again(n: int) -> None:
        order.append(n)
        time.sleep(0.002 * ((n + rank) % 3))
        dist.all_reduce(seconds[n], group=group)

    works = [dist.all_reduce(first, group=group, async_op=True) for first in firsts]
    for ended in [work.get_future().then(lambda _, n=n: again(n)) for n, work in enumerate(works)]:
        ended.wait()
    assert order == list(range(8))
    for n, second in enumerate(seconds):
        torch.testing.assert_close(second, torch.full((LARGE,), float(n * size)), rtol=0.1, atol=0)


def test_coalesced_and_functional_sums(make: MakeGroup, rank: int, size: int) -> None:
    group = make()
    sums = [values(rank), values(rank)]
    with dist._coalescing_manager(group, async_ops=True) as works:
        for tensor in sums:
            dist.all_reduce(tensor, group=group)
    works.wait()
    sums.append(functional.all_reduce(values(rank), "sum", group))
    sums.append(functional.all_reduce(values(rank), "avg", group) * size)
    for tensor in sums:
        assert is_compressed(tensor + 0, exact_sum(size), size) == (size > 1)


def test_fewer_bytes_travel(make: MakeGroup, rank: int, size: int) -> None:
    """Return the bytes that this process writes, mainly to sockets, for ten sums of a million elements."""
    if size == 1:
        pytest.skip("nothing travels")
    written = {}
    for compression in ("none", "bit8"):
        group = make(COMPRESSION=compression)
        tensor = values(rank, 1_000_000)
        dist.all_reduce(tensor, group=group)  # connects, and agrees on settings
        dist.barrier()
        before = bytes_written()
        for _ in range(10):
            dist.all_reduce(tensor.fill_(1.0), group=group)
        written[compression] = bytes_written() - before
    assert written["none"] > 10 * 4_000_000 * (size - 1) / size
    assert written["bit8"] < 0.3 * written["none"]


def bytes_written() -> int:
    lines = Path("/proc/self/io").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("wchar"))


def assert_learns(model: torch.nn.Module, inputs: torch.Tensor, wanted: torch.Tensor) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    losses = []
    for _ in range(8):
        loss = (model(inputs) - wanted).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("options", [{}, {"find_unused_parameters": True}, {"static_graph": True}])
def test_ddp_trains(make: MakeGroup, rank: int, size: int, options: dict[str, bool]) -> None:
    group = make()
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(100, 200), torch.nn.ReLU(), torch.nn.Linear(200, 1))
    wrapped = DistributedDataParallel(model, process_group=group, **options)
    inputs = torch.rand(64, 100, generator=torch.Generator().manual_seed(rank)) - 0.5
    assert_learns(wrapped, inputs, inputs.sum(1, keepdim=True))
    assert all_equal(flat(model))


def test_ddp_with_uneven_inputs(make: MakeGroup, rank: int, size: int) -> None:
    group = make()
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(200, 100), process_group=group)
    with Join([model]):
        for _ in range(1 + rank):
            model(torch.ones(2, 200)).sum().backward()
    assert model.module.weight.grad is not None and model.module.weight.grad.isfinite().all()


def test_fsdp2_trains(make: MakeGroup, rank: int, size: int) -> None:
    group = make()
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(100, 200), torch.nn.Linear(200, 100))
    fully_shard(model, mesh=DeviceMesh.from_group(group, "cpu"))
    inputs = values(rank, 400).view(4, 100)
    assert_learns(model, inputs, inputs)


def test_groups_of_some_ranks(make: MakeGroup, rank: int, size: int) -> None:
    make()
    members = list(range(0, size, 2))
    some = dist.new_group(members, backend="horovod")
    tensor = values(rank)
    if rank in members:
        dist.all_reduce(tensor, group=some)
        exact = torch.stack([values(n).double() for n in members]).sum(0)
        error = ((tensor.double() - exact) / exact).abs().max().item()
        assert (error > 2.0**-9) == (len(members) > 1) and error < STEP
        dist.destroy_process_group(some)


@pytest.mark.parametrize("text", ["topk", "powersgd", "bit8:error_feedback=1"])
def test_error_feedback_is_refused(make: MakeGroup, text: str) -> None:
    with refused(errors.feedback_of_sums, setting="HOROVOD_COMPRESSION", value=text):
        make(COMPRESSION=text)


@pytest.mark.parametrize(
    "text",
    [
        *("fp16", "bf16", "bit16", "int8", "int4"),
        *("topk:error_feedback=0,ratio=1", "powersgd:error_feedback=0"),
    ],
)
def test_every_compressor(make: MakeGroup, rank: int, size: int, text: str) -> None:
    group = make(COMPRESSION=text)
    summed = values(rank, 2 * LARGE).view(200, 200)
    for _ in range(2):
        summed.copy_(values(rank, 2 * LARGE).view(200, 200))
        dist.all_reduce(summed, group=group)
    assert all_equal(summed)
    if not text.startswith("powersgd"):  # random numbers do not fit into its four columns
        # int4 has 7 steps up to 1.5: each value loses up to half a step, and again in a reduced slice.
        assert (summed.flatten() - exact_sum(size, 2 * LARGE)).abs().max() < 2 * (1.51 / 7 / 2) * size


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("HOROVOD_COMPRESSION", "bit9", "bit8, "),
        ("HOROVOD_BACKEND_MIN_ELEMENTS", "many", ">= 0"),
    ],
)
def test_wrong_variables(make: MakeGroup, name: str, text: str, why: str) -> None:
    with pytest.raises(ValueError, match=f"{name}='?{text}'?.*{why}"):
        make(**{name.removeprefix("HOROVOD_"): text})


def test_ranks_that_disagree_hear_of_it(make: MakeGroup, rank: int, size: int) -> None:
    if size == 1:
        make()
        return
    for name, first, others in (("COMPRESSION", "none", "bit8"), ("BACKEND_MIN_ELEMENTS", "1", "")):
        with refused(errors.ranks_disagree) as caught:
            make(**{name: others if rank else first})
        told = caught.value.facts["terms"][f"HOROVOD_{name}"]
        assert told[0] == first and len(told) == size and len(set(told[1:])) == 1
    tensor = values(rank)
    dist.all_reduce(tensor, group=make(BACKEND_MIN_ELEMENTS=""))
    assert is_compressed(tensor, exact_sum(size), size)


def test_ranks_that_sum_different_tensors_hear_of_it(make: MakeGroup, rank: int, size: int) -> None:
    if size == 1:
        pytest.skip("nobody to disagree with")
    group = make()
    with refused(Disagreement, "disagree", property="shape") as caught:
        dist.all_reduce(values(rank, LARGE + (rank == 0)), group=group)
    assert caught.value.values[0] == "(20001,)"
    work = dist.all_reduce(values(rank, LARGE + (rank == 0)), group=group, async_op=True)
    with pytest.raises(RuntimeError):
        work.get_future().wait()
    assert isinstance(work.exception(), Disagreement) and not work.is_success()
