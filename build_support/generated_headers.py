"""Python's tables as C++ headers for the core: the options that it reads, and time limits.

Every build first writes the headers whose table has changed. They are tracked as well, so they are beside the
core's sources for readers, checks and compilers, and the core's digest includes them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from horovod.common import time_limits
from horovod.common.options import CORE, JOB, OPTIONS, Option

_BASE = Path(__file__).resolve().parent.parent / "horovod" / "native" / "base"
SETTINGS, LIMITS = _BASE / "settings_rows.h", _BASE / "time_limits.h"
_MADE = """\
// Made of horovod/common/{table} by build_support/generated_headers.py: change that table.
"""
_SETTINGS = """\
#pragma once

// X(variable, member, type, default, reader of settings.cc, whether all ranks must have the same, whether it
// may change while a job runs)
//
// clang-format off
#define HVD_FOR_EACH_SETTING(X)"""
_LIMITS = """\
#pragma once

#include <chrono>

// For how long a process waits for another before it acts. The table has the reasons.
namespace hvd::time_limits {{

{rows}

}}  // namespace hvd::time_limits
"""


def settings_text(options: Iterable[Option] = OPTIONS) -> str:
    beginning = _MADE.format(table="options") + _SETTINGS
    return " \\\n".join([beginning, *(f"  {_row(o)}" for o in options if o.part == CORE)]) + "\n"


def limits_text() -> str:
    return _MADE.format(table="time_limits.py") + _LIMITS.format(
        rows="\n".join(map(_limit, time_limits.CORE))
    )


def write() -> None:
    """Write headers that differ from their tables. Others keep their time, on which the build depends."""
    for header, made in ((SETTINGS, settings_text()), (LIMITS, limits_text())):
        if not header.exists() or header.read_text() != made:
            header.write_text(made)


def _limit(name: str) -> str:
    camel = "".join(word.capitalize() for word in name.split("_"))
    return f"constexpr std::chrono::milliseconds k{camel}{{{round(getattr(time_limits, name) * 1e3)}}};"


def _row(option: Option) -> str:
    kind, default, reader = _in_cpp(option)
    agreed = "true" if option.scope == JOB else "false"
    tuned = "true" if option.tries else "false"
    return f"X({option.variable}, {option.member}, {kind}, {default}, {reader}, {agreed}, {tuned})"


def _in_cpp(option: Option) -> tuple[str, str, str]:
    """Type, default and reader in C++."""
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
