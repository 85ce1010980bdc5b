"""The one table of options: flag, HOROVOD_ variable, YAML key, type, default, help.

The command line (`command_line`), the config file (`config_file`), the environment of the ranks (`settings`)
and docs/configuration.md (`configuration_page`) are made from it. An option is one row here, and one more in
horovod/native/base/settings.h when the native core reads it; a test holds the two together.

A row with `unserved` is an option of Horovod that this package cannot honour. Asking for it is an error with
that sentence; asking to switch it off is fine.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from horovod.runner.not_served import UNSERVED_ROWS

LAUNCHER, CORE, UNSERVED = "launcher", "core", "unserved"
MIB = 1024 * 1024


@dataclass(frozen=True)
class Option:
    """One row. `default` is the text of `variable`; a flag's own unit is `scale` of the variable's."""

    name: str
    help: str = ""
    flags: tuple[str, ...] = ()
    off_flags: tuple[str, ...] = ()
    variable: str = ""
    key: str = ""
    type: str = "string"  # "int" | "float" | "bool" | "string" | "list" (comma-separated)
    default: str = ""
    choices: tuple[str, ...] = ()
    scale: int = 1
    inverted: bool = False  # the flag says the opposite of the variable
    minimum: int = 0
    part: str = LAUNCHER
    unserved: str = field(default="", kw_only=True)

    def convert(self, value: Any) -> Any:
        """The value as this option's type. ValueError says what is wanted, without naming the option."""
        if self.type == "bool":
            return _to_bool(value)
        if isinstance(value, bool) or value is None:
            raise ValueError(f"{value!r} is not {self.wanted()}")
        if self.type == "list":
            parts = value if isinstance(value, list) else str(value).split(",")
            return [str(part).strip() for part in parts if str(part).strip()]
        if self.type == "string":
            return self._choice(str(value))
        try:
            number = int(str(value)) if self.type == "int" else float(str(value))
        except ValueError:
            raise ValueError(f"{value!r} is not {self.wanted()}") from None
        if not self.minimum <= number < float("inf"):  # NaN is refused too
            raise ValueError(f"{value} is not {self.wanted()}")
        return number

    def _choice(self, text: str) -> str:
        if not self.choices:
            return text
        for choice in self.choices:
            if text.lower() == choice.lower():
                return choice
        raise ValueError(f"{text!r} is not {self.wanted()}")

    def wanted(self) -> str:
        if self.choices:
            return "one of " + ", ".join(self.choices)
        kinds = {"int": f"a whole number >= {self.minimum}", "float": f"a number >= {self.minimum}"}
        return kinds.get(self.type, "true or false" if self.type == "bool" else "a text")

    def variable_text(self, value: Any) -> str:
        """What the variable is set to for a (converted) value of the flag."""
        if self.type == "bool":
            return str(int(value != self.inverted))
        number_or_text = value * self.scale if self.scale != 1 else value
        return ",".join(value) if self.type == "list" else str(number_or_text)


def _to_bool(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    words = {
        "1": True,
        "true": True,
        "yes": True,
        "on": True,
        "0": False,
        "false": False,
        "no": False,
        "off": False,
    }
    if str(value).lower() not in words:
        raise ValueError(f"{value!r} is not true or false")
    return words[str(value).lower()]


OPTIONS: tuple[Option, ...] = (
    # What to start, and where.
    Option("np", "number of ranks (processes)", ("-np", "-n", "--num-proc"), type="int", minimum=1),
    Option(
        "hosts",
        "hosts and slots, as host1:2,host2:4; a host without a number has one slot. Default: this host, "
        "with as many slots as ranks",
        ("-H", "--hosts"),
    ),
    Option(
        "hostfile", "file with one `host slots=N` a line, instead of --hosts", ("-hostfile", "--hostfile")
    ),
    Option("ssh_port", "port of the hosts' ssh servers", ("-p", "--ssh-port"), type="int", minimum=1),
    Option("ssh_identity_file", "private key that ssh uses", ("-i", "--ssh-identity-file")),
    Option(
        "network_interfaces",
        "network interfaces, or networks as 10.0.0.0/8, that connect the hosts; comma-separated",
        ("--network-interfaces", "--network-interface"),
        type="list",
    ),
    Option(
        "start_timeout",
        "seconds within which all ranks must have started",
        ("--start-timeout",),
        variable="HOROVOD_START_TIMEOUT",
        type="int",
        default="30",
        minimum=1,
    ),
    Option(
        "config_file",
        "YAML file with the keys of docs/configuration.md; the command line beats it",
        ("--config-file",),
    ),
    Option("mpi_args", 'more arguments for mpirun, as --mpi-args="--map-by numa"', ("--mpi-args",)),
    Option(
        "binding_args",
        "arguments for mpirun that bind ranks to cores; ranks are not bound otherwise",
        ("--binding-args",),
    ),
    Option("use_mpi", "accepted: MPI is what starts the ranks", ("--mpi",), type="bool"),
    Option(
        "controller",
        "accepted as mpi",
        variable="HOROVOD_CONTROLLER",
        key="controller",
        default="mpi",
        choices=("mpi",),
    ),
    Option(
        "cpu_operations",
        "accepted as mpi",
        variable="HOROVOD_CPU_OPERATIONS",
        default="mpi",
        choices=("mpi",),
    ),
    Option("disable_cache", "accepted: nothing about hosts is cached", ("--disable-cache",), type="bool"),
    # What to show.
    Option("verbose", "show the mpirun command line and how each rank ended", ("--verbose",), type="bool"),
    Option(
        "output_filename",
        "folder in which each rank's output is written too, as rank.<number>/stdout and stderr",
        ("--output-filename",),
    ),
    Option(
        "prefix_timestamp",
        "begin each line of output with the time",
        ("-prefix-timestamp", "--prefix-output-with-timestamp"),
        type="bool",
    ),
    Option(
        "check_build", "say what this installation can do, and end", ("-cb", "--check-build"), type="bool"
    ),
    Option("version", "say the version, and end", ("-v", "--version"), type="bool"),
    # What the native core reads.
    Option(
        "fusion_threshold_mb",
        "MiB of ready tensors fused into one collective (the variable: bytes); 0: every tensor by itself",
        ("--fusion-threshold-mb",),
        variable="HOROVOD_FUSION_THRESHOLD",
        key="params.fusion_threshold_mb",
        type="int",
        default=str(128 * MIB),
        scale=MIB,
        part=CORE,
    ),
    Option(
        "cycle_time_ms",
        "milliseconds that submissions nobody waits for are gathered before they are negotiated",
        ("--cycle-time-ms",),
        variable="HOROVOD_CYCLE_TIME",
        key="params.cycle_time_ms",
        type="float",
        default="1",
        part=CORE,
    ),
    Option(
        "cache_capacity",
        "agreed requests remembered, so that a repeated one is announced by a number; 0: off",
        ("--cache-capacity",),
        variable="HOROVOD_CACHE_CAPACITY",
        key="params.cache_capacity",
        type="int",
        default="1024",
        part=CORE,
    ),
    Option(
        "disable_group_fusion",
        "do not fuse a grouped operation with anything outside its group",
        variable="HOROVOD_DISABLE_GROUP_FUSION",
        type="bool",
        default="0",
        part=CORE,
    ),
    Option(
        "transport",
        "what carries the bytes under MPI: auto, shared_memory (ranks of one host only) or mpi",
        variable="HOROVOD_TRANSPORT",
        default="auto",
        choices=("auto", "shared_memory", "mpi"),
        part=CORE,
    ),
    Option(
        "simd",
        "instruction set of the codec and reduction loops: auto is the best that the processor has",
        variable="HOROVOD_SIMD",
        default="auto",
        choices=("auto", "baseline", "x86-64-v3", "x86-64-v4"),
        part=CORE,
    ),
    Option(
        "timeline_filename",
        "file for a Chrome trace of every operation, written by rank 0",
        ("--timeline-filename",),
        variable="HOROVOD_TIMELINE",
        key="timeline.filename",
        part=CORE,
    ),
    Option(
        "timeline_mark_cycles",
        "mark negotiation rounds in the timeline",
        ("--timeline-mark-cycles",),
        ("--no-timeline-mark-cycles",),
        variable="HOROVOD_TIMELINE_MARK_CYCLES",
        key="timeline.mark_cycles",
        type="bool",
        default="0",
        part=CORE,
    ),
    Option(
        "log_level",
        "how much the core says",
        ("--log-level",),
        variable="HOROVOD_LOG_LEVEL",
        key="logging.level",
        default="warning",
        choices=("trace", "debug", "info", "warning", "error", "fatal"),
        part=CORE,
    ),
    Option(
        "log_with_timestamp",
        "begin the core's log lines with the time, or not (the variable says the opposite: hide it)",
        ("--log-with-timestamp", "--no-log-hide-timestamp"),
        ("--log-without-timestamp", "--log-hide-timestamp"),
        variable="HOROVOD_LOG_HIDE_TIME",
        key="logging.with_timestamp",
        type="bool",
        default="0",
        inverted=True,
        part=CORE,
    ),
    *(Option(part=UNSERVED, **row) for row in UNSERVED_ROWS),
)
