"""``python -m horovod.tune show|clear|explain``: what earlier jobs have found."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Sequence

from horovod.tune.cache import Cache, Stored
from horovod.tune.report import gain_in, when
from horovod.tune.search import FUSION

EXPLANATION = """\
A job with HOROVOD_AUTOTUNE=1 tries settings while it trains, and keeps what is faster. On rank 0:

1. The first steps do not count: memory is fresh, and names are negotiated.
2. A model of the job's network ranks all configurations, which takes no step. The best are candidates.
3. They, and one step in each setting, run in blocks of a few steps, between blocks of what the job runs with.
   The best third goes on, and again.
4. Who is left has to win on fresh blocks, with a bound on its gain. Then neighbours in one setting after the
   other have to, first in settings that have moved.
5. What won is kept in this folder, with the figures that decided. The next job like it takes it at once.

docs/tuning.md says when to switch it on."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m horovod.tune", description=__doc__)
    parser.add_argument("what", choices=("show", "clear", "explain"))
    what = parser.parse_args(arguments).what
    if what == "explain":
        print(EXPLANATION)
        return 0
    try:
        cache = Cache(Cache.usual_folder(os.environ), _warn)
    except RuntimeError as error:  # a user without a home directory
        return _failed(f"HOROVOD_AUTOTUNE_CACHE names no folder: {error}")
    try:
        said = _cleared(cache) if what == "clear" else _kept(cache)
    except OSError as error:
        return _failed(f"{error.filename or cache.folder}: {error.strerror or error}")
    print(said)
    return 0


def _warn(line: str) -> None:
    print(line, file=sys.stderr)


def _failed(why: str) -> int:
    _warn(f"python -m horovod.tune: {why}")
    return 1


def _cleared(cache: Cache) -> str:
    return f"{cache.clear()} file(s) removed from {cache.folder}"


def _kept(cache: Cache) -> str:
    return "\n\n".join(map(shown, cache.all())) or f"nothing was kept in {cache.folder}"


def shown(stored: Stored) -> str:
    """Return a workload, the settings found for it, their gain, and how to use them, as text for users."""
    key, figures = stored.key, stored.figures
    counts = [figures.get(name) for name in ("parameters", "tensors")]
    size = ": {:,} parameters in {:,} tensors".format(*counts) if all(type(n) is int for n in counts) else ""
    gain = gain_in(figures)
    gained = f"{gain[0]:.2f}x ({gain[1]:.2f} to {gain[2]:.2f})" if gain is not None else "nothing was faster"
    ranks = re.sub(r"^(\d+) on (\d+) ", r"\1 on \2 host(s) ", key.world).replace("_", " ")
    launched = re.match(r"\d+", key.world)
    versions = re.sub(r" \([0-9a-f]{16}\)", "", key.versions)  # without the digest of the core
    return "\n".join(
        [
            f"{key.model_name}{size}; {key.face}",
            f"  found {when(figures)}, for ranks: {ranks}; {key.machine}; horovod {versions}",
            *(f"  {name}={text}{_in_units(name, text)}" for name, text in stored.settings.items()),
            f"  gain: {gained}",
            f"  to use it: horovodrun -np {launched[0] if launched else 'N'} --autotune python ...",
        ]
    )


def _in_units(name: str, text: str) -> str:
    """Return " (128 MiB)" for a number of bytes; "" for other settings."""
    if name != FUSION or not re.fullmatch(r"\d{1,18}", text):
        return ""
    size = int(text)
    return f" ({size / 2**20:g} MiB)" if size >= 2**20 else f" ({size / 2**10:g} KiB)"


if __name__ == "__main__":
    raise SystemExit(main())
