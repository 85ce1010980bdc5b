"""Python processes of the tests start without torch._dynamo.

It is the front end of torch.compile. Optimizers only tell it to leave them alone, but for that a process
imports it, which takes as long as the rest of torch. So where this folder is on PYTHONPATH (test/conftest.py
sees to it) a stand-in is found under its name, which knows what optimizers ask of it. Whoever asks for more,
as torch.compile and DDP do, gets torch's own in its place.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

NAME = "torch._dynamo"
# They import it, and it them: it comes first, as where an optimizer has imported it.
IN_A_CIRCLE = {"torch.distributed.tensor", "torch.distributed.fsdp"}


def disable(function: Callable[..., Any] | None = None, *_: Any, **__: Any) -> Callable[..., Any]:
    """A decorator, with arguments or without."""
    return function if function is not None else disable


class StandIn(ModuleType):
    """Has what optimizers ask for; for anything else it makes way."""

    def __init__(self) -> None:
        super().__init__(NAME)
        self.__path__ = [os.path.join(folder, "_dynamo") for folder in sys.modules["torch"].__path__]
        self.disable = disable
        self.graph_break = lambda msg="": None

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("__"):  # whoever looks through all modules, as inspect does
            raise AttributeError(attribute)
        make_way()
        return getattr(sys.modules[NAME], attribute)


def make_way() -> None:
    """Have torch's own imported."""
    if finder in sys.meta_path:
        sys.meta_path.remove(finder)
        sys.modules.pop(NAME, None)
    importlib.import_module(NAME)


class Finder(MetaPathFinder, Loader):
    """Finds the stand-in; and makes way before what needs torch's own, which may import the same."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        needs_own = name.startswith(f"{NAME}.") or (name in IN_A_CIRCLE and NAME in sys.modules)
        return ModuleSpec(name, self) if name == NAME or needs_own else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        if spec.name == NAME:
            return StandIn()
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
