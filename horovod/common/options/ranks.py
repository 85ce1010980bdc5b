"""The options that ranks read: in the native core, or in Python."""

from __future__ import annotations

import functools

from horovod.common.options.option import (
    BETWEEN_HOSTS,
    COMPRESSION,
    CORE,
    FIRST_RANK,
    JOB,
    LAUNCHERS,
    OUTPUT,
    OVER_TCP,
    PERFORMANCE,
    PYTHON,
    RANK,
    SHARED_HOSTS,
    TUNING,
    Option,
    row,
)

__all__ = ["RANK_OPTIONS"]

MIB = 1024 * 1024
_COMPRESSOR = (r"\w+(:\w+=[^,=\s]+(,\w+=[^,=\s]+)*)?", "a name, or name:option=value,option=value")
# By scope. The core reads an option unless it is marked PYTHON.
of_job = functools.partial(row, part=CORE, scope=JOB)
of_first_rank = functools.partial(row, part=CORE, scope=FIRST_RANK)
of_each_rank = functools.partial(row, part=CORE, scope=RANK)

RANK_OPTIONS: tuple[Option, ...] = (
    of_job("fusion_threshold_mb", group=PERFORMANCE, variable="HOROVOD_FUSION_THRESHOLD", default=128 * MIB,
        scale=MIB, tries=tuple(str(size * MIB // 16) for size in (0, 1, 16, 64, 256, 1024, 2048)),
        help="MiB of ready tensors fused into one collective (the variable: bytes); 0: every tensor by "
             "itself"),
    of_each_rank("cycle_time_ms", group=PERFORMANCE, variable="HOROVOD_CYCLE_TIME", default=1.0,
        tries=("0.1", "0.25", "0.5", "1", "2", "5", "10", "20"),
        help="milliseconds for which submissions are gathered before they are negotiated, if no caller waits "
             "for one"),
    of_job("cache_capacity", group=PERFORMANCE, default=1024,
        help="agreed requests remembered, so that a repeated one is announced by a number; 0: off"),
    of_job("disable_group_fusion", default=False,
        help="do not fuse a grouped operation with anything outside its group"),
    of_job("allreduce_algorithm", group=PERFORMANCE, default="auto",
        choices=("auto", "gather", "scatter", "ring", "hierarchical"), is_by_size=True,
        tries=("auto", "gather", "gather:65536,scatter", "gather:1048576,scatter", "scatter", "ring",
               "gather:65536,hierarchical", "gather:1048576,hierarchical", "hierarchical"), is_new=True,
        help="how allreduces travel: auto estimates which is cheapest, the others force one; or two by "
             "size, as gather:65536,scatter: the first for tensors of so many bytes together, and the "
             "second beyond"),
    of_each_rank("hierarchical_allreduce", group=PERFORMANCE, off_flags=("--no-hierarchical-allreduce",),
        default=False,
        help="reduce inside each host first; short for --allreduce-algorithm hierarchical"),
    of_each_rank("torus_allreduce", group=PERFORMANCE, off_flags=("--no-torus-allreduce",), default=False,
        help="the same: every rank of a host carries a part of each tensor to the other hosts"),
    of_job("deterministic", group=PERFORMANCE, off_flags=("--no-deterministic",), default=False, is_new=True,
        help="let no result depend on timing: with fixed seeds, runs are identical bit for bit"),
    of_job("transport", default="auto", choices=("auto", "shared_memory", "mpi", "tcp"), is_new=True,
        help="what carries the bytes: shared_memory (ranks of one host only), mpi (jobs of mpirun) or tcp; "
             "auto is shared memory on one host, between hosts mpi where mpirun started the job, else tcp"),
    of_job("tcp_connections", default=1, minimum=1, maximum=16, tries=("1", "2", "4", "8"), tried=OVER_TCP,
        is_new=True,
        help="connections for data between two ranks, over TCP"),
    of_job("message_kb", default=48, minimum=1, maximum=1024, tries=("16", "48", "128", "512"),
        tried=BETWEEN_HOSTS, is_new=True,
        help="KiB that a rank sends another in one step of an allreduce, at most: more are fewer, and less "
             "goes on at a time. MPI sends no more than 48 in a piece"),
    of_job("steps_under_way", default=8, minimum=1, maximum=8, tries=("2", "4", "8"), tried=BETWEEN_HOSTS,
        is_new=True,
        help="steps of an allreduce between hosts that are under way at a time"),
    of_job("carriers", default=16, minimum=1, maximum=16, tries=("1", "2", "4", "16"), tried=SHARED_HOSTS,
        is_new=True,
        help="ranks of each host that exchange with other hosts on a hierarchical route, at most"),
    of_job("tcp_timeout_seconds", default=10.0, is_new=True,
        help="seconds, 2 or more, after which a rank of which nothing is heard over TCP is lost; 0: never"),
    of_job("tcp_checksums", default=False, is_new=True,
        help="check every piece of data over TCP by a CRC-32C, as messages always are"),
    of_job("gpu_transport", group=PERFORMANCE, default="auto", choices=("auto", "nccl", "host"), is_new=True,
        help="what carries the bytes of GPU tensors: nccl, or the host, through its memory; auto is nccl "
             "where every rank has NCCL and a GPU of its own, and all GPUs of a host reach each other"),
    of_each_rank("simd", default="auto", choices=("auto", "baseline", "x86-64-v3", "x86-64-v4"), is_new=True,
        help="instruction set of the codec and reduction loops: auto is the best that the processor has"),
    of_first_rank("timeline_filename", group=OUTPUT, variable="HOROVOD_TIMELINE", key="timeline.filename",
        help="file for a Chrome trace of every operation, written by rank 0; DYNAMIC: none until "
             "hvd.start_timeline() names one"),
    of_first_rank("timeline_mark_cycles", group=OUTPUT, off_flags=("--no-timeline-mark-cycles",),
        key="timeline.mark_cycles", default=False,
        help="mark negotiation rounds in the timeline"),
    of_each_rank("log_level", group=OUTPUT, key="logging.level", default="warning",
        choices=("trace", "debug", "info", "warning", "error", "fatal"),
        help="how much the core says"),
    of_each_rank("log_with_timestamp", group=OUTPUT,
        flags=("--log-with-timestamp", "--no-log-hide-timestamp"),
        off_flags=("--log-without-timestamp", "--log-hide-timestamp"), variable="HOROVOD_LOG_HIDE_TIME",
        key="logging.with_timestamp", default=False, inverted=True,
        help="begin the core's log lines with the time, or not (the variable says the opposite: hide it)"),
    of_job("stall_check", group=OUTPUT, off_flags=("--no-stall-check",),
        variable="HOROVOD_STALL_CHECK_DISABLE", key="stall_check.enabled", default=False, inverted=True,
        help="warn when some ranks wait for others, naming both and the tensors (the variable says the "
             "opposite: do not)"),
    of_job("stall_check_warning_time_seconds", group=OUTPUT, variable="HOROVOD_STALL_CHECK_TIME_SECONDS",
        key="stall_check.warning_time_seconds", default=60.0,
        help="seconds after which the stall check warns"),
    of_job("stall_check_shutdown_time_seconds", group=OUTPUT, variable="HOROVOD_STALL_SHUTDOWN_TIME_SECONDS",
        key="stall_check.shutdown_time_seconds", default=0.0,
        help="seconds after which a stall ends the job; 0, or less than the warning time: never"),
    of_each_rank("thread_affinity", group=PERFORMANCE, key="library_options.thread_affinity",
        form=(r"\d+(,\d+)*|", "a core, or several as 0,4"),
        help="cores that the engine's threads are bound to, one for each rank of a host, as 3 or 0,4; "
             "empty: none"),
    of_each_rank("mpi_threads_disable", group=LAUNCHERS, off_flags=("--no-mpi-threads-disable",),
        key="library_options.mpi_threads_disable", default=False,
        help="start MPI without MPI_THREAD_MULTIPLE; then only horovod may call MPI after hvd.init()"),
    of_job("compression", part=PYTHON, group=COMPRESSION, default="none", form=_COMPRESSOR,
        is_new=True,
        help="compression of the gradients of DistributedOptimizer where a script passes no compression=, "
             'or Compression.none, and of large sums by the backend "horovod": a name of hvd.Compression, '
             "also with options, as int4:rotation=hadamard,levels=lloyd"),
    of_job("compression_force", part=PYTHON, group=COMPRESSION, default=False, is_new=True,
        help="--compression also where a script passes another compression= or registers torch's fp16, bf16 "
             "or PowerSGD hook, which count without this flag"),
    of_job("ddp_compression", part=PYTHON, default="none", form=_COMPRESSOR, is_new=True,
        help="compression of the gradients of torch's DistributedDataParallel, where a script registers no "
             "communication hook that compresses; what --ddp --compression sets"),
    of_job("ddp_bucket_mb", part=PYTHON, default=0.0, tries=("0", "4", "16", "64"), is_new=True,
        help="MB of DistributedDataParallel's buckets that are gathered before they travel, where they are "
             "smaller; 0: each by itself"),
    of_job("backend_min_elements", part=PYTHON, default=16384, is_new=True,
        help='elements of the smallest sum that the backend "horovod" of torch.distributed compresses, as '
             "HOROVOD_COMPRESSION says"),
    of_job("dynamic_process_sets", part=PYTHON, default=False,
        help="let add_process_set and remove_process_set work after hvd.init()"),
    of_job("elastic", default=False,
        help="ranks may change while the job runs: optimizers listen to gradients also where there is one "
             "rank, and state.commit() of hvd.elastic looks whether hosts have changed"),
    of_each_rank("tcp_interfaces", part=PYTHON, type="list", is_new=True,
        help="interfaces, or networks as 10.0.0.0/8 or fd00::/8, in which this rank listens for those on "
             "other hosts, over TCP; comma-separated. Default: the fastest network that all hosts share. "
             "Ranks of one host talk at 127.0.0.1"),
    of_each_rank("tcp_ports", part=PYTHON, is_new=True,
        form=(r"\d{1,5}(-\d{1,5})?|", "a port, or a range as 20000-20100"),
        help="ports at which ranks listen over TCP, as 20000-20100, for firewalls; each takes one that is "
             "free. Default: any"),
    of_job("rendezvous_folder", part=PYTHON, is_new=True,
        help="absolute path of a folder that all ranks see, and only their user can write: there they meet, "
             "one job at a time, where no MPI starts them. HOROVOD_RANK and HOROVOD_SIZE say which rank a "
             "process is, or its launcher does"),
    of_job("secret", part=PYTHON, is_new=True,
        help="text of 16 bytes or more that only the ranks of the job know, by which they know each other "
             "over TCP. Default: one that is made where they meet, so that whoever can read there can "
             "connect"),
    # The autotuner's: Horovod's options, and new ones.
    of_job("autotune", part=PYTHON, group=TUNING, off_flags=("--no-autotune",), key="autotune.enabled",
        default=False,
        help="try settings while the job trains, keep what is faster, and remember it for the next job like "
             "it"),
    of_each_rank("autotune_log_file", part=PYTHON, group=TUNING, variable="HOROVOD_AUTOTUNE_LOG",
        key="autotune.log_file",
        help="file for what tuning tried and chose, as JSON, written by rank 0"),
    of_each_rank("autotune_warmup_samples", part=PYTHON, group=TUNING, key="autotune.warmup_samples",
        default=3, maximum=100_000,
        help="blocks of steps at the beginning that do not count"),
    of_each_rank("autotune_steps_per_sample", part=PYTHON, group=TUNING, key="autotune.steps_per_sample",
        default=4, minimum=1, maximum=100_000,
        help="steps of a block that count; in one more before them settings change"),
    of_each_rank("autotune_max_steps", part=PYTHON, group=TUNING, key="autotune.max_steps", default=400,
        maximum=1_000_000, is_new=True,
        help="steps that tuning takes at most, those of the warm-up among them"),
    of_each_rank("autotune_mode", part=PYTHON, group=TUNING, key="autotune.mode", default="filter",
        choices=("time", "filter", "profile"), is_new=True,
        help="what a block of steps counts as: time, their mean; filter, without steps that something else "
             "made longer, as a checkpoint; profile, the same, and the shares of communication are printed"),
    of_each_rank("autotune_reuse", part=PYTHON, group=TUNING, key="autotune.reuse", default="reuse",
        choices=("reuse", "update", "off"), is_new=True,
        help="what earlier jobs like this have found: reuse, take it and try nothing; update, begin with "
             "it; off"),
    of_job("autotune_compression", part=PYTHON, group=COMPRESSION, key="autotune.compression", default=False,
        is_new=True,
        help="let tuning try steps without compression too, where a script asks for one"),
    of_each_rank("autotune_cache", part=PYTHON, is_new=True,
        help="folder in which rank 0 keeps what was found. Default: ~/.cache/horovod/tune"),
    # The search has no Gaussian process to which these would apply.
    row("autotune_bayes_opt_max_samples", group=TUNING, variable="HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES",
        key="autotune.bayes_opt_max_samples", type="float",
        help="accepted for scripts of Horovod's, and without effect: the search is no Bayesian one, and "
             "ends by itself or with --autotune-max-steps"),
    row("autotune_gaussian_process_noise", group=TUNING, variable="HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE",
        key="autotune.gaussian_process_noise", type="float",
        help="accepted for scripts of Horovod's, and without effect: the noise is measured"),
)
