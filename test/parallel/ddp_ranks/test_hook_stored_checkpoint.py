"""A compressed DistributedDataParallel resumes from a checkpoint of an earlier version."""

import sys
import warnings
from pathlib import Path

import torch.distributed as dist
from ddp_training import all_equal

sys.path.insert(0, str(Path(__file__).parents[2] / "single" / "torch" / "stored_checkpoints"))

from stored_training import DIGEST, SIZE, Training, read


def test_training_goes_on_from_a_stored_checkpoint(size: int) -> None:
    training = Training("ddp", dist.get_rank())
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        training.load(read("ddp"))
        training.run(range(3, 4))
    assert all_equal(training.weights.coarse.detach())
    assert (training.digest() == DIGEST) == (size == SIZE)
    begins_anew = [each for each in told if "Error feedback begins anew" in str(each.message)]
    assert bool(begins_anew) == (size not in (1, SIZE))
