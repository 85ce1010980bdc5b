"""All error messages of horovod.common: see horovod.common.sentences."""

from __future__ import annotations

from typing import NamedTuple

from horovod.common.exceptions import (
    CannotStart,
    HorovodInternalError,
    NotInitialized,
    NotServed,
    WrongArgument,
    WrongSetting,
    WrongType,
)
from horovod.common.sentences import Explained

START = "`horovodrun -np N python train.py`"
_ALONE = "for a process that shall work alone, unset the variables: `env {unset} python train.py`"
_BUILD = "all ranks must run the same build"
_RELEASE = "install the same release of horovod on every host"


class NotBuilt(Explained, ImportError):
    """A part that was left out when this package was built."""


class Removed(Explained, ValueError):
    """This worker is not in the job any more, and why."""


class AgentGone(Explained, ValueError):
    """The agent of horovodrun, or its driver, is unreachable or answers wrongly."""


class CommitsLost(Explained, ValueError):
    """Commits for processes that are started again cannot be stored."""


class InAnotherFunction(HorovodInternalError):
    """This rank stops: the others are in another part of the script. They continue."""


class Wording(NamedTuple):
    """Texts of errors about a job. They name the call that formed it, usually hvd.init()."""

    forming: str  # that call, as "hvd.init()"
    if_absent: str  # possible reasons why a rank did not come, and remedies
    not_running: str  # the whole error for an operation outside of a job
    in_child: str  # the calls that still work in a process forked by a rank, and the remedy


OF_HVD = Wording(
    forming="hvd.init()",
    if_absent="do these processes run, on hosts that reach it, and does each call hvd.init(), with the same "
    "comm= if any? Have all been told the same number of ranks, and each another rank? Where they are slow "
    "to start, raise HOROVOD_START_TIMEOUT",
    not_running="Horovod is not running: call hvd.init() first, and no operation after hvd.shutdown().",
    in_child="only rank(), size() and the like work in it. Leave hvd.init(), operations and waiting for them "
    "to the process that has called hvd.init(); a process that shall call it too must be forked before that.",
)


# Settings (horovod.common.options, variables)
no_text = WrongSetting.says("{setting}={value!r} is not UTF-8 text", "unset it or give a valid value")
not_valid = WrongSetting.says("{setting}={value!r} is not {expected}", "unset it or give a valid value")
not_wanted = WrongSetting.says("{value!r} is not {expected}{hint}")
too_small = WrongSetting.says("{value} is not {expected}")
too_large = WrongSetting.says("{value} is not {expected} <= {most}")
autotune_not_deterministic = WrongSetting.says(
    "HOROVOD_AUTOTUNE=1 with HOROVOD_DETERMINISTIC=1: what is tuned follows from measured times, which are "
    "never the same twice",
    "unset one of them",
)
settings_differ = WrongSetting.says(
    "the ranks have different settings: {setting} ({values:by_rank})", "give all the same"
)
dynamic_on_some = WrongSetting.says(
    "HOROVOD_DYNAMIC_PROCESS_SETS is on for {ranks:ranks} of {size} only: they would wait for the others to "
    "add a set",
    "set it on all ranks, or give all init(process_sets='dynamic')",
)

# Life of a job (basics, jobs, membership)
not_initialized = NotInitialized.says("Horovod has not been initialized", "use hvd.init()")
not_running = HorovodInternalError.says("{why}")
forked = HorovodInternalError.says("process {process} was forked by {parent}", "{to_do}")
forming_failed = CannotStart.says("{forming} failed: {why}")
no_mpi_threads = WrongArgument.says(
    "mpi_threads_supported() needs a job that was started with MPI", "this one was not"
)
builds_differ = CannotStart.says(
    "the ranks run different builds of horovod, and would misread each other's data: {differences}",
    "install the same one on every host",
)
not_understood = CannotStart.says("{ranks:ranks} sent {got!r} to agree on {forming}", _BUILD)

# Process sets and communicators
not_dynamic = WrongArgument.says(
    "{function}() needs dynamic process sets",
    "set HOROVOD_DYNAMIC_PROCESS_SETS=1 before hvd.init(), or call hvd.init(process_sets='dynamic')",
)
unknown_process_sets = WrongArgument.says(
    "init(process_sets={got!r}) names no sets", "give a list of ProcessSets, or 'dynamic'"
)
no_process_set = WrongArgument.says("init(process_sets=...) takes hvd.ProcessSet objects, not {got}")
not_registered = WrongArgument.says(
    "process_set={process_set} is not registered on {ranks:ranks}",
    "give it to hvd.init() or hvd.add_process_set() first; a set that was removed is gone",
)
not_of_a_communicator = WrongArgument.says("no process set was made from the communicator {got}")
added_by_communicator = NotServed.says(
    "add_process_set: a set made from a communicator can only be given to hvd.init()", "give a list of ranks"
)
no_whole_numbers = WrongArgument.says("ranks are whole numbers, and these are not: {got}")
no_such_ranks = WrongArgument.says("process set of ranks {members}: this job has ranks 0 to {last}")
named_twice = WrongArgument.says("process set of ranks {members}: a rank is named twice")
exists_already = WrongArgument.says("a process set of ranks {members} exists already", "use that one")
of_a_rank = WrongArgument.says("{ranks:ranks}: {why}")
not_served_on_a_rank = NotServed.says("{ranks:ranks}: {why}")
numbers_of_sets_differ = WrongArgument.says(
    "init(process_sets=...): ranks were given different numbers of sets, {counts}"
)
sets_differ = WrongArgument.says(
    "init(process_sets=...): ranks were given different sets at position {position}: {members} by rank"
)
no_mpi = WrongArgument.says("init(comm=...): this horovod was built without MPI", "leave comm out")
not_of_mpi = WrongArgument.says(
    "init(comm=...): no MPI has started this process, which is one of several ({evidence}), so a "
    "communicator does not know the others",
    "give a list of ranks, or leave comm out",
)
not_a_comm = WrongArgument.says(
    "init(comm={got}): comm must be None, a list of ranks or an mpi4py communicator, not {type}"
)
not_ranks_or_communicator = WrongArgument.says(
    "a ProcessSet is made from a list of ranks or an mpi4py communicator, not {got}"
)
needs_communicator = NotServed.says(
    "a ProcessSet made from a communicator needs hvd.init(comm=...) with a communicator too",
    "call, for example, hvd.init(MPI.COMM_WORLD, process_sets=[...])",
)
null_communicator = WrongArgument.says(
    "MPI.COMM_NULL has no ranks", "pass a communicator that this process is in"
)
outside_process = WrongArgument.says(
    "a communicator holds a process that is not in the one given to hvd.init()"
)

# Launchers (launched)
_SEVERAL = "{launcher} has started this process as one of several ({evidence}), "
_INSTEAD = "use {instead}; " + _ALONE
_RESTART = f"start the job with {START}; {_ALONE}"
_MEET = f"use {START}, or `torchrun --nproc-per-node N train.py`, or set "
no_size = CannotStart.says(
    "{setting}={value} is no number of processes, and {launcher} sets it to one", _RESTART
)
no_pmix_server = CannotStart.says(
    "{evidence} says that a launcher has started this process, but no {setting}... says where it is, and "
    "only it knows the other ranks",
    _RESTART,
)
mpi_without_size = CannotStart.says(
    "{evidence} says that this process is one rank of a job, but {setting}, the number of ranks, is not set",
    _RESTART,
)
no_way_to_others = CannotStart.says(
    _SEVERAL + "and hvd.init() knows no way to the others: it would be alone",
    "use {instead}, or name a folder that all ranks see in {setting}; " + _ALONE,
)
size_not_set = CannotStart.says(_SEVERAL + "but {setting}, their number, is not set", _INSTEAD)
size_not_said = CannotStart.says(_SEVERAL + "but does not say of how many", _INSTEAD)
rank_no_number = CannotStart.says(_SEVERAL + "but {setting}={value} is no number", _INSTEAD)
rank_not_set = CannotStart.says(_SEVERAL + "but {setting}, its rank, is not set", _INSTEAD)
rank_not_below_size = CannotStart.says(_SEVERAL + "but ranks of {size} are 0 to {last}", _INSTEAD)
no_meeting_point = CannotStart.says(
    _SEVERAL + "but it is not set where they meet: {settings:listed}",
    _MEET + "them: the host of rank 0, and a port that is free there; " + _ALONE,
)
no_master_port = CannotStart.says(
    _SEVERAL + "but MASTER_PORT={value} is no port", _MEET + "one of 1 to 65535; " + _ALONE
)
launchers_differ = CannotStart.says(
    "{evidence} and {other} contradict each other: {launcher} and {other_launcher} say another {differs} of "
    "this process' job",
    f"unset what is not meant, or {_RESTART}",
)
mpi4py_alone = CannotStart.says(
    "this process has loaded mpi4py, to which each rank that horovodrun's agents have started is a world of "
    "one ({evidence})",
    "start the ranks by `horovodrun --launcher mpi`, or leave out mpi4py",
)
torchrun_inside = CannotStart.says(
    "torchrun has started this process as one of {size} ({setting}={size}), inside of a job of {launcher} "
    "with another number of ranks ({evidence}), and hvd.init() joins that only",
    f"use {START}, without torchrun; {_ALONE}",
)
child_of_rank = CannotStart.says(
    "process {process} was started by process {parent}, a rank that has called hvd.init(), and has its "
    "variables ({evidence}); a rank is one process",
    "leave hvd.init() and collectives to it. Another job is started with horovodrun or horovod.run(), also "
    f"from here; {_ALONE}",
)

# Meeting places of ranks (horovod.common.rendezvous)
_MIXED = (
    "at the same time: ranks of two jobs would be mixed there",
    "start one job after the other, or let them meet in different places: another HOROVOD_RENDEZVOUS_FOLDER, "
    "MASTER_PORT or store (as torch.distributed.PrefixStore)",
)
not_inherited = CannotStart.says(
    "{evidence} says that horovodrun has started this process, but what {setting}={value} names is not open "
    "in it",
    "what a rank starts is no rank; and a script that starts Python as the rank has to leave open what it "
    "inherits",
)
no_interfaces = WrongSetting.says("{setting}={value!r}: {why}")
not_networks = WrongSetting.says("give interfaces, or networks as 10.0.0.0/8")
cannot_take_part = CannotStart.says("{ranks:ranks} ({host}) cannot take part: {why}")
cannot_listen = CannotStart.says("{ranks:ranks} ({host}) cannot listen for the others: {why}")
other_release = CannotStart.says(
    "{ranks:ranks} runs {got}, which does not meet the others as horovod {expected} does",
    "install the same release on every host",
)
misunderstood = CannotStart.says(
    "{ranks:ranks} sent {got!r} ({bytes} bytes) where ranks tell each other of themselves",
    f"{_RELEASE}, and look who else writes to the place where they meet",
)
no_address_as_told = CannotStart.says(
    "{ranks:ranks} ({host}) was told to listen in {wanted:listed}, and has no address there. It has: "
    "{addresses:listed}",
    "set HOROVOD_TCP_INTERFACES to interfaces or networks of that host",
)
no_address = CannotStart.says(
    "{ranks:ranks} ({host}) has no address that ranks on other hosts could reach",
    "name an interface, or a network, in HOROVOD_TCP_INTERFACES",
)
short_secret = WrongSetting.says(
    "HOROVOD_SECRET has {bytes} bytes, and one of fewer than {least} could be guessed",
    "`export HOROVOD_SECRET=$(openssl rand -hex 32)`, and the same for all ranks",
)
wrong_ports = WrongSetting.says("{setting}={value!r} is not {expected}, of 1 to {most}")
secret_on_some = CannotStart.says(
    "HOROVOD_SECRET is set on {ranks:ranks} of {size} only", "set it on all, to the same text, or on none"
)
secrets_differ = CannotStart.says(
    "HOROVOD_SECRET is another one on rank {rank} than on {ranks:ranks}", "set it to the same text on all"
)
not_by_mpi = WrongSetting.says(
    "HOROVOD_TRANSPORT=mpi needs ranks that mpirun has started, and these meet by way of {place}",
    "use tcp, or leave it out, or start them by `horovodrun --launcher mpi`",
)
in_no_folder = WrongSetting.says("{setting}: {why}")
relative_folder = WrongSetting.says(
    "{path!r} is no absolute path, and ranks may start in different folders", "name one that begins with /"
)
unusable_folder = WrongSetting.says("the folder {path} cannot be used: {why}")
no_folder = WrongSetting.says("{path} is no folder")
open_folder = WrongSetting.says(
    "others may write in the folder {path}, and could join the job",
    "`chmod go-w {path}`, or name one that is yours",
)
store_lacks = WrongArgument.says(
    "init(store=, rank=, size=) go together: {missing} is missing", "give all of them, or none"
)
not_a_store = WrongArgument.says(
    "init(store={got}): a store has set(key, value) and get(key), as those of torch.distributed"
)
no_such_rank = WrongArgument.says("init(rank={rank}, size={size}): ranks are 0 to size - 1")
store_and_communicator = WrongArgument.says(
    "init(comm=..., store=...): a communicator is MPI's", "give comm as a list of ranks"
)
comm_twice_or_none = WrongArgument.says(
    "init(comm={members}): each of the {size} ranks, 0 to {last}, may be named once"
)
rank_outside_comm = WrongArgument.says(
    "init(comm={members}) on rank {rank}, which is not among them",
    "call init() with the ranks that this one shall work with",
)
first_task_elsewhere = CannotStart.says(
    "{setting}=0 is on node {node} of the step, where the other ranks do not look for it",
    "set MASTER_ADDR to its host, or use another --distribution",
)
wrong_master_port = WrongSetting.says("MASTER_PORT={value} is no port", "unset it, or set one of 1 to 65535")
hosts_not_said = CannotStart.says(
    "{launcher} has started this process, but {settings} do not say on which hosts",
    "set MASTER_ADDR to that of task 0",
)
hosts_not_read = CannotStart.says("{setting}={value} {why}", "set MASTER_ADDR to the host of task 0")
too_many_hosts = WrongSetting.says("names more than {most} hosts")
no_host_list = WrongSetting.says("is not understood at {value!r}")
without_torch = CannotStart.says(
    "{evidence}: ranks meet in a store of torch.distributed, which horovod.torch opens",
    "import it before hvd.init()",
)
no_use_of_store = CannotStart.says(
    "{ranks:ranks} of {size} ({evidence}) {done} the store of torch.distributed at {host}:{port}, by way of "
    "which ranks meet: {why}",
    "is MASTER_ADDR the host of rank 0, is MASTER_PORT free there and open in its firewall, and does rank 0 "
    "call hvd.init()?",
)
did_not_come = CannotStart.says(
    "{ranks:ranks} of {size} did not come to {place} within {seconds:g} s", "{check}"
)
fell_silent = CannotStart.says(
    "{ranks:ranks} of {size} came to {place}, and said nothing more within {seconds:g} s",
    "see what these processes print, and whether they still run",
)
too_long = CannotStart.says("{ranks:ranks} sent more than {most} bytes by way of {place}")
two_processes = CannotStart.says(
    "two processes are {ranks:ranks}, and meet others in {place}, " + _MIXED[0], _MIXED[1]
)
two_first_ranks = CannotStart.says(
    "another process is rank 0 too ({process}), and meets others in {place}, " + _MIXED[0], _MIXED[1]
)
as_rank_0_says = CannotStart.says("{why}")
no_reason = CannotStart.says(
    "{ranks:ranks} read {got!r} by way of {place}, where rank 0 says why ranks cannot meet",
    "look who else writes there, and whether two jobs use it at once",
)
store_broken = CannotStart.says("{ranks:ranks} cannot use {place}, by way of which ranks meet: {why}")
not_published = CannotStart.says(
    "rank 0 published {got!r} ({bytes} bytes) by way of {place}, which is not what {size} ranks have said",
    f"{_RELEASE}, and look who else writes there",
)

# The agent of horovodrun (agent_channel)
out_of_the_job = Removed.says("{why}")
channel_broken = AgentGone.says("{why}")
refused = AgentGone.says("horovodrun refuses to {do}: {why}")
agent_gone = AgentGone.says("the agent of horovodrun that started this process is gone: {why}")
no_value = AgentGone.says("horovodrun answered {got}, which is no value")

# Elastic training
how_saved = NotServed.says("{type} does not say how it is saved")
how_restored = NotServed.says("{type} does not say how it is restored")
how_synchronized = NotServed.says("{type} does not say how ranks agree on it")
unusable_attribute = WrongType.says(
    "the elastic state's attribute {attribute!r} cannot be {done}: {why}",
    "keep {type} outside of the state, and make it again inside of the function",
)
keeps_no_commits = WrongArgument.says(
    "{type} keeps no commits for processes that are started again",
    "use hvd.elastic.TorchState, or leave out --elastic-restart",
)
in_another_function = InAnotherFunction.says(
    "rank {rank} is in {function} of hvd.elastic.run, and rank {root} in {expected}: a new worker runs the "
    "script from its beginning, and cannot come to a later function",
    "have hvd.elastic.run call one function for all of the training, which goes on from what the state says",
)
agent_keeps_nothing = CommitsLost.says(
    "the agent of horovodrun on this host keeps no commits for workers that are started again: it could not "
    "make a folder in {path}, and has said why"
)
not_of_horovodrun = CommitsLost.says("{path} is no folder of a job of horovodrun's")
nobody_restarts = CommitsLost.says(
    "no commits can be kept for processes that are started again: neither horovodrun --elastic-restart nor "
    "torchrun has started this one",
    "start it so, or unset HOROVOD_ELASTIC_RESTART",
)
unusable_commits = CommitsLost.says("the folder of commits {path} cannot be used: {why}")
others_commits = CommitsLost.says(
    "{path} is no folder that user {user} alone can enter: commits are neither kept there nor read",
    "somebody else has made it: remove it, and start the job again",
)

# Helper functions (util) and the NumPy codec
not_built = NotBuilt.says(
    "extension {extension} has not been built: {path} is missing", "reinstall with {setting}=1"
)
no_version = WrongArgument.says("version {version!r} is not of the form major.minor.patch")
op_is_text = WrongArgument.says("op={op!r} is a text", "give one of {choices:listed}{hint}")
op_and_average = WrongArgument.says(
    "Give either op or the deprecated average, not both", "average=True is op=Average"
)
no_floats = WrongArgument.says("the codecs take float16, float32 or float64 arrays, not {dtype}")
no_codec = WrongArgument.says("no codec is called {codec!r}", "there are {choices:listed}")
no_codec_name = WrongArgument.says("{codec!r} is not the name of a codec")
no_codec_options = WrongArgument.says("{codec!r} has options that no codec has: {options:listed}")
negative_count = WrongArgument.says("a run cannot hold {count} elements", "give a count of 0 or more")
wrong_block_size = WrongArgument.says("a block has {choices:listed} elements, not {block_size}")
wrong_run = WrongArgument.says("expected a run of {expected} bytes (uint8), got {dtype} of shape {shape}")
