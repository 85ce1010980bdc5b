"""All time limits of the launcher, the core and elastic jobs that are not options, in seconds.

They say how long a process waits for another before it acts. Options with times are in the tables of
`horovod.common.options`. The core has the limits in CORE, as horovod/native/base/time_limits.h, which the
build makes from this table. Imports nothing, because each rank's wrapper loads it.
"""

# ---- Signs of life ----

AGENT_BEAT = 1.0  # between two signs of life of an agent to its driver
HOST_SILENCE = 10.0  # ten beats missed: the driver gives up the host
LONGEST_ROUND = 2.0  # a process that did not look for so long was stopped: it forgives silence until now
RANK_BEAT = 0.5  # between two of a rank to another over TCP; HOROVOD_TCP_TIMEOUT_SECONDS is the limit
PROCESS_LOOK = 0.5  # between two checks whether the processes of a host's other ranks exist
BETWEEN_INSPECTIONS = 0.25  # between two inspections by a transport of peers' messages and departures
STALL_LOOK = 0.5  # between two checks of rank 0 for operations that stall
WORK_LOOK = 1.0  # between two checks whether a rank that has left the job uses the processor

# ---- The start ----

SSH_CONNECT = 10  # ssh takes whole seconds; a host that answers does so in one
AGENT_RETRY = 0.5  # before another try: an ssh server refuses connections when many come at once
REACH = 2.0  # for a connection to another host of the job, which proves that a network connects them
NEWS_OF_START = 5.0  # between two reports of how many of many ranks have started
HANDSHAKE = 15.0  # of two ranks over TCP; one may be loading libraries
NCCL_START = 180.0  # NCCL's own start between many hosts takes a minute
RENDEZVOUS_GRACE = 5.0  # extra time of ranks that wait for rank 0: it begins later than they do
WARM_LOAD = 300.0  # to load torch, before ranks are forked, from a slow file system
WARM_ADOPTION = 10.0  # until the agent is the parent of a rank that was forked

# ---- Failures: which rank is to blame ----

AFTER_FAILURE = 0.3  # for the last messages of other ranks, when the rank to blame is known
BEFORE_BLAMING = 3.0  # if it is not known yet: the rank that failed first may report last
VAIN_WAIT = 5.0  # in hvd.init(), for a rank that has ended before it
STOPPED_WAIT = 15.0  # in hvd.init(), for a rank that is stopped: it may be continued
HEARS_REASON = 0.1  # after an error, for its reason, which may be under way

# ---- Elastic jobs ----

ACCUSATION_GRACE = 2.0  # for an accused worker to show that it lives
DOUBTFUL_GRACE = 10.0  # the same if another has failed: a worker that follows that one looks silent too
LEAVE_GRACE = 10.0  # from the message that it is out until a worker is stopped
NEWCOMER_WINDOW = 10.0  # newcomers that are ready wait for others that start
NAMING_AFTER = 5.0  # survivors that are waited for are named
NOTIFY_AGAIN = 5.0  # one notification may be lost in a reset
LEAVE_AFTER_ERROR = 5.0  # with --elastic-restart: others of the generation notice the error by themselves
LEAVE_AFTER_CHANGE = 60.0  # and write a commit first if hosts have changed
SLOT_COOLDOWN = (5.0, 300.0)  # a killed worker is soon replaced; a slot that always fails is retried at times
FAILURE_WINDOW = 600.0  # failures of a host's workers add up within it: twice the longest cool-down
DISCOVERY_EVERY = 1.0  # between two runs of the discovery script, as Horovod's
DISCOVERY_SCRIPT = 30.0  # a script that takes longer hangs
DISCOVERY_SAY_AGAIN = 60.0  # between two complaints about it

# ---- The end ----

GRACE = 3.0  # from a signal to a rank's command until SIGKILL
WRAPPER_GRACE = GRACE + 1.2  # the same for its wrapper, which ends processes that the rank has left behind
JOB_END = WRAPPER_GRACE + 0.5  # for workers and agents, before a job is over without them
AGENTS_END = 2.0  # for agents' own end, when all workers have ended
AGENT_EXIT = 1.0  # for an agent's process, after its last message
LAST_WORDS = 1.0  # for a reader of the last output, when a signal has ended the job; for an agent's driver
ORPHANS_END = 0.5  # for processes that a rank has left behind, before each signal
FUNCTION_END = 15.0  # for a job of horovod.run, after an interrupt
TUNE_JOB, TUNE_JOB_END = 600.0, 20.0  # for a job of --tune-launch to report the time of a step, then to end
FAREWELL = 1.0  # for ranks to receive the farewell of another
TIMELINE_END = 10.0  # for operations under way, before a timeline is closed
GPU_SETTLES = 5.0  # for streams, before memory that they may use is returned
GPU_FAREWELL = 30.0  # for the work of a GPU: longer than any operation whose ranks all live
NCCL_END = 10.0  # for peers that are under way; lost peers never come
IDLE = 0.5  # between two rounds of an idle engine

CORE = (
    "BETWEEN_INSPECTIONS", "FAREWELL", "GPU_FAREWELL", "GPU_SETTLES", "HANDSHAKE", "HEARS_REASON", "IDLE",
    "NCCL_END", "NCCL_START", "PROCESS_LOOK", "RANK_BEAT", "STALL_LOOK", "TIMELINE_END",
)  # fmt: skip
