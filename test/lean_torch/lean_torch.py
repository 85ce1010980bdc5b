"""Python processes of the tests start without torch._dynamo and torch._meta_registrations.

The one is the front end of torch.compile. Optimizers only tell it to leave them alone, and DDP asks for
one of its settings, but for that a process imports it, which takes twice as long as the rest of torch.
The other says what operations do to tensors without data, in Python, which the compiler and DTensor need:
a third of the rest. So where this folder is on PYTHONPATH (test/conftest.py sees to it) stand-ins are
found under their names. The compiler's knows what optimizers and DDP ask of it. Whoever asks for more
gets torch's own in their place.

While torch is imported, nothing looks for garbage, and later nobody looks for it in what that has left:
else it is a seventh of the import, and a tenth of what short tests take.
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
# They import the compiler, and it them: it comes first, as where an optimizer has imported it.
IN_A_CIRCLE = {"torch.distributed.tensor", "torch.distributed.fsdp"}


def disable(function: Callable[..., Any] | None = None, *_: Any, **__: Any) -> Callable[..., Any]:
    """A decorator, with arguments or without."""
    return function if function is not None else disable


def end_groups_when_gloo_rests() -> None:
    """Without that one of ten DDP jobs hung on busy cores, compressed or not: torch's own, see there."""
    if "torch.distributed.distributed_c10d" in sys.modules:
        importlib.import_module("horovod.gloo_threads").wait_for_gloo_in_destroy_process_group()


class StandIn(ModuleType):
    """Has the attributes that it is given; for anything else it makes way."""

    def __init__(self, name: str, **attributes: Any) -> None:
        super().__init__(name)
        self.__dict__.update(attributes)

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("__"):  # whoever looks through all modules, as inspect does
            raise AttributeError(attribute)
        make_way()
        return getattr(importlib.import_module(self.__name__), attribute)


def stand_in_for(name: str) -> StandIn:
    if name == META:
        look_for_garbage_again()
        # One thing that is done where that is imported, since torch 2.13: random generators need it.
        core = sys.modules["torch._C"]
        if hasattr(core, "_set_generator_metaclass"):
            core._set_generator_metaclass(importlib.import_module("torch._opaque_base").OpaqueBaseMeta)
        return StandIn(META)
    end_groups_when_gloo_rests()  # DDP imports the compiler; or it was there, and init_process_group() asks
    return StandIn(
        COMPILER,
        __path__=[os.path.join(folder, "_dynamo") for folder in sys.modules["torch"].__path__],
        # Optimizers'.
        disable=disable,
        graph_break=lambda msg="": None,
        # DDP's, and that of the beginning of a process group.
        utils=StandIn(f"{COMPILER}.utils", get_optimize_ddp_mode=lambda: "ddp_optimizer"),
        trace_rules=StandIn(f"{COMPILER}.trace_rules", clear_lru_cache=end_groups_when_gloo_rests),
    )


def look_for_garbage_again() -> None:
    """Torch asks for META last."""
    if not gc.isenabled():
        gc.freeze()
        gc.enable()


def make_way() -> None:
    """Have torch's own imported: what it stood in for, and what is asked for from now on."""
    if finder not in sys.meta_path:
        return
    sys.meta_path.remove(finder)
    stood_in = [name for name in (META, COMPILER) if isinstance(sys.modules.get(name), StandIn)]
    for name in stood_in:
        del sys.modules[name]
    for name in stood_in:
        importlib.import_module(name)


class Finder(MetaPathFinder, Loader):
    """Finds the stand-ins; and makes way before what needs torch's own, which may import the same."""

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
        """There is nothing to execute, or it has been."""
        if module.__spec__ and module.__spec__.loader_state:
            module.__spec__ = module.__spec__.loader_state


finder = Finder()
sys.meta_path.insert(0, finder)
