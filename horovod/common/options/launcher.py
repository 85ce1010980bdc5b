"""The options of horovodrun itself: which ranks to start, where, and what to show."""

from __future__ import annotations

from horovod.common.options.option import (
    DDP,
    ELASTIC,
    HOSTS,
    INSTALLATION,
    LAUNCHERS,
    OUTPUT,
    PERFORMANCE,
    Option,
)

__all__ = ["COMPLETION_FILE", "LAUNCHER_OPTIONS"]

COMPLETION_FILE = "~/.local/share/bash-completion/completions/horovodrun"  # where bash looks for it

LAUNCHER_OPTIONS: tuple[Option, ...] = (
    # What to start, and where.
    Option(
        "np",
        "number of ranks (processes). Default in a Slurm job: its number of tasks",
        ("-np", "-n", "--num-proc"),
        type="int",
        minimum=1,
        group=HOSTS,
    ),
    Option(
        "hosts",
        "hosts and slots, as host1:2,host2:4; a host without a number has one slot. Default: this host, "
        "with as many slots as ranks, or those of the Slurm job",
        ("-H", "--hosts"),
        group=HOSTS,
    ),
    Option(
        "hostfile",
        "file with one `host slots=N` a line, instead of --hosts",
        ("-hostfile", "--hostfile"),
        group=HOSTS,
    ),
    Option(
        "ssh_port",
        "port of the hosts' ssh servers",
        ("-p", "--ssh-port"),
        type="int",
        minimum=1,
        group=HOSTS,
    ),
    Option(
        "ssh_identity_file",
        "private key that ssh uses",
        ("-i", "--ssh-identity-file"),
        group=HOSTS,
    ),
    Option(
        "network_interfaces",
        "network interfaces, or networks as 10.0.0.0/8, that connect the hosts; comma-separated. Default: "
        "the networks that all hosts share",
        ("--network-interfaces", "--network-interface"),
        type="list",
        group=HOSTS,
    ),
    Option(
        "start_timeout",
        "seconds within which all hosts must have answered, and then all ranks have started; and for which "
        "ranks in hvd.init() wait for the others",
        ("--start-timeout",),
        variable="HOROVOD_START_TIMEOUT",
        type="int",
        default="30",
        minimum=1,
        group=HOSTS,
    ),
    Option(
        "exit_timeout",
        "seconds without any work after which a rank is ended that is stopped, or has left the job by "
        "hvd.shutdown() or at its script's end, when all others have ended; 0: never",
        ("--exit-timeout",),
        variable="HOROVOD_EXIT_TIMEOUT",
        key="exit_timeout",
        type="int",
        default="60",
        is_new=True,
        group=HOSTS,
    ),
    Option(
        "config_file",
        "YAML file with the keys of docs/configuration.md; the command line beats it",
        ("--config-file",),
        group=HOSTS,
    ),
    Option(
        "mpi_args",
        'with --launcher mpi: more arguments for mpirun, as --mpi-args="--map-by numa"',
        ("--mpi-args",),
        group=LAUNCHERS,
    ),
    Option(
        "binding_args",
        "with --launcher mpi: arguments for mpirun that bind ranks to cores; ranks are not bound otherwise",
        ("--binding-args",),
        group=LAUNCHERS,
    ),
    Option(
        "bind",
        "auto: give each rank cores of its own, of one NUMA node where that can be, and its engine's thread "
        "a hyper-thread of them; none where a host has fewer cores than ranks",
        ("--bind",),
        variable="HOROVOD_BIND",
        key="params.bind",
        default="none",
        choices=("none", "auto"),
        is_new=True,
        group=HOSTS,
    ),
    Option(
        "ddp",
        "for scripts of torch.distributed: set MASTER_ADDR, RANK, WORLD_SIZE, LOCAL_RANK and so on, as "
        "torchrun does; --compression is then about the gradients of DistributedDataParallel",
        ("--ddp",),
        key="ddp.enabled",
        type="bool",
        is_new=True,
        group=DDP,
    ),
    Option(
        "master_addr",
        "with --ddp: address of rank 0's host. Default: its address in the network that connects the hosts",
        ("--master-addr",),
        key="ddp.master_addr",
        form=(r"[^\s]+", "a host name or an address"),
        is_new=True,
        group=DDP,
    ),
    Option(
        "master_port",
        "with --ddp: port at which rank 0 listens. Default: one that is free on its host",
        ("--master-port",),
        key="ddp.master_port",
        type="int",
        minimum=1,
        is_new=True,
        group=DDP,
    ),
    Option(
        "launcher",
        "what starts the ranks. tcp: horovodrun's own agents, one for each host, and ranks talk over TCP, or "
        "in shared memory; mpi: the mpirun of the MPI that this package uses. Default: tcp; mpi for scripts "
        "that import mpi4py",
        ("--launcher",),
        variable="HOROVOD_LAUNCHER",
        key="launcher",
        choices=("mpi", "tcp"),
        is_new=True,
        group=LAUNCHERS,
    ),
    # Jobs whose hosts and workers come and go.
    Option(
        "min_np",
        "elastic job: workers below which it waits for others. Default: -np",
        ("--min-np", "--min-num-proc"),
        type="int",
        minimum=1,
        group=ELASTIC,
    ),
    Option(
        "max_np",
        "elastic job: workers at most. Default: as many as there are slots",
        ("--max-np", "--max-num-proc"),
        type="int",
        minimum=1,
        group=ELASTIC,
    ),
    Option(
        "host_discovery_script",
        "elastic job: a command that prints `host` or `host:slots` lines, run every second",
        ("--host-discovery-script",),
        group=ELASTIC,
    ),
    Option(
        "slots_per_host",
        "elastic job: slots of a host for which the script says none. Default: 1",
        ("--slots-per-host",),
        type="int",
        minimum=1,
        group=ELASTIC,
    ),
    Option(
        "elastic_timeout",
        "elastic job: seconds that it waits for slots at the start, and after a loss for survivors that are "
        "busy, and for enough workers",
        ("--elastic-timeout",),
        variable="HOROVOD_ELASTIC_TIMEOUT",
        type="int",
        default="600",
        minimum=1,
        group=ELASTIC,
    ),
    Option(
        "reset_limit",
        "elastic job: how often its membership may change before it is given up. Default: no limit",
        ("--reset-limit",),
        type="int",
        group=ELASTIC,
    ),
    Option(
        "blacklist_cooldown_range",
        "elastic job: seconds, lowest and highest, after which what has failed is used again; they double "
        "with each failure. Default: 5 300 for a slot, and never for a host",
        ("--blacklist-cooldown-range",),
        type="int",
        words=2,
        group=ELASTIC,
    ),
    Option(
        "blacklist",
        "elastic job: what the death of a worker costs. slot: its slot, and the others of its host go on; "
        "host: its host with all workers there, as with Horovod",
        ("--blacklist",),
        variable="HOROVOD_ELASTIC_BLACKLIST",
        key="elastic_blacklist",
        default="slot",
        choices=("slot", "host"),
        is_new=True,
        group=ELASTIC,
    ),
    Option(
        "max_worker_failures",
        "elastic job: with --blacklist slot, deaths of a host's workers within 10 minutes after which the "
        "host is given up. Default: 10",
        ("--max-worker-failures",),
        variable="HOROVOD_ELASTIC_MAX_WORKER_FAILURES",
        key="elastic_max_worker_failures",
        type="int",
        minimum=1,
        is_new=True,
        group=ELASTIC,
    ),
    Option(
        "elastic_restart",
        "elastic job: after a loss all workers are ended and started again, and read the newest commit of "
        "hvd.elastic in their hosts' memory: for scripts that cannot go on in their processes. Ranks of "
        "torchrun keep commits where it may restart them, or as the variable says; by itself it makes no job "
        "elastic",
        ("--elastic-restart",),
        variable="HOROVOD_ELASTIC_RESTART",
        key="elastic_restart",
        type="bool",
        is_new=True,
        group=ELASTIC,
    ),
    Option(
        "use_mpi",
        "as --launcher mpi",
        ("--mpi",),
        type="bool",
        group=LAUNCHERS,
    ),
    Option(
        "use_gloo",
        "as --launcher tcp, the default: there is no Gloo",
        ("--gloo",),
        type="bool",
        group=LAUNCHERS,
    ),
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
    Option(
        "tcp",
        "use TCP even where there is InfiniBand or the like (Spectrum MPI: -tcp; NCCL: NCCL_IB_DISABLE=1)",
        ("--tcp",),
        type="bool",
        group=HOSTS,
    ),
    Option(
        "disable_cache",
        "accepted: hosts are asked at each start",
        ("--disable-cache",),
        type="bool",
        group=HOSTS,
    ),
    Option(
        "disable_nvtx_ranges",
        "accepted: there are no NVTX ranges",
        variable="HOROVOD_DISABLE_NVTX_RANGES",
        type="bool",
        default="0",
    ),
    Option(
        "tune_launch",
        "run a few steps of the script with and without each setting that only fresh processes can take "
        "(--bind auto, how malloc keeps memory), print a table, and end",
        ("--tune-launch",),
        type="bool",
        is_new=True,
        group=PERFORMANCE,
    ),
    Option(
        "tune_launch_steps",
        "steps of each of its jobs that count; 30 without",
        ("--tune-launch-steps",),
        type="int",
        minimum=1,
        is_new=True,
        group=PERFORMANCE,
    ),
    # What to show.
    Option(
        "verbose",
        "show how ranks are started, with mpirun its command line, and how each rank ended",
        ("--verbose",),
        type="bool",
        group=OUTPUT,
    ),
    Option(
        "quiet",
        "leave out what horovodrun says of a job that has ended well: how many bytes compression saved, and "
        "how long ranks waited. Errors and warnings stay",
        ("--quiet",),
        type="bool",
        is_new=True,
        group=OUTPUT,
    ),
    Option(
        "output_filename",
        "folder in which each rank's output is written too, as rank.<number>/stdout and stderr",
        ("--output-filename",),
        group=OUTPUT,
    ),
    Option(
        "prefix_timestamp",
        "begin each line of output with the time",
        ("-prefix-timestamp", "--prefix-output-with-timestamp"),
        type="bool",
        group=OUTPUT,
    ),
    Option(
        "check_build",
        "say what this installation can do, and end",
        ("-cb", "--check-build"),
        type="bool",
        group=INSTALLATION,
    ),
    Option(
        "print_completion",
        "print a script that completes these options in that shell, and end; needs shtab (pip install "
        f"shtab). bash looks for it in {COMPLETION_FILE}",
        ("--print-completion",),
        choices=("bash", "zsh", "tcsh"),
        is_new=True,
        group=INSTALLATION,
    ),
    Option(
        "version",
        "say the version, and end",
        ("-v", "--version"),
        type="bool",
        group=INSTALLATION,
    ),
    Option(
        "topology",
        "draw the hosts that -np and -H name, with their GPUs and networks, say which route allreduces take "
        "between them, and end",
        ("--topology",),
        type="bool",
        is_new=True,
        group=HOSTS,
    ),
    Option(
        "topology_file",
        "with --topology: also write the drawing to this file, as SVG",
        ("--topology-file",),
        is_new=True,
        group=HOSTS,
    ),
)
