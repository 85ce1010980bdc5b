"""may_turn_off: steps with and without compression are measured, and all ranks keep the faster way."""

import copy
import logging
import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from ddp_training import Training, gathered

from horovod.torch import Compression
from horovod.torch.compression import Bit8Compressor
from horovod.torch.ddp.choice import MEASURED, WARM_UP, Trial

STEPS = len(WARM_UP) + len(MEASURED)


def clock_of(compressed: float, plain: float) -> Any:
    """A clock by which a step takes the given seconds for its kind; every tenth step takes a minute."""

    def ticks() -> Iterator[float]:
        now = 100.0
        for number, is_compressed in enumerate(WARM_UP + MEASURED):
            yield now
            now += 60.0 if number % 10 == 9 else compressed if is_compressed else plain
        yield now

    running = ticks()
    return lambda: next(running)


@pytest.fixture
def said() -> Iterator[list[str]]:
    """The lines that the logger receives in a test."""
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("horovod.torch.ddp")
    logger.addHandler(handler)
    yield lines
    logger.removeHandler(handler)


@pytest.mark.parametrize(("compressed", "plain", "is_on"), [(0.5, 2.0, True), (2.0, 0.5, False)])
def test_the_slowest_ranks_medians_decide(
    compressed: float, plain: float, is_on: bool, rank: int, said: list[str]
) -> None:
    """Each rank has other figures; all reach the same choice, which only rank 0 logs."""
    group = dist.group.WORLD
    assert group is not None
    trial = Trial(group, clock_of(compressed / (rank + 1), plain / (rank + 1)))
    cpu = torch.device("cpu")
    kinds = [trial.begin_step(cpu) for _ in range(STEPS)]
    assert trial.choice is None and not said
    assert [trial.begin_step(cpu) for _ in range(3)] == [is_on] * 3
    assert kinds == list(WARM_UP + MEASURED) and sum(MEASURED) == len(MEASURED) / 2
    assert trial.choice == (is_on, compressed, plain)
    line = (
        f"compression is {'on' if is_on else 'off'}: a step takes {1000 * compressed:.3g} ms with it and "
        f"{1000 * plain:.3g} ms without (median of 10 each, slowest rank)"
    )
    assert said == [line] * (rank == 0)


class Slow(Bit8Compressor):
    """A slow codec, not of the core, so that its Python methods determine the time."""

    def compress(self, tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:  # type: ignore[override]
        time.sleep(0.05)
        return super().compress(tensor)


def test_compression_that_does_not_pay_is_left_out(size: int) -> None:
    """From then on a step is plain DDP's, to the bit; the residuals are dropped."""
    if size == 1:
        pytest.skip("a world of one compresses nothing")
    slow = Slow(min_elements=0, error_feedback=True)
    training = Training(slow, how={"may_turn_off": True})
    assert training.state is not None
    training.run(range(STEPS))
    assert training.state.choice is None and training.state.state_dict()
    training.run(range(STEPS, STEPS + 1))
    choice = training.state.choice
    assert choice is not None and not choice.is_compressed
    assert choice.compressed_seconds > 0.05 and gathered(choice) == [choice] * size
    assert training.state.state_dict() == {}
    plain = Training().run(range(2))  # also with rebuilt buckets: with three ranks sums depend on them
    plain.model.load_state_dict(training.model.state_dict())
    plain.optimizer.load_state_dict(copy.deepcopy(training.optimizer.state_dict()))
    assert torch.equal(training.run(range(5)).flat(), plain.run(range(5)).flat())


def test_nothing_is_measured_where_nothing_is_compressed() -> None:
    training = Training(Compression.none, how={"may_turn_off": True}).run(range(STEPS + 1))
    assert training.state is not None and training.state.choice is None
