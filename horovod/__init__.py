"""Horovod for PyTorch: data-parallel training whose gradients travel compressed.

Training scripts import `horovod.torch`. This module stays light on purpose: it imports neither torch nor the
native core, so that `horovodrun` and the build can read the version in no time.
"""

from horovod.common import absent as _absent

__version__ = "0.29.0"

_absent.install()
