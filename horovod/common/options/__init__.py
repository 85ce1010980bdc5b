"""The only table of options: flag, HOROVOD_ variable, YAML key, type, default, allowed values, help.

`horovodrun` makes its command line, its config file and the environment of ranks from it. The build makes the
core's settings from it (`build_support/generated_headers.py`), and docs/configuration.md prints it. It
imports the standard library only, so any code can read a name or a default, also before a core is built.

A row with `unserved` is an option of Horovod that this package cannot honour. Setting it is an error with
that sentence; switching it off is allowed. It moves to the launcher's or the ranks' rows once it is served.
"""

from __future__ import annotations

import functools
from typing import Any

from horovod.common.options.option import Option as Option

LAUNCHER, CORE, PYTHON, UNSERVED = "launcher", "core", "python", "unserved"  # the reader of an option
# The scope of a rank's setting: the same on all ranks, or an error; used by rank 0 only; each rank's own.
JOB, FIRST_RANK, RANK = "the job", "rank 0", "each rank"
# The jobs in which the autotuner tries a setting; "": all jobs.
BETWEEN_HOSTS, SHARED_HOSTS, OVER_TCP = "between hosts", "between hosts of several ranks", "over TCP"
# The groups of `horovodrun --help`, in its order.
HOSTS, OUTPUT, COMPRESSION = "ranks and hosts", "output", "compression"
PERFORMANCE, TUNING = "performance", "autotuner"
DDP, ELASTIC = "scripts of torch.distributed (DDP)", "elastic jobs"
LAUNCHERS, INSTALLATION = "MPI and other launchers", "this installation"
GROUPS = (HOSTS, OUTPUT, COMPRESSION, DDP, PERFORMANCE, TUNING, ELASTIC, LAUNCHERS, INSTALLATION)
_TYPES = {bool: "bool", int: "int", float: "float", str: "string"}
COMPLETION_FILE = "~/.local/share/bash-completion/completions/horovodrun"  # bash searches here


def row(name: str, *, default: bool | int | float | str = "", **columns: Any) -> Option:
    """An option; columns that are not given follow from others.

    `type` follows from the value of `default`. An option with a `group` has the flag of its name. An option
    of ranks has the variable of its name, and with a `group` its key in the section params.
    """
    text = default if isinstance(default, str) else f"{default:.12g}"
    derived: dict[str, Any] = {"type": _TYPES[type(default)], "default": text, "part": LAUNCHER}
    if columns.get("group"):
        derived["flags"] = (f"--{name.replace('_', '-')}",)
    if columns.get("part") in (CORE, PYTHON):
        derived["variable"] = f"HOROVOD_{name.upper()}"
        derived["key"] = f"params.{name}" if columns.get("group") else ""
    return Option(name, **{**derived, **columns})


def _unserved(reason: str, *flags: str, off: str = "", variable: str = "", key: str = "") -> Option:
    """A row, named after its first flag, else its key, else its variable. `off` flags are accepted."""
    return Option(
        name=(flags[0].lstrip("-") if flags else key or variable).replace("-", "_"),
        flags=flags,
        off_flags=(off,) if off else (),
        variable=variable,
        key=key,
        type="bool" if off else "string",
        part=UNSERVED,
        unserved=reason,
    )


_MIB = 1024 * 1024
_COMPRESSOR = (r"\w+(:\w+=[^,=\s]+(,\w+=[^,=\s]+)*)?", "a name, or name:option=value,option=value")
# By scope. The core reads an option unless it is marked PYTHON.
_of_job = functools.partial(row, part=CORE, scope=JOB)
_of_first_rank = functools.partial(row, part=CORE, scope=FIRST_RANK)
_of_each_rank = functools.partial(row, part=CORE, scope=RANK)

# Of horovodrun itself: which ranks to start, on which hosts, and what to print.
_OF_THE_LAUNCHER = (
    # Ranks and hosts.
    row("np", group=HOSTS, flags=("-np", "-n", "--num-proc"), type="int", minimum=1,
        help="number of ranks (processes). Default in a batch job: its number of tasks"),
    row("hosts", group=HOSTS, flags=("-H", "--hosts"),
        help="hosts and slots, as host1:2,host2:4; a host without a number has one slot. Default: this "
             "host, with as many slots as ranks, or those of the batch job"),
    row("hostfile", group=HOSTS, flags=("-hostfile", "--hostfile"),
        help="file with one `host slots=N` per line, instead of --hosts"),
    row("ssh_port", group=HOSTS, flags=("-p", "--ssh-port"), type="int", minimum=1,
        help="port of the hosts' ssh servers"),
    row("ssh_identity_file", group=HOSTS, flags=("-i", "--ssh-identity-file"),
        help="private key that ssh uses"),
    row("network_interfaces", group=HOSTS, flags=("--network-interfaces", "--network-interface"), type="list",
        help="network interfaces, or networks as 10.0.0.0/8, that connect the hosts; comma-separated. "
             "Default: the networks that all hosts share"),
    row("start_timeout", group=HOSTS, variable="HOROVOD_START_TIMEOUT", default=30, minimum=1,
        help="seconds within which all hosts must answer, and then all ranks start; also how long hvd.init() "
             "waits for the other ranks"),
    row("exit_timeout", group=HOSTS, variable="HOROVOD_EXIT_TIMEOUT", key="exit_timeout", default=60,
        is_new=True,
        help="when all other ranks have ended: seconds after which horovodrun ends an idle rank that is "
             "stopped, or has left the job with hvd.shutdown() or at its script's end; 0: never"),
    row("config_file", group=HOSTS,
        help="YAML file with the keys of docs/configuration.md; the command line overrides it"),
    row("mpi_args", group=LAUNCHERS,
        help='with --launcher mpi: more arguments for mpirun, as --mpi-args="--map-by numa"'),
    row("binding_args", group=LAUNCHERS,
        help="with --launcher mpi: arguments for mpirun that bind ranks to cores; ranks are not bound "
             "otherwise"),
    row("bind", group=HOSTS, variable="HOROVOD_BIND", key="params.bind", default="none",
        choices=("none", "auto"), is_new=True,
        help="auto: bind each rank to its own cores, of one NUMA node if possible, and its engine's thread a "
             "hyper-thread of them; no binding if a host has fewer cores than ranks"),
    row("ddp", group=DDP, key="ddp.enabled", type="bool", is_new=True,
        help="for scripts of torch.distributed: set MASTER_ADDR, RANK, WORLD_SIZE, LOCAL_RANK and so on, as "
             "torchrun does; --compression then applies to the gradients of DistributedDataParallel"),
    row("master_addr", group=DDP, key="ddp.master_addr", form=(r"[^\s]+", "a host name or an address"),
        is_new=True,
        help="with --ddp: address of rank 0's host. Default: its address in the network that connects the "
             "hosts"),
    row("master_port", group=DDP, key="ddp.master_port", type="int", minimum=1, is_new=True,
        help="with --ddp: port at which rank 0 listens. Default: one that is free on its host"),
    row("launcher", group=LAUNCHERS, variable="HOROVOD_LAUNCHER", key="launcher", choices=("mpi", "tcp"),
        is_new=True,
        help="the program that starts the ranks. tcp: horovodrun's own agents, one per host; ranks "
             "communicate over TCP, or in shared memory; mpi: the mpirun of the MPI that this package uses. "
             "Default: tcp; mpi for scripts that import mpi4py"),
    # Jobs whose hosts and workers come and go.
    row("min_np", group=ELASTIC, flags=("--min-np", "--min-num-proc"), type="int", minimum=1,
        help="elastic job: least number of workers; with fewer, the job waits for others. Default: -np"),
    row("max_np", group=ELASTIC, flags=("--max-np", "--max-num-proc"), type="int", minimum=1,
        help="elastic job: largest number of workers. Default: the number of slots"),
    row("host_discovery_script", group=ELASTIC,
        help="elastic job: a command that prints `host` or `host:slots` lines, run every second"),
    row("slots_per_host", group=ELASTIC, type="int", minimum=1,
        help="elastic job: slots of a host if the script gives none. Default: 1"),
    row("elastic_timeout", group=ELASTIC, variable="HOROVOD_ELASTIC_TIMEOUT", default=600, minimum=1,
        help="elastic job: seconds to wait for slots at the start, and after a loss for busy survivors and "
             "enough workers"),
    row("reset_limit", group=ELASTIC, type="int",
        help="elastic job: how often its membership may change before the job fails. Default: no limit"),
    row("blacklist_cooldown_range", group=ELASTIC, type="int", words=2,
        help="elastic job: shortest and longest time in seconds before a failed slot or host is used again; "
             "it doubles with each failure. Default: 5 300 for a slot, and never for a host"),
    row("blacklist", group=ELASTIC, variable="HOROVOD_ELASTIC_BLACKLIST", key="elastic_blacklist",
        default="slot", choices=("slot", "host"), is_new=True,
        help="elastic job: what is blacklisted if a worker dies. slot: its slot, and the other workers of "
             "its host continue; host: its host with all workers there, as in Horovod"),
    row("max_worker_failures", group=ELASTIC, variable="HOROVOD_ELASTIC_MAX_WORKER_FAILURES",
        key="elastic_max_worker_failures", type="int", minimum=1, is_new=True,
        help="elastic job: with --blacklist slot, number of worker deaths within 10 minutes after which a "
             "host is blacklisted. Default: 10"),
    row("elastic_restart", group=ELASTIC, variable="HOROVOD_ELASTIC_RESTART", key="elastic_restart",
        type="bool", is_new=True,
        help="elastic job: after a loss, restart all workers, which then read the newest commit of "
             "hvd.elastic in their hosts' memory: for scripts that cannot continue in their processes. Ranks "
             "of torchrun keep commits if it may restart them, or as the variable says; the option alone "
             "makes no job elastic"),
    row("use_mpi", group=LAUNCHERS, flags=("--mpi",), type="bool",
        help="same as --launcher mpi"),
    row("use_gloo", group=LAUNCHERS, flags=("--gloo",), type="bool",
        help="same as --launcher tcp, the default; there is no Gloo"),
    row("controller", variable="HOROVOD_CONTROLLER", key="controller", default="mpi", choices=("mpi",),
        help="accepted as mpi"),
    row("cpu_operations", variable="HOROVOD_CPU_OPERATIONS", default="mpi", choices=("mpi",),
        help="accepted as mpi"),
    row("tcp", group=HOSTS, type="bool",
        help="use TCP even if there is InfiniBand or the like (Spectrum MPI: -tcp; NCCL: NCCL_IB_DISABLE=1)"),
    row("disable_cache", group=HOSTS, type="bool",
        help="accepted, without effect: hosts are checked at each start"),
    row("disable_nvtx_ranges", variable="HOROVOD_DISABLE_NVTX_RANGES", default=False,
        help="accepted, without effect: there are no NVTX ranges"),
    row("tune_launch", group=PERFORMANCE, type="bool", is_new=True,
        help="run a few steps of the script with and without each setting that only new processes can take "
             "(--bind auto, options of malloc), print a table, and exit"),
    row("tune_launch_steps", group=PERFORMANCE, type="int", minimum=1, is_new=True,
        help="number of steps that --tune-launch measures in each job. Default: 30"),
    # Output.
    row("verbose", group=OUTPUT, type="bool",
        help="show how ranks are started (with mpirun, its command line), and how each rank ended"),
    row("quiet", group=OUTPUT, type="bool", is_new=True,
        help="do not print the summary of a successful job: the bytes that compression saved, and how long "
             "ranks waited. Errors and warnings stay"),
    row("output_filename", group=OUTPUT,
        help="folder for a copy of each rank's output, as rank.<number>/stdout and stderr"),
    row("prefix_timestamp", group=OUTPUT, flags=("-prefix-timestamp", "--prefix-output-with-timestamp"),
        type="bool",
        help="begin each line of output with the time"),
    row("check_build", group=INSTALLATION, flags=("-cb", "--check-build"), type="bool",
        help="show what this installation supports, and exit"),
    row("print_completion", group=INSTALLATION, choices=("bash", "zsh", "tcsh"), is_new=True,
        help="print a completion script for that shell, and exit; needs shtab (pip install shtab). bash "
             f"looks for it in {COMPLETION_FILE}"),
    row("version", group=INSTALLATION, flags=("-v", "--version"), type="bool",
        help="show the version, and exit"),
    row("topology", group=HOSTS, type="bool", is_new=True,
        help="draw the hosts that -np and -H name, with their GPUs and networks and the route of allreduces "
             "between them, and exit"),
    row("topology_file", group=HOSTS, is_new=True,
        help="with --topology: also write the drawing to this file, as SVG"),
)

# That ranks read: in the native core, or in Python.
RANK_OPTIONS = (
    _of_job("fusion_threshold_mb", group=PERFORMANCE, variable="HOROVOD_FUSION_THRESHOLD", default=128 * _MIB,
        scale=_MIB, tries=tuple(str(size * _MIB // 16) for size in (0, 1, 16, 64, 256, 1024, 2048)),
        help="MiB of ready tensors fused into one collective (the variable: bytes); 0: no fusion"),
    _of_each_rank("cycle_time_ms", group=PERFORMANCE, variable="HOROVOD_CYCLE_TIME", default=1.0,
        tries=("0.1", "0.25", "0.5", "1", "2", "5", "10", "20"),
        help="milliseconds to gather submissions before they are negotiated, if no caller waits for one"),
    _of_job("cache_capacity", group=PERFORMANCE, default=1024,
        help="number of agreed requests to remember, so that a repeated one is announced by its number; 0: "
             "off"),
    _of_job("disable_group_fusion", default=False,
        help="do not fuse a grouped operation with anything outside its group"),
    _of_job("allreduce_algorithm", group=PERFORMANCE, default="auto",
        choices=("auto", "gather", "scatter", "ring", "hierarchical"), is_by_size=True,
        tries=("auto", "gather", "gather:65536,scatter", "gather:1048576,scatter", "scatter", "ring",
               "gather:65536,hierarchical", "gather:1048576,hierarchical", "hierarchical"), is_new=True,
        help="algorithm of allreduces: auto chooses by estimated cost, the others force one; or two by size, "
             "as gather:65536,scatter: the first for up to that many bytes, and the second beyond"),
    _of_each_rank("hierarchical_allreduce", group=PERFORMANCE, off_flags=("--no-hierarchical-allreduce",),
        default=False,
        help="reduce inside each host first; same as --allreduce-algorithm hierarchical"),
    _of_each_rank("torus_allreduce", group=PERFORMANCE, off_flags=("--no-torus-allreduce",), default=False,
        help="same as --hierarchical-allreduce: every rank of a host sends a part of each tensor to the "
             "other hosts"),
    _of_job("deterministic", group=PERFORMANCE, off_flags=("--no-deterministic",), default=False, is_new=True,
        help="make results independent of timing: with fixed seeds, runs are identical bit for bit"),
    _of_job("transport", default="auto", choices=("auto", "shared_memory", "mpi", "tcp"), is_new=True,
        help="transport between ranks: shared_memory (ranks of one host only), mpi (jobs of mpirun) or tcp; "
             "auto is shared memory on one host; between hosts mpi if mpirun started the job, else tcp"),
    _of_job("tcp_connections", default=1, minimum=1, maximum=16, tries=("1", "2", "4", "8"), tried=OVER_TCP,
        is_new=True,
        help="number of TCP connections for data between two ranks"),
    _of_job("message_kb", default=48, minimum=1, maximum=1024, tries=("16", "48", "128", "512"),
        tried=BETWEEN_HOSTS, is_new=True,
        help="largest message of one step of an allreduce, in KiB: larger ones mean fewer steps, and less "
             "overlap. MPI sends at most 48 at once"),
    _of_job("steps_under_way", default=8, minimum=1, maximum=8, tries=("2", "4", "8"), tried=BETWEEN_HOSTS,
        is_new=True,
        help="number of steps of an allreduce between hosts that are in flight at a time"),
    _of_job("carriers", default=16, minimum=1, maximum=16, tries=("1", "2", "4", "16"), tried=SHARED_HOSTS,
        is_new=True,
        help="largest number of ranks per host that exchange with other hosts on a hierarchical route"),
    _of_job("tcp_timeout_seconds", default=10.0, is_new=True,
        help="seconds without a message over TCP after which a rank is declared lost, 2 or more; 0: never"),
    _of_job("tcp_checksums", default=False, is_new=True,
        help="check all data sent over TCP with a CRC-32C; control messages always are"),
    _of_job("gpu_transport", group=PERFORMANCE, default="auto", choices=("auto", "nccl", "host"), is_new=True,
        help="transport of GPU tensors: nccl, or host (through the host's memory); auto is nccl if every "
             "rank has NCCL and its own GPU, and all GPUs of a host reach each other"),
    _of_each_rank("simd", default="auto", choices=("auto", "baseline", "x86-64-v3", "x86-64-v4"), is_new=True,
        help="instruction set of the codec and reduction loops: auto is the best that the processor has"),
    _of_first_rank("timeline_filename", group=OUTPUT, variable="HOROVOD_TIMELINE", key="timeline.filename",
        help="file for a Chrome trace of every operation, written by rank 0; DYNAMIC: none until "
             "hvd.start_timeline() gives one"),
    _of_first_rank("timeline_mark_cycles", group=OUTPUT, off_flags=("--no-timeline-mark-cycles",),
        key="timeline.mark_cycles", default=False,
        help="mark negotiation rounds in the timeline"),
    _of_each_rank("log_level", group=OUTPUT, key="logging.level", default="warning",
        choices=("trace", "debug", "info", "warning", "error", "fatal"),
        help="level of the core's log messages"),
    _of_each_rank("log_with_timestamp", group=OUTPUT,
        flags=("--log-with-timestamp", "--no-log-hide-timestamp"),
        off_flags=("--log-without-timestamp", "--log-hide-timestamp"), variable="HOROVOD_LOG_HIDE_TIME",
        key="logging.with_timestamp", default=False, inverted=True,
        help="begin the core's log lines with the time, or not (the variable means the opposite: hide it)"),
    _of_job("stall_check", group=OUTPUT, off_flags=("--no-stall-check",),
        variable="HOROVOD_STALL_CHECK_DISABLE", key="stall_check.enabled", default=False, inverted=True,
        help="warn if some ranks wait for others, naming both and the tensors (the variable means the "
             "opposite: do not warn)"),
    _of_job("stall_check_warning_time_seconds", group=OUTPUT, variable="HOROVOD_STALL_CHECK_TIME_SECONDS",
        key="stall_check.warning_time_seconds", default=60.0,
        help="seconds after which the stall check warns"),
    _of_job("stall_check_shutdown_time_seconds", group=OUTPUT, variable="HOROVOD_STALL_SHUTDOWN_TIME_SECONDS",
        key="stall_check.shutdown_time_seconds", default=0.0,
        help="seconds after which a stall ends the job; 0, or less than the warning time: never"),
    _of_each_rank("thread_affinity", group=PERFORMANCE, key="library_options.thread_affinity",
        form=(r"\d+(,\d+)*|", "a core, or several as 0,4"),
        help="cores that the engine's threads are bound to, one for each rank of a host, as 3 or 0,4; "
             "empty: none"),
    _of_each_rank("mpi_threads_disable", group=LAUNCHERS, off_flags=("--no-mpi-threads-disable",),
        key="library_options.mpi_threads_disable", default=False,
        help="start MPI without MPI_THREAD_MULTIPLE; then only horovod may call MPI after hvd.init()"),
    _of_job("compression", part=PYTHON, group=COMPRESSION, default="none", form=_COMPRESSOR,
        is_new=True,
        help="compression of the gradients of DistributedOptimizer where a script passes no compression=, "
             'or Compression.none, and of large sums by the backend "horovod": a name of hvd.Compression, '
             "also with options, as int4:rotation=hadamard,levels=lloyd"),
    _of_job("compression_force", part=PYTHON, group=COMPRESSION, default=False, is_new=True,
        help="let --compression override another compression= of a script, and torch's fp16, bf16 or "
             "PowerSGD hook"),
    _of_job("ddp_compression", part=PYTHON, default="none", form=_COMPRESSOR, is_new=True,
        help="compression of the gradients of torch's DistributedDataParallel, unless a script registers a "
             "communication hook that compresses; --ddp --compression sets it"),
    _of_job("ddp_bucket_mb", part=PYTHON, default=0.0, tries=("0", "4", "16", "64"), is_new=True,
        help="MB up to which DistributedDataParallel's buckets are gathered before they are sent; 0: each "
             "bucket by itself"),
    _of_job("backend_min_elements", part=PYTHON, default=16384, is_new=True,
        help='elements of the smallest sum that the backend "horovod" of torch.distributed compresses, as '
             "HOROVOD_COMPRESSION says"),
    _of_job("dynamic_process_sets", part=PYTHON, default=False,
        help="let add_process_set and remove_process_set work after hvd.init()"),
    _of_job("elastic", default=False,
        help="ranks may change while the job runs: optimizers listen to gradients even with one rank, and "
             "state.commit() of hvd.elastic checks whether hosts have changed"),
    _of_each_rank("tcp_interfaces", part=PYTHON, type="list", is_new=True,
        help="interfaces, or networks as 10.0.0.0/8 or fd00::/8, in which this rank listens for ranks on "
             "other hosts, over TCP; comma-separated. Default: the fastest network that all hosts share. "
             "Ranks of one host use 127.0.0.1"),
    _of_each_rank("tcp_ports", part=PYTHON, is_new=True,
        form=(r"\d{1,5}(-\d{1,5})?|", "a port, or a range as 20000-20100"),
        help="TCP ports at which ranks listen, as 20000-20100, for firewalls; each rank takes a free one. "
             "Default: any"),
    _of_job("rendezvous_folder", part=PYTHON, is_new=True,
        help="absolute path of a folder for the rendezvous of ranks that MPI does not start, one job at a "
             "time. All ranks must see it, and only their user may write to it. HOROVOD_RANK and "
             "HOROVOD_SIZE, or the launcher's variables, give the rank of a process"),
    _of_job("secret", part=PYTHON, is_new=True,
        help="secret text of 16 bytes or more with which the ranks of the job authenticate each other over "
             "TCP. Default: one made at the rendezvous, so anyone who can read the rendezvous can connect"),
    # The autotuner's: Horovod's options, and new ones.
    _of_job("autotune", part=PYTHON, group=TUNING, off_flags=("--no-autotune",), key="autotune.enabled",
        default=False,
        help="try settings while the job trains, keep the faster ones, and reuse them in the next job of the "
             "same kind"),
    _of_each_rank("autotune_log_file", part=PYTHON, group=TUNING, variable="HOROVOD_AUTOTUNE_LOG",
        key="autotune.log_file",
        help="file for the tuning log, as JSON, written by rank 0"),
    _of_each_rank("autotune_warmup_samples", part=PYTHON, group=TUNING, key="autotune.warmup_samples",
        default=3, maximum=100_000,
        help="number of blocks of steps at the beginning that are not measured"),
    _of_each_rank("autotune_steps_per_sample", part=PYTHON, group=TUNING, key="autotune.steps_per_sample",
        default=4, minimum=1, maximum=100_000,
        help="number of measured steps of a block; settings change in one more step before them"),
    _of_each_rank("autotune_max_steps", part=PYTHON, group=TUNING, key="autotune.max_steps", default=400,
        maximum=1_000_000, is_new=True,
        help="largest number of steps that tuning takes, including the warm-up"),
    _of_each_rank("autotune_mode", part=PYTHON, group=TUNING, key="autotune.mode", default="filter",
        choices=("time", "filter", "profile"), is_new=True,
        help="score of a block of steps. time: their mean; filter: the mean without steps that something "
             "else slowed down, such as a checkpoint; profile: the same, and print the shares of "
             "communication"),
    _of_each_rank("autotune_reuse", part=PYTHON, group=TUNING, key="autotune.reuse", default="reuse",
        choices=("reuse", "update", "off"), is_new=True,
        help="results of earlier jobs of the same kind. reuse: take them and try nothing; update: start with "
             "them; off: ignore them"),
    _of_job("autotune_compression", part=PYTHON, group=COMPRESSION, key="autotune.compression", default=False,
        is_new=True,
        help="let tuning also try steps without compression if the script compresses"),
    _of_each_rank("autotune_cache", part=PYTHON, is_new=True,
        help="folder in which rank 0 keeps tuning results. Default: ~/.cache/horovod/tune"),
    # The search has no Gaussian process to which these would apply.
    row("autotune_bayes_opt_max_samples", group=TUNING, variable="HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES",
        key="autotune.bayes_opt_max_samples", type="float",
        help="accepted for Horovod's scripts, without effect: the search is not Bayesian, and ends by itself "
             "or with --autotune-max-steps"),
    row("autotune_gaussian_process_noise", group=TUNING, variable="HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE",
        key="autotune.gaussian_process_noise", type="float",
        help="accepted for Horovod's scripts, without effect: the noise is measured"),
)

_GLOO = "there is no Gloo here, and no MPI is needed: leave the option out"

_NOT_SERVED = (
    _unserved("allgathers always go directly from every rank to every rank; leave the option out",
        "--hierarchical-allgather", off="--no-hierarchical-allgather",
        variable="HOROVOD_HIERARCHICAL_ALLGATHER", key="params.hierarchical_allgather"),
    _unserved(_GLOO, variable="HOROVOD_GLOO_IFACE"),
    _unserved(_GLOO, "--gloo-timeout-seconds",
        variable="HOROVOD_GLOO_TIMEOUT_SECONDS", key="library_options.gloo_timeout_seconds"),
    _unserved("there is no jsrun launcher; leave it out and name the hosts with -H, or use jsrun by itself",
        "--jsrun"),
    _unserved("each process set has one NCCL communicator, on its own stream; leave the option out",
        "--num-nccl-streams",
        variable="HOROVOD_NUM_NCCL_STREAMS", key="library_options.num_nccl_streams"),
    _unserved("nothing is copied into a fusion buffer, so there are no copies to batch; leave the variable "
        "out", variable="HOROVOD_BATCH_D2D_MEMCOPIES"),
    _unserved("operations on a GPU complete as events anyway, and no thread waits for them; leave the "
        "variable out", variable="HOROVOD_ENABLE_ASYNC_COMPLETION"),
    _unserved("Adasum chooses the size of the pieces that it sends; leave the variable out",
        variable="HOROVOD_ADASUM_MPI_CHUNK_SIZE"),
    _unserved("there is no oneCCL here; leave the variable out", variable="HOROVOD_CCL_CACHE"),
    _unserved("there is no TensorFlow here; leave the variable out", variable="HOROVOD_ENABLE_XLA_OPS"),
)

OPTIONS: tuple[Option, ...] = (*_OF_THE_LAUNCHER, *RANK_OPTIONS, *_NOT_SERVED)
BY_VARIABLE = {option.variable: option for option in OPTIONS if option.variable}
