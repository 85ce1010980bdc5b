"""Python processes of the tests start without torch._dynamo and torch._meta_registrations.

torch._dynamo is the front end of torch.compile. Optimizers only exclude themselves from it, and DDP reads one
of its settings; but for that a process imports it, which takes twice as long as the rest of torch.
torch._meta_registrations defines in Python the operations on tensors without data, for the compiler and
DTensor: a third of the rest.

If this folder is on PYTHONPATH (test/conftest.py sets it) stand-ins are imported under their names. The
compiler's stand-in has the attributes that optimizers and DDP use. Any other attribute replaces the stand-in
by torch's own module.

The garbage collector is off while torch is imported, and later ignores the objects of the import: it would
take a seventh of the import, and a tenth of the time of short tests.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

COMPILER, META = "torch._dynamo", "torch._meta_registrations"
# They import the compiler, which imports them: it comes first, as if an optimizer had imported it.
IN_A_CIRCLE = {"torch.distributed.tensor", "torch.distributed.fsdp"}


def disable(function: Callable[..., Any] | None = None, *_: Any, **__: Any) -> Callable[..., Any]:
    """A decorator, with or without arguments."""
    return function if function is not None else disable


def end_groups_when_gloo_rests() -> None:
    """Apply the package's fix: without it one of ten DDP jobs hung on busy cores, compressed or not."""
    if "torch.distributed.distributed_c10d" in sys.modules:
        importlib.import_module("horovod.gloo_threads").wait_for_gloo_in_destroy_process_group()


class StandIn(ModuleType):
    """A module with the given attributes; any other attribute replaces it by torch's own."""

    def __init__(self, name: str, **attributes: Any) -> None:
        super().__init__(name)
        self.__dict__.update(attributes)

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("__"):  # a reader of all modules, such as inspect
            raise AttributeError(attribute)
        make_way()
        return getattr(importlib.import_module(self.__name__), attribute)


def stand_in_for(name: str) -> StandIn:
    if name == META:
        look_for_garbage_again()
        # Importing the real module has this side effect since torch 2.13, which random generators need.
        core = sys.modules["torch._C"]
        if hasattr(core, "_set_generator_metaclass"):
            core._set_generator_metaclass(importlib.import_module("torch._opaque_base").OpaqueBaseMeta)
        return StandIn(META)
    end_groups_when_gloo_rests()  # if DDP imports the compiler, or init_process_group() needs it
    return StandIn(
        COMPILER,
        __path__=[os.path.join(folder, "_dynamo") for folder in sys.modules["torch"].__path__],
        # Used by optimizers.
        disable=disable,
        graph_break=lambda msg="": None,
        # Used by DDP, and at the start of a process group.
        utils=StandIn(f"{COMPILER}.utils", get_optimize_ddp_mode=lambda: "ddp_optimizer"),
        trace_rules=StandIn(f"{COMPILER}.trace_rules", clear_lru_cache=end_groups_when_gloo_rests),
    )


def look_for_garbage_again() -> None:
    """Torch requests META last."""
    if not gc.isenabled():
        gc.freeze()
        gc.enable()


def make_way() -> None:
    """Import torch's own module in place of the stand-in, now and for later requests."""
    if finder not in sys.meta_path:
        return
    sys.meta_path.remove(finder)
    stood_in = [name for name in (META, COMPILER) if isinstance(sys.modules.get(name), StandIn)]
    for name in stood_in:
        del sys.modules[name]
    for name in stood_in:
        importlib.import_module(name)


class Finder(MetaPathFinder, Loader):
    """Finds the stand-ins; removes them before an import that needs torch's own modules."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name == "torch":
            gc.disable()
        needs_own = name.startswith(f"{COMPILER}.") or name in IN_A_CIRCLE
        return ModuleSpec(name, self) if name in (COMPILER, META) or needs_own else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        if spec.name in (COMPILER, META):
            return stand_in_for(spec.name)
        make_way()
        module = importlib.import_module(spec.name)
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing: the module has no code, or it has been executed."""
        if module.__spec__ and module.__spec__.loader_state:
            module.__spec__ = module.__spec__.loader_state


finder = Finder()
sys.meta_path.insert(0, finder)
