"""Modules of Horovod that this package does not have: importing one says so, and what to use, in a sentence.

`import horovod.keras` asks neither `horovod/__init__.py` nor its `__getattr__`, only finders. So either there
is a file for each of these names, with an error in it and nothing else, or one finder. It stands last in
sys.meta_path, where it is asked only about modules that nobody else found: it costs nothing else, and a
module that is built one day needs no change here but its row's removal. docs/compatibility.md lists the rows;
a test holds the two together.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from horovod.common.names import did_you_mean

__all__ = ["ABSENT", "attribute_error", "install", "refuse_leftovers"]

_ELSEWHERE = "this package serves PyTorch only: use horovod.torch, or Horovod 0.28.1 for"

# Full name -> why, and what to do instead. Modules below one of these are absent with it.
ABSENT: dict[str, str] = {
    "horovod.tensorflow": f"{_ELSEWHERE} TensorFlow",
    "horovod.keras": f"{_ELSEWHERE} Keras",
    "horovod.mxnet": f"{_ELSEWHERE} MXNet",
    "horovod.spark": "Spark comes later: start the training with horovodrun or horovod.run()",
    "horovod.ray": "Ray comes later: start the training with horovodrun or horovod.run()",
    "horovod.data": "it comes later, with Spark: use torch.utils.data.DataLoader, which loads ahead too",
}


NATIVE = "horovod._native"  # is there in what was built, and found before this finder is asked


# Packages of Horovod's own; here there never are any.
_OF_HOROVOD = ("keras", "mxnet", "ray", "spark", "tensorflow")


def refuse_leftovers(package: str) -> None:
    """Raise ImportError where files of the original Horovod lie among this package's, in one folder.

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
    """The error of a module's ``__getattr__`` for an attribute it does not have."""
    full = f"{module}.{name}"
    if full in ABSENT:
        return AttributeError(_sentence(full))
    known = [] if name.startswith("_") else getattr(sys.modules[module], "__all__", [])
    hint = did_you_mean(name, known)
    return AttributeError(f"module {module!r} has no attribute {name!r}{hint}")


def _native_elsewhere() -> Any:
    """The spec of an installed native module that fits these sources, which are not built."""
    from importlib.util import spec_from_file_location

    from horovod.common.unbuilt import native_module, native_package, why_unbuilt

    module = native_module(native_package())
    if module is None:
        raise ModuleNotFoundError(why_unbuilt())
    return spec_from_file_location(NATIVE, module)


class _Refusing:
    """Finder that finds nothing but an installed core, and knows why. Parents are asked for first."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> Any:
        # Without its `name`: `from horovod import keras` would hide an error that names the submodule.
        if name in ABSENT:
            raise ModuleNotFoundError(_sentence(name))
        if name == NATIVE:
            return _native_elsewhere()


def install() -> None:
    """Have imports of absent modules refused with their sentence. Harmless when repeated."""
    if _Refusing not in sys.meta_path:
        sys.meta_path.append(_Refusing)
