"""Modules of Horovod that this package lacks: importing one raises an error that names a replacement.

`import horovod.keras` consults neither `horovod/__init__.py` nor its `__getattr__`, only finders. So this
module installs one, last in sys.meta_path: Python asks it only about modules that no other finder found, so
other imports cost nothing. A module that is built one day needs only its row removed here.
docs/compatibility.md lists the rows; a test compares the two.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from horovod.common.sentences import did_you_mean

_NATIVE = "horovod._native"  # in a built package, found before this finder is asked
_ELSEWHERE = "this package serves PyTorch only: use horovod.torch, or Horovod 0.28.1 for"

# Full name -> why, and what to do instead. Submodules of a row's module are absent too.
ABSENT: dict[str, str] = {
    "horovod.tensorflow": f"{_ELSEWHERE} TensorFlow",
    "horovod.keras": f"{_ELSEWHERE} Keras",
    "horovod.mxnet": f"{_ELSEWHERE} MXNet",
    "horovod.spark": "Spark comes later: start the training with horovodrun or horovod.run()",
    "horovod.ray": "Ray comes later: start the training with horovodrun or horovod.run()",
    "horovod.data": "it comes later, with Spark: use torch.utils.data.DataLoader, which loads ahead too",
}
# Packages of the original Horovod that this package never has.
_OF_HOROVOD = ("keras", "mxnet", "ray", "spark", "tensorflow")


def refuse_leftovers(package: str) -> None:
    """Raise ImportError if the package's folder also has files of the original Horovod.

    pip removes Horovod before it installs this package, which has the same name; other installers may not.
    """
    if left := [name for name in _OF_HOROVOD if os.path.exists(os.path.join(package, name, "__init__.py"))]:
        raise ImportError(
            f"{package} has files of two packages, this one and the original Horovod (its "
            f"{', '.join(left)}), which cannot work together. Type `{sys.executable} -m pip uninstall -y "
            f"horovod`, delete {package}, and install this package again"
        )


def _sentence(name: str) -> str:
    return f"{name} is not served: {ABSENT[name]}."


def attribute_error(module: str, name: str) -> AttributeError:
    """The error that a module's ``__getattr__`` raises for an attribute it does not have."""
    full = f"{module}.{name}"
    if full in ABSENT:
        return AttributeError(_sentence(full))
    known = [] if name.startswith("_") else getattr(sys.modules[module], "__all__", [])
    hint = did_you_mean(name, known)
    return AttributeError(f"module {module!r} has no attribute {name!r}{hint}")


def _native_elsewhere() -> Any:
    """The spec of an installed native module that fits these sources, which are not built."""
    from importlib.util import spec_from_file_location

    from horovod.common.build_info import native_module, native_package, why_unbuilt

    module = native_module(native_package())
    if module is None:
        raise ModuleNotFoundError(why_unbuilt())
    return spec_from_file_location(_NATIVE, module)


class _Refusing:
    """Finds only an installed core, and explains failures. Python imports parent modules first."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> Any:
        # Without `name=`: `from horovod import keras` would hide an error that names the submodule.
        if name in ABSENT:
            raise ModuleNotFoundError(_sentence(name))
        if name == _NATIVE:
            return _native_elsewhere()


def install() -> None:
    """Make imports of absent modules fail with their sentence. Idempotent."""
    if _Refusing not in sys.meta_path:
        sys.meta_path.append(_Refusing)
