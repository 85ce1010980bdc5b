"""How much of a bucket travels at a time."""

import pytest

from horovod.torch.ddp.carried import STEP_ELEMENTS, _elements_of_slice


@pytest.mark.parametrize("size", [2, 3, 4, 8, 1000])
def test_all_ranks_messages_are_bounded_together(size: int) -> None:
    """Each rank has a message for itself and each other one: as long as a slice, or as what is gathered."""
    gathered, scattered = _elements_of_slice(size, False), _elements_of_slice(size, True)
    assert STEP_ELEMENTS < size * gathered <= 2 * STEP_ELEMENTS
    assert STEP_ELEMENTS - size < size * scattered <= STEP_ELEMENTS


def test_a_step_has_something_in_it() -> None:
    assert _elements_of_slice(10 * STEP_ELEMENTS, True) == 1
