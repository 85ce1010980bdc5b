"""Prints docs/configuration.md, made from the table of options; `make generated` writes the file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from horovod.common.options import CORE, LAUNCHER, OPTIONS, PYTHON, UNSERVED, Option
from horovod.common.variables import OF_THE_BUILD, OF_THE_GPU_LIBRARY

_INTRODUCTION = """\
# Configuration

`make generated` writes this page from the table in `horovod/common/options`. Set an option by a flag of
`horovodrun`, by a key of the YAML file that `--config-file` names, or by an environment variable. The command
line overrides the file, and the file overrides the environment. The core reads its variables in `hvd.init()`,
so they take effect under plain `mpirun` too.

| mark | meaning |
|---|---|
| *the job* | all ranks must have the same value, otherwise each raises an error with all values |
| *new* | Horovod has no such option |
| *tuned* | the [autotuner](tuning.md#the-autotuner) tries values, in all jobs or as the mark says |

An unknown variable that begins with `HOROVOD_` gives a warning with the closest known name: from `horovodrun`
before ranks start, otherwise from rank 0.
"""

_CONFIG_FILE = """\
## Config file

```yaml
params:
  fusion_threshold_mb: 64
  cycle_time_ms: 2.5
  cache_capacity: 2048
  compression: bit8
timeline:
  filename: /tmp/timeline.json
  mark_cycles: true
stall_check:
  enabled: true
  warning_time_seconds: 30
library_options:
  thread_affinity: 3
logging:
  level: info
  with_timestamp: false
```

The file is a regular one of at most 1 MiB, or a symbolic link to one; a pipe or a device is refused.
Unknown keys are warned about by name. A section with `enabled: false` may hold settings that are not served.
"""


def page() -> str:
    parts = {
        "The launcher": LAUNCHER,
        "The core": CORE,
        "Read in Python, by `hvd.init()` and `hvd.DistributedOptimizer`": PYTHON,
    }
    sections = [
        _INTRODUCTION,
        *(f"## {title}\n\n{_table(o for o in OPTIONS if o.part == part)}" for title, part in parts.items()),
        "## Read by the library for GPUs, `libhorovod_cuda.so`\n\n" + _variables(OF_THE_GPU_LIBRARY),
        _CONFIG_FILE,
        "## Building\n\nRead by `pip install .` and `python setup.py build`.\n\n" + _variables(OF_THE_BUILD),
        "## Options of Horovod that are not served\n\nAsking for one is an error (as a variable: a warning) "
        "with the "
        "sentence shown here; switching it off is fine.\n\n"
        + _rows(
            ("flag", "variable", "config file", "why, and what to do"),
            [
                (_code(o.flags), _code([o.variable]), _code([o.key]), o.unserved)
                for o in OPTIONS
                if o.part == UNSERVED
            ],
        ),
    ]
    return "\n".join(sections)


def _table(options: Iterable[Option]) -> str:
    columns: dict[str, Callable[[Option], str]] = {
        "flag": lambda option: _code([*option.flags, *option.off_flags]),
        "variable": lambda option: _code([option.variable]),
        "config file": lambda option: _code([option.key]),
        "type": lambda option: " \\| ".join(option.choices) or option.type,
        "default": lambda option: _code([option.default]),
        "meaning": lambda option: option.help.replace("|", "\\|") + _marks(option),
    }
    return _rows([*columns], ([cell(option) for cell in columns.values()] for option in options))


def _marks(option: Option) -> str:
    """Scope, tuning and novelty, as a suffix of the meaning: another column would not fit on a screen."""
    tuned = f"tuned {option.tried}".strip() if option.tries else ""
    marks = [option.scope, tuned, "new" if option.is_new else ""]
    return "".join(f" (*{mark}*)" for mark in marks if mark)


def _variables(meanings: Mapping[str, str]) -> str:
    """Return a table with a row for each meaning, which several variables may share."""
    named = {text: [name for name in meanings if meanings[name] == text] for text in meanings.values()}
    return _rows(("variable", "meaning"), ((_code(names), text) for text, names in named.items()))


def _code(words: Sequence[str]) -> str:
    return ", ".join(f"`{word}`" for word in words if word)


def _rows(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


if __name__ == "__main__":
    print(page(), end="")
