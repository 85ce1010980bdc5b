"""The options of horovodrun itself: which ranks to start, on which hosts, and what to print."""

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
    row,
)

__all__ = ["COMPLETION_FILE", "LAUNCHER_OPTIONS"]

COMPLETION_FILE = "~/.local/share/bash-completion/completions/horovodrun"  # bash searches here

LAUNCHER_OPTIONS: tuple[Option, ...] = (
    # Ranks and hosts.
    row("np", group=HOSTS, flags=("-np", "-n", "--num-proc"), type="int", minimum=1,
        help="number of ranks (processes). Default in a batch job: its number of tasks"),
    row("hosts", group=HOSTS, flags=("-H", "--hosts"),
        help="hosts and slots, as host1:2,host2:4; a host without a number has one slot. Default: this "
             "host, with as many slots as ranks, or those of the batch job"),
    row("hostfile", group=HOSTS, flags=("-hostfile", "--hostfile"),
        help="file with one `host slots=N` a line, instead of --hosts"),
    row("ssh_port", group=HOSTS, flags=("-p", "--ssh-port"), type="int", minimum=1,
        help="port of the hosts' ssh servers"),
    row("ssh_identity_file", group=HOSTS, flags=("-i", "--ssh-identity-file"),
        help="private key that ssh uses"),
    row("network_interfaces", group=HOSTS, flags=("--network-interfaces", "--network-interface"), type="list",
        help="network interfaces, or networks as 10.0.0.0/8, that connect the hosts; comma-separated. "
             "Default: the networks that all hosts share"),
    row("start_timeout", group=HOSTS, variable="HOROVOD_START_TIMEOUT", default=30, minimum=1,
        help="seconds within which all hosts must have answered, and then all ranks have started; and for "
             "which ranks in hvd.init() wait for the others"),
    row("exit_timeout", group=HOSTS, variable="HOROVOD_EXIT_TIMEOUT", key="exit_timeout", default=60,
        is_new=True,
        help="seconds without any work after which a rank is ended that is stopped, or has left the job by "
             "hvd.shutdown() or at its script's end, when all others have ended; 0: never"),
    row("config_file", group=HOSTS,
        help="YAML file with the keys of docs/configuration.md; the command line beats it"),
    row("mpi_args", group=LAUNCHERS,
        help='with --launcher mpi: more arguments for mpirun, as --mpi-args="--map-by numa"'),
    row("binding_args", group=LAUNCHERS,
        help="with --launcher mpi: arguments for mpirun that bind ranks to cores; ranks are not bound "
             "otherwise"),
    row("bind", group=HOSTS, variable="HOROVOD_BIND", key="params.bind", default="none",
        choices=("none", "auto"), is_new=True,
        help="auto: bind each rank to its own cores, of one NUMA node if possible, and its engine's "
             "thread a hyper-thread of them; none where a host has fewer cores than ranks"),
    row("ddp", group=DDP, key="ddp.enabled", type="bool", is_new=True,
        help="for scripts of torch.distributed: set MASTER_ADDR, RANK, WORLD_SIZE, LOCAL_RANK and so on, as "
             "torchrun does; --compression is then about the gradients of DistributedDataParallel"),
    row("master_addr", group=DDP, key="ddp.master_addr", form=(r"[^\s]+", "a host name or an address"),
        is_new=True,
        help="with --ddp: address of rank 0's host. Default: its address in the network that connects the "
             "hosts"),
    row("master_port", group=DDP, key="ddp.master_port", type="int", minimum=1, is_new=True,
        help="with --ddp: port at which rank 0 listens. Default: one that is free on its host"),
    row("launcher", group=LAUNCHERS, variable="HOROVOD_LAUNCHER", key="launcher", choices=("mpi", "tcp"),
        is_new=True,
        help="what starts the ranks. tcp: horovodrun's own agents, one for each host, and ranks talk over "
             "TCP, or in shared memory; mpi: the mpirun of the MPI that this package uses. Default: tcp; "
             "mpi for scripts that import mpi4py"),
    # Jobs whose hosts and workers come and go.
    row("min_np", group=ELASTIC, flags=("--min-np", "--min-num-proc"), type="int", minimum=1,
        help="elastic job: workers below which it waits for others. Default: -np"),
    row("max_np", group=ELASTIC, flags=("--max-np", "--max-num-proc"), type="int", minimum=1,
        help="elastic job: workers at most. Default: as many as there are slots"),
    row("host_discovery_script", group=ELASTIC,
        help="elastic job: a command that prints `host` or `host:slots` lines, run every second"),
    row("slots_per_host", group=ELASTIC, type="int", minimum=1,
        help="elastic job: slots of a host for which the script says none. Default: 1"),
    row("elastic_timeout", group=ELASTIC, variable="HOROVOD_ELASTIC_TIMEOUT", default=600, minimum=1,
        help="elastic job: seconds that it waits for slots at the start, and after a loss for survivors "
             "that are busy, and for enough workers"),
    row("reset_limit", group=ELASTIC, type="int",
        help="elastic job: how often its membership may change before it is given up. Default: no limit"),
    row("blacklist_cooldown_range", group=ELASTIC, type="int", words=2,
        help="elastic job: seconds, lowest and highest, after which what has failed is used again; they "
             "double with each failure. Default: 5 300 for a slot, and never for a host"),
    row("blacklist", group=ELASTIC, variable="HOROVOD_ELASTIC_BLACKLIST", key="elastic_blacklist",
        default="slot", choices=("slot", "host"), is_new=True,
        help="elastic job: what the death of a worker costs. slot: its slot, and the others of its host go "
             "on; host: its host with all workers there, as with Horovod"),
    row("max_worker_failures", group=ELASTIC, variable="HOROVOD_ELASTIC_MAX_WORKER_FAILURES",
        key="elastic_max_worker_failures", type="int", minimum=1, is_new=True,
        help="elastic job: with --blacklist slot, deaths of a host's workers within 10 minutes after which "
             "the host is given up. Default: 10"),
    row("elastic_restart", group=ELASTIC, variable="HOROVOD_ELASTIC_RESTART", key="elastic_restart",
        type="bool", is_new=True,
        help="elastic job: after a loss all workers are ended and started again, and read the newest commit "
             "of hvd.elastic in their hosts' memory: for scripts that cannot go on in their processes. "
             "Ranks of torchrun keep commits where it may restart them, or as the variable says; by itself "
             "it makes no job elastic"),
    row("use_mpi", group=LAUNCHERS, flags=("--mpi",), type="bool",
        help="as --launcher mpi"),
    row("use_gloo", group=LAUNCHERS, flags=("--gloo",), type="bool",
        help="as --launcher tcp, the default: there is no Gloo"),
    row("controller", variable="HOROVOD_CONTROLLER", key="controller", default="mpi", choices=("mpi",),
        help="accepted as mpi"),
    row("cpu_operations", variable="HOROVOD_CPU_OPERATIONS", default="mpi", choices=("mpi",),
        help="accepted as mpi"),
    row("tcp", group=HOSTS, type="bool",
        help="use TCP even where there is InfiniBand or the like (Spectrum MPI: -tcp; NCCL: "
             "NCCL_IB_DISABLE=1)"),
    row("disable_cache", group=HOSTS, type="bool",
        help="accepted: hosts are asked at each start"),
    row("disable_nvtx_ranges", variable="HOROVOD_DISABLE_NVTX_RANGES", default=False,
        help="accepted: there are no NVTX ranges"),
    row("tune_launch", group=PERFORMANCE, type="bool", is_new=True,
        help="run a few steps of the script with and without each setting that only fresh processes can "
             "take (--bind auto, how malloc keeps memory), print a table, and end"),
    row("tune_launch_steps", group=PERFORMANCE, type="int", minimum=1, is_new=True,
        help="steps of each of its jobs that count; 30 without"),
    # Output.
    row("verbose", group=OUTPUT, type="bool",
        help="show how ranks are started, with mpirun its command line, and how each rank ended"),
    row("quiet", group=OUTPUT, type="bool", is_new=True,
        help="leave out what horovodrun says of a job that has ended well: how many bytes compression "
             "saved, and how long ranks waited. Errors and warnings stay"),
    row("output_filename", group=OUTPUT,
        help="folder in which each rank's output is written too, as rank.<number>/stdout and stderr"),
    row("prefix_timestamp", group=OUTPUT, flags=("-prefix-timestamp", "--prefix-output-with-timestamp"),
        type="bool",
        help="begin each line of output with the time"),
    row("check_build", group=INSTALLATION, flags=("-cb", "--check-build"), type="bool",
        help="say what this installation can do, and end"),
    row("print_completion", group=INSTALLATION, choices=("bash", "zsh", "tcsh"), is_new=True,
        help="print a script that completes these options in that shell, and end; needs shtab (pip install "
             f"shtab). bash looks for it in {COMPLETION_FILE}"),
    row("version", group=INSTALLATION, flags=("-v", "--version"), type="bool",
        help="say the version, and end"),
    row("topology", group=HOSTS, type="bool", is_new=True,
        help="draw the hosts that -np and -H name, with their GPUs and networks, say which route allreduces "
             "take between them, and end"),
    row("topology_file", group=HOSTS, is_new=True,
        help="with --topology: also write the drawing to this file, as SVG"),
)
