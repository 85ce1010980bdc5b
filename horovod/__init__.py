"""Horovod for PyTorch: data-parallel training with compressed gradients.

Training scripts import `horovod.torch`. This module imports neither torch, the native core nor pathlib, so
that `horovodrun` and its agents start quickly and the build can read the version. `horovod.run(function,
...)` calls a function on several ranks.
"""

import os as _os
from typing import TYPE_CHECKING, Any

from horovod.common import absent as _absent

if TYPE_CHECKING:
    from horovod.runner.run_function import run as run

__version__ = "0.30.0.dev0"

_absent.install()
_absent.refuse_leftovers(_os.path.dirname(_os.path.abspath(__file__)))


def __getattr__(name: str) -> Any:
    if name == "run":
        from horovod.runner.run_function import run

        return run
    raise _absent.attribute_error(__name__, name)
