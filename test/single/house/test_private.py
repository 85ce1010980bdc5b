"""A test that uses a private attribute has a comment with the reason: `# private: _a, _b: why`.

A refactoring of internals then breaks only tests with such a comment.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[2]
COMMENT = re.compile(r"^# private: ((?:\w+, )*\w+): .{10,}$", re.MULTILINE)
# Names that their libraries document as public in spite of the underscore.
OF_PYTHON = {"_CFuncPtr", "_asdict", "_exit", "_fields", "_getframe", "_replace"}
OF_PYTEST = {"_fixtureinfo"}
OF_TORCH = {
    *("_BatchNorm", "_NCCL_AVAILABLE", "_base", "_coalescing_manager", "_comm_hooks", "_get_backend"),
    *("_get_ddp_logging_data", "_has_hooks", "_has_rebuilt_buckets", "_layer_sync", "_make_subclass"),
    "_metadata",
    *("_nnz", "_register_builtin_comm_hook", "_scale", "_set_generator_metaclass", "_timeout"),
    *("_unregister_all_process_groups", "_use_python_reducer", "_version"),
}
OF_HOROVOD = {  # names that Horovod's users use
    *("_MPI_LIB_AVAILABLE", "_allreduce_delay", "_basics", "_check_has_gpu", "_comm_process_set_id"),
    *("_get_process_set_ids_and_ranks", "_groups", "_handlers", "_handles", "_host_messages"),
    *("_last_updated_timestamp", "_listeners", "_parameter_names", "_requires_update", "_saved_state"),
}
PUBLIC = OF_PYTHON | OF_PYTEST | OF_TORCH | OF_HOROVOD | {"_native", "_horovod_original"}


def private_of(text: str) -> set[str]:
    """Private attributes that a file uses, except of `self`."""
    found = set()
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Attribute) or not re.match("_[^_]", node.attr):
            continue
        owner = node.value.func if isinstance(node.value, ast.Call) else node.value
        if not isinstance(owner, ast.Name) or owner.id not in ("self", "cls", "super"):
            found.add(node.attr)
    return found - PUBLIC


def said_in(text: str) -> set[str]:
    return {name for names in COMMENT.findall(text) for name in names.split(", ")}


@pytest.mark.parametrize(
    "folder", sorted(path.name for path in TESTS.iterdir() if path.is_dir() and path.name != "emulated_cuda")
)
def test_private_attributes_have_a_reason(folder: str) -> None:
    wrong = {}
    for path in (TESTS / folder).rglob("*.py"):
        text = path.read_text()
        if (used := private_of(text)) != (said := said_in(text)):
            wrong[str(path.relative_to(TESTS))] = {"without a reason": used - said, "not used": said - used}
    assert not wrong


def test_what_is_used_is_found() -> None:
    text = "a._b; self._c; super()._d; c()._e; a.__f__; os._exit(1); a.b._g = 1"
    assert private_of(text) == {"_b", "_e", "_g"}
    assert said_in("# private: _b, _e: nothing else shows it\n# private: _g: no") == {"_b", "_e"}
