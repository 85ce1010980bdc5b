"""Horovod for PyTorch: data-parallel training whose gradients travel compressed.

Training scripts import `horovod.torch`. This module stays light on purpose: it imports neither torch nor the
native core, so that `horovodrun` and the build can read the version in no time. `horovod.run(function, ...)`
calls a function on several ranks.
"""

from pathlib import Path as _Path
from typing import TYPE_CHECKING, Any

from horovod.common import absent as _absent

if TYPE_CHECKING:
    from horovod.runner.run_function import run as run

__version__ = "0.29.0"

_absent.install()
_absent.refuse_leftovers(_Path(__file__).parent)


def __getattr__(name: str) -> Any:
    if name == "run":
        from horovod.runner.run_function import run

        return run
    raise _absent.attribute_error(__name__, name)
