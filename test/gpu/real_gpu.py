"""Whether this machine has a GPU to test on, and for how many ranks."""

import pytest
import torch

from horovod.common.basics import basics

__all__ = ["need_one"]


def need_one() -> None:
    """Skip the module, with the reason, if nothing can run on a GPU."""
    if not torch.cuda.is_available():
        pytest.skip("needs a GPU: torch finds none", allow_module_level=True)
    if not basics.cuda_built():
        pytest.skip("needs a horovod built with CUDA (HOROVOD_WITH_CUDA=1)", allow_module_level=True)
