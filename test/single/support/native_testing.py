"""horovod._native_testing as `testing`: parts of the core. A test that imports this module is skipped if the
extension does not exist, as in a wheel. HOROVOD_DEVELOPER=1 builds it in place.
"""

from __future__ import annotations

from importlib.util import find_spec

import pytest

if find_spec("horovod._native_testing") is None:
    pytest.skip(
        "this horovod is without _native_testing, as wheels are; HOROVOD_DEVELOPER=1 make test builds it",
        allow_module_level=True,
    )

from horovod import _native_testing as testing

__all__ = ["testing"]
