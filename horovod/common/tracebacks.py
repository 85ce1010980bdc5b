"""Uncaught errors of this package are printed with the script's own lines only.

The lines inside this package and torch tell a reader of the script nothing: they are left out of the output,
not of the error. HOROVOD_LOG_LEVEL=debug prints them. An error of another kind, which may be a mistake of
this package, is printed whole.

Warnings raised inside this package are printed like its log lines, "horovod: ...", as their place tells a
reader nothing either. Warnings that name a line of the script by `stacklevel`, and warnings of other
packages, are printed as usual. Filters see all warnings unchanged.
"""

from __future__ import annotations

import dis
import os
import sys
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from horovod.common.exceptions import HorovodInternalError

_PACKAGE = str(Path(__file__).resolve().parents[1]) + os.sep
_format_before = warnings.formatwarning
_SENTENCES = (ValueError, NotImplementedError, HorovodInternalError)


def install() -> None:
    """Print uncaught errors and warnings in this way, unless another program has installed its own hooks."""
    if sys.excepthook is sys.__excepthook__:
        sys.excepthook = _show
    if warnings.formatwarning is _format_before:
        warnings.formatwarning = _format_warning


def shown(error: BaseException) -> str:
    """The text printed for an uncaught error."""
    with _without_what_is_below(error):
        return "".join(traceback.format_exception(error))


def _show(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if os.environ.get("HOROVOD_LOG_LEVEL", "").strip().lower() in ("debug", "trace"):
        sys.__excepthook__(kind, error, trace)
        return
    with _without_what_is_below(error):
        sys.__excepthook__(kind, error, error.__traceback__)


@contextmanager
def _without_what_is_below(error: BaseException) -> Iterator[None]:
    """Inside the block, the traceback ends at the script's call. Debuggers later get all of it."""
    entries = list(_entries(error.__traceback__))
    files = [entry.tb_frame.f_code.co_filename for entry in entries]
    count = max((number + 1 for number, file in enumerate(files) if not _is_below(file)), default=0)
    if not count or not _says_all(error, entries[-1]) or _follows_the_scripts(error):
        yield
        return
    whole, cause, is_quiet = error.__traceback__, error.__cause__, error.__suppress_context__
    brief: TracebackType | None = None
    for entry in reversed(entries[:count]):
        brief = TracebackType(brief, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    error.__traceback__, error.__cause__ = brief, None
    error.__suppress_context__ = True  # sentences name their cause
    try:
        yield
    finally:
        error.__traceback__, error.__cause__, error.__suppress_context__ = whole, cause, is_quiet


def _entries(trace: TracebackType | None) -> Iterator[TracebackType]:
    while trace is not None:
        yield trace
        trace = trace.tb_next


def _says_all(error: BaseException, last: TracebackType) -> bool:
    """Whether this package raised the error on purpose; the core raises the classes in _SENTENCES."""
    code = last.tb_frame.f_code
    if not code.co_filename.startswith(_PACKAGE):
        return False
    is_raised = dis.opname[code.co_code[last.tb_lasti]] == "RAISE_VARARGS"
    return is_raised or isinstance(error, _SENTENCES)


def _follows_the_scripts(error: BaseException) -> bool:
    """Whether an error of the script came before: that one is the reason, and is printed."""
    before = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if before is None:
        return False
    files = [entry.tb_frame.f_code.co_filename for entry in _entries(before.__traceback__)]
    return not all(map(_is_below, files)) or _follows_the_scripts(before)


def _is_below(file: str) -> bool:
    torch = getattr(sys.modules.get("torch"), "__file__", None)
    return file.startswith(_PACKAGE) or bool(torch and file.startswith(os.path.dirname(torch) + os.sep))


def _format_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    if os.path.realpath(filename).startswith(_PACKAGE):
        return f"horovod: {message}\n"
    return _format_before(message, category, filename, lineno, line)
