"""The options that the core reads, as C++: horovod/native/base/settings_rows.h, from the table of options.

Every build writes it first, where the table has changed. It is tracked all the same: whoever reads, checks
or compiles the core finds its settings where its sources are, and the digest of the core includes them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from horovod.common.options import CORE, JOB, OPTIONS, Option

HEADER = Path(__file__).resolve().parent.parent / "horovod" / "native" / "base" / "settings_rows.h"
_BEGINNING = """\
// Made of horovod/common/options by build_support/settings_rows.py when the core is built: change that table.
#pragma once

// X(variable, member, type, default, reader of settings.cc, whether all ranks must have the same, whether it
// may change while a job runs)
//
// clang-format off
#define HVD_FOR_EACH_SETTING(X)"""


def text(options: Iterable[Option] = OPTIONS) -> str:
    """The whole header."""
    return " \\\n".join([_BEGINNING, *(f"  {_row(o)}" for o in options if o.part == CORE)]) + "\n"


def write() -> None:
    """Make the header that of the table; one that is already stays as it is, for what depends on its time."""
    made = text()
    if not HEADER.exists() or HEADER.read_text() != made:
        HEADER.write_text(made)


def _row(option: Option) -> str:
    kind, default, reader = _in_cpp(option)
    agreed = "true" if option.scope == JOB else "false"
    tuned = "true" if option.tries else "false"
    return f"X({option.variable}, {option.member}, {kind}, {default}, {reader}, {agreed}, {tuned})"


def _in_cpp(option: Option) -> tuple[str, str, str]:
    """Type, default and reader."""
    if option.type == "bool":
        return "bool", "true" if option.convert(option.default) else "false", "on_or_off()"
    if option.type in ("int", "float"):
        kind = "int64_t" if option.type == "int" else "double"
        return kind, option.default, f"in_range<{kind}>({option.minimum}, {option.highest()})"
    if option.type == "string":
        choices = json.dumps(", ".join(option.choices))
        kind = "one_of_by_size" if option.is_by_size else "one_of"
        reader = f"{kind}({choices})" if option.choices else "any_text()"
        return "std::string", json.dumps(option.default), reader
    raise ValueError(f"{option.variable}: the core has no settings of type {option.type}")


if __name__ == "__main__":
    write()
