"""Typed face of the native core; implemented in horovod/native/bind.

dtypes are ints: uint8 0, int8 1, int16 2, int32 3, int64 4, float16 5, float32 6, float64 7, bool 8, bfloat16
9. Reduce ops are ints: Average 0, Sum 1, Adasum 2, Min 3, Max 4, Product 5. Addresses are ints and mean
contiguous memory that the caller keeps alive, of the CPU unless a GPU is named. Streams are cudaStream_t as
ints.
"""

from collections.abc import Sequence
from typing import Any

def version() -> str: ...

class Settings:
    """Every HOROVOD_* variable the core reads."""

    def __init__(self) -> None: ...
    @staticmethod
    def from_environment() -> Settings:
        """Defaults overridden by the environment; ValueError names a malformed variable and its value."""
    fusion_threshold: int
    cycle_time: float
    cache_capacity: int
    disable_group_fusion: bool
    allreduce_algorithm: str
    hierarchical_allreduce: bool
    torus_allreduce: bool
    deterministic: bool
    transport: str
    tcp_connections: int
    message_kb: int
    steps_under_way: int
    carriers: int
    tcp_timeout_seconds: float
    tcp_checksums: bool
    gpu_transport: str
    simd: str
    timeline: str
    timeline_mark_cycles: bool
    log_level: str
    log_hide_time: bool
    stall_check_disable: bool
    stall_check_time_seconds: float
    stall_shutdown_time_seconds: float
    thread_affinity: str
    mpi_threads_disable: bool
    elastic: bool
    stall_shutdown_asked_by: str

    @property
    def asks_for_mpi(self) -> bool:
        """Whether bytes shall go by MPI: only ranks that it has started can."""

    @property
    def asks_for_connections(self) -> bool:
        """Whether bytes shall go over the ranks' own connections, whoever has started them."""

    def do_without_mpi(self) -> None:
        """For ranks that no MPI has started: in its place come connections, and no shared memory."""

def build_digest() -> str: ...
def simd_level() -> str:
    """Instruction set in use: "baseline", "x86-64-v3" or "x86-64-v4"; HOROVOD_SIMD forces one."""

def simd_levels() -> list[str]:
    """Levels this machine can run; always includes "scalar" and "baseline"."""

class Codec:
    """A native compression format. The GIL is released while it works."""

    @property
    def name(self) -> str: ...
    @property
    def block_size(self) -> int: ...
    @property
    def is_stochastic(self) -> bool:
        """Whether encode() uses `key` and `first`."""

    @property
    def level(self) -> str: ...
    def encoded_bytes(self, count: int) -> int: ...
    def encode(
        self,
        source: int,
        dtype: int,
        count: int,
        destination: int,
        prescale: float = 1.0,
        key: int = 0,
        first: int = 0,
    ) -> int:
        """Returns how many finite values saturated; ValueError unless dtype is float16, bfloat16, float32
        or float64. Element i of a stochastic codec is rounded by number `first + i` of the stream `key`.
        """

    def decode(self, source: int, count: int, destination: int, dtype: int) -> None: ...
    def decode_add(self, source: int, count: int, accumulator: int) -> None:
        """accumulator (float32) += decoded values."""

    def decode_two(self, first: int, second: int, count: int, factor: float, destination: int) -> None:
        """(first + second) * factor, rounded to float32 after each operation; runs alike in length."""

class CodecFormat:
    """A row of horovod/native/codec/format_list.h; scale_bytes are of a block, 0 where there are none."""

    @property
    def format(self) -> str: ...
    @property
    def variant(self) -> str: ...
    @property
    def bits(self) -> int: ...
    @property
    def scale_bytes(self) -> int: ...
    @property
    def is_rotated(self) -> bool: ...
    @property
    def has_lloyd_levels(self) -> bool: ...

def codec_formats() -> list[CodecFormat]:
    """All of this build; the variants of a format stand together, the default first."""

def get_codec(
    name: str,
    block_size: int = 0,
    *,
    variant: str = "",
    rounding: str = "nearest",
    rotation: str = "none",
    levels: str = "uniform",
    seed: int = 0,
    level: str = "",
) -> Codec:
    """ "bit16", "bit8" (`variant` e4m3, e5m2, e3m4), "int8" or "int4" (`rotation` none, hadamard; `levels`
    uniform, lloyd); ValueError for what does not exist and for an option that the format has not.
    """

def codec_named(name: str, *, level: str = "") -> Codec:
    """The codec whose `name` this is, options included; ValueError if there is none."""

class LinkCosts:
    """What moving bytes costs, in seconds; without measurement, that of today's memory and 10 Gbit/s."""

    def __init__(self) -> None: ...
    memory_latency: float
    memory_byte: float
    network_latency: float
    network_byte: float

    def __repr__(self) -> str: ...

class GpuCosts:
    def __init__(self) -> None: ...
    kernel_byte: float
    local_latency: float
    local_byte: float
    network_latency: float
    network_byte: float

    def __repr__(self) -> str: ...

class PlanFacts:
    """What the plan of an allreduce depends on; the default is one rank."""

    def __init__(self) -> None: ...
    @staticmethod
    def of_world(world: World) -> PlanFacts:
        """Where a world's ranks are, and what memory they share. What is of tensors has its default."""

    def has_routes(self, algorithm: str) -> bool:
        """Whether there is a route of each algorithm that a value of HOROVOD_ALLREDUCE_ALGORITHM names."""
    ranks: int
    hosts: int
    most_on_a_host: int
    carriers: int
    shares_memory: bool
    has_host_windows: bool
    is_encoded: bool
    sums_can_travel: bool
    bytes: int
    wire_bytes: int
    dtype: int
    op: int
    on_gpu: bool
    has_nccl: bool
    why_no_nccl: str

class Plan:
    """How an allreduce is carried out. `estimates`: (route, seconds) of those that were to choose from."""

    @property
    def route(self) -> str: ...
    @property
    def pattern(self) -> str: ...
    @property
    def levels(self) -> str: ...
    @property
    def carrier(self) -> str: ...
    @property
    def is_encoded(self) -> bool: ...
    @property
    def estimates(self) -> list[tuple[str, float]]: ...
    @property
    def reason(self) -> str: ...
    def __repr__(self) -> str: ...

def plan_allreduce(
    facts: PlanFacts,
    algorithm: str = "auto",
    deterministic: bool = False,
    costs: LinkCosts = ...,
    gpu_costs: GpuCosts = ...,
) -> Plan:
    """The plan that all ranks of these facts come to; ValueError for an unknown algorithm."""

def allreduce_patterns() -> dict[str, str]: ...
def carriers_of(hosts: Sequence[Sequence[int]]) -> int:
    """How many ranks of each host exchange with other hosts on a hierarchy. `hosts`: the ranks of each."""

class GpuFacts:
    """What this process sees of GPUs. Where there is none, or no NCCL, a sentence says why."""

    @property
    def count(self) -> int: ...
    @property
    def why_none(self) -> str: ...
    @property
    def names(self) -> list[str]: ...
    @property
    def identities(self) -> list[str]:
        """The same in every process of the machine, and no other GPU's."""

    @property
    def nccl_version(self) -> int:
        """NCCL's version code, 22809 for 2.28.9; 0: none."""

    @property
    def why_no_nccl(self) -> str: ...

def gpu_facts() -> GpuFacts:
    """Opens the CUDA library, and makes a context on each GPU."""

def nccl_version() -> int:
    """As in GpuFacts; ValueError if there is no CUDA library or no GPU."""

def use_device_library(path: str) -> None:
    """Tests: the CUDA library to open instead of the one of this package. Before it is opened."""

def device_library_is_installed() -> bool:
    """Whether this package was built with CUDA, or use_device_library() named a library that is there."""

RESIDUAL_BOUND: tuple[float, float, float]
"""Of the usual residual: what is kept at most; what is usual after an operation that lost more; or less."""

class Feedback:
    """What quantisation has lost of one parameter's gradients: error feedback.

    Leave it alone during operations.

    Stages: "sent", of this rank's contribution, in units of the tensor times prescale; "result", of the slice
    of the result that this rank owns, in units of the result.
    """

    def __init__(self, count: int) -> None: ...
    @property
    def count(self) -> int: ...
    @property
    def nbytes(self) -> int:
        """Memory in use: 4 for each element of each stage's interval."""
    uses: int
    """Operations with a stochastic codec that it took part in: which random numbers come next."""
    usual: list[float]
    """The magnitude of the largest residuals of late: sent, result, and of sums of a host; 0: unknown.

    Residuals beyond RESIDUAL_BOUND[0] times that are not kept.
    """

    def read(self, stage: str) -> tuple[int, Any]:
        """(first element, a copy of the residuals of it and those after it: __dlpack__, float32, 1-D)."""

    def restore(self, stage: str, begin: int, values: Any) -> None:
        """values: float32, 1-D, contiguous, in CPU memory. ValueError if they do not fit."""

    def scale(self, factor: float) -> None:
        """Residuals times a finite factor."""

    def clear(self) -> None: ...

class World:
    """This process' place in the job, and its transport."""

    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def local_rank(self) -> int: ...
    @property
    def local_size(self) -> int: ...
    @property
    def cross_rank(self) -> int: ...
    @property
    def cross_size(self) -> int: ...
    @property
    def homogeneous(self) -> bool: ...
    def abandon(self) -> None:
        """Tells the other ranks that this one cannot go on."""

    def leave_to_parent(self) -> None: ...
    @property
    def links(self) -> LinkCosts:
        """What moving bytes costs here, as measured by open_world(); the same on all ranks."""

    @property
    def transport(self) -> str:
        """For people, and for keys of what was found in such a world."""

    @property
    def has_connections(self) -> bool:
        """Whether data may go over several connections to each rank."""

    @property
    def mpi_library(self) -> str: ...
    @property
    def mpi_threads_multiple(self) -> bool: ...

def open_world(
    settings: Settings, libmpi: str, launched_size: int, evidence: str, ranks: Sequence[int] = []
) -> World:
    """Joins the job this process was started in; ValueError when start-up fails.

    ``libmpi`` is the path of the MPI library to load, as horovod.common.mpi_here finds it; empty: the one
    that the build recorded. ``launched_size`` and ``evidence`` are those of
    horovod.common.launched.Launch. ``ranks`` are those of the launched ones that form the job; none: all.
    """

def close_mpi() -> None:
    """MPI_Finalize if this module initialised MPI; call at exit; harmless otherwise."""

def close_mpi_at_exit() -> None: ...
def local_worlds(size: int, shares_memory: bool = True, hosts: Sequence[int] = []) -> list[World]:
    """`size` ranks that are threads of this process, for tests."""

class TcpListener:
    def __init__(self, addresses: Sequence[str], first_port: int = 0, last_port: int = 0) -> None: ...
    @property
    def endpoints(self) -> list[str]: ...

def open_world_over_tcp(
    settings: Settings,
    listener: TcpListener,
    rank: int,
    hosts: Sequence[str],
    names: Sequence[str],
    endpoints: Sequence[Sequence[str]],
    secret: bytes,
) -> World: ...

class MpiMeeting:
    def __init__(
        self, settings: Settings, libmpi: str, launched_size: int, evidence: str, ranks: Sequence[int] = []
    ) -> None: ...
    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    def gather(self, value: bytes) -> list[bytes]: ...

class Tensor:
    """Where a request reads and writes. Destination 0: the core allocates the output.

    ``feedback``, for an allreduce of floats with a codec, has as many elements as the tensor, and one
    operation at a time. ``device`` is the number of the GPU whose memory it is in, or -1; the operation
    begins when ``stream``, the caller's on that GPU, has done what it was given before the submission.
    ``witness`` is the address of a word that stays as it is as long as the memory is the tensor's: if it
    changes before the operation is done, that fails.
    """

    def __init__(
        self,
        source: int,
        destination: int,
        shape: Sequence[int],
        dtype: int,
        feedback: Feedback | None = None,
        device: int = -1,
        stream: int = 0,
        witness: int = 0,
    ) -> None: ...

class Reduction:
    def __init__(
        self, op: int = 1, prescale: float = 1.0, postscale: float = 1.0, codec: Codec | None = None
    ) -> None: ...

class Result:
    """What wait() returns."""

    @property
    def sizes(self) -> list[int]:
        """allgather: first dimensions, tensor by tensor and in that by rank; alltoall: rows received by rank;
        join: [last rank]; add_process_set: [id]; else empty.
        """

    @property
    def nbytes(self) -> int: ...
    @property
    def is_completed(self) -> bool: ...
    def buffer(self) -> Any:
        """allgather, alltoall: the bytes received, tensor by tensor at multiples of 16, owned by the core
        (object with
        __dlpack__: uint8, 1-D). ValueError for an operation on a GPU.
        """

    def order(self, stream: int) -> None:
        """Has the stream go on only when the operation is done on the GPU; nothing for one of CPU memory."""

    def copy_to(self, offset: int, address: int, nbytes: int, stream: int) -> None:
        """Some of the bytes received on a GPU, to GPU or pinned memory; the stream does it, after that.

        ValueError for what is not there.
        """

class Engine:
    """One background thread that negotiates and runs collectives.

    Submissions return a handle. They raise ValueError for what is wrong on this rank alone: no such process
    set, a rank outside it, a name in flight, or arguments that the operation cannot have.
    """

    def __init__(
        self, world: World, settings: Settings, start_thread: bool = True, in_order: bool = False
    ) -> None: ...
    @property
    def has_failed(self) -> bool:
        """Whether the engine stopped because something failed, here or on another rank."""

    def step(self, elapsed_ms: float = 0.0) -> bool:
        """Tests: one round after `elapsed_ms` of a clock that only steps move; needs start_thread=False."""

    def counters(self, process_set: int = 0) -> dict[str, int]: ...
    def cpu_microseconds(self) -> int:
        """Processor time of the engine's thread; 0 without one."""

    def shutdown(self) -> None: ...
    def memory(self, nbytes: int) -> Any:
        """For a result, as bytes that DLPack gives to others; used again when nobody has them any more.

        None where they are so few that any other memory will do.
        """

    @property
    def idle_bytes(self) -> int:
        """What is kept of such memory for the next result."""

    @property
    def has_ended(self) -> bool:
        """Whether the engine accepts nothing any more: it failed, or a rank has left."""

    def allreduce(
        self,
        name: str,
        tensors: Sequence[Tensor],
        reduction: Reduction,
        process_set: int = 0,
        follows: bool = False,
    ) -> int: ...
    def reducescatter(
        self, name: str, tensors: Sequence[Tensor], reduction: Reduction, process_set: int = 0
    ) -> int:
        """Destinations hold this rank's rows: the first ``rows % size`` ranks have one more."""

    def allgather(self, name: str, tensors: Sequence[Tensor], process_set: int = 0) -> int: ...
    def broadcast(self, name: str, tensor: Tensor, root: int, process_set: int = 0) -> int:
        """root is its number in the job."""

    def alltoall(self, name: str, tensor: Tensor, splits: Sequence[int], process_set: int = 0) -> int:
        """Rows for each rank of the set; no splits: equally many."""

    def barrier(self, name: str, process_set: int = 0) -> int: ...
    def tune(self, name: str, settings: str) -> int: ...
    @property
    def tuned(self) -> str: ...
    def join(self) -> int: ...
    def missing(
        self,
        name: str,
        gradients: Sequence[str],
        has_part: Sequence[bool],
        process_set: int = 0,
        ends: bool = False,
        anchor: str = "",
    ) -> int: ...
    def note_pass(self, is_in_pass: bool) -> None: ...
    def hold(self) -> None: ...
    def let_go(self) -> None: ...
    def poll(self, handle: int) -> bool:
        """Whether it is done, on a GPU too; ValueError on an unknown handle."""

    def has_result(self, handle: int) -> bool:
        """Whether wait() would return at once; ValueError on an unknown handle."""

    def wait(self, handle: int) -> Result:
        """Sleeps until done, or given to the GPU in full, then forgets the handle.

        Raises HorovodInternalError, or ValueError on an unknown handle.
        """

    def has_result_within(self, handle: int, seconds: float) -> bool: ...
    def wait_or_yield(self, handle: int) -> bool:
        """Sleeps until has_result(), and returns True.

        Or returns False, as that would never come: a rank that has not asked for the operation waits, through
        others perhaps, for this caller. ValueError on an unknown handle.
        """

    def must_yield(self, handle: int) -> bool:
        """Whether wait_or_yield() would return False; true once for each time."""

    def note_blocked(self, handle: int, may_yield: bool) -> None:
        """Says that a caller which looks at has_result() now and then does nothing else until it is true.

        Or, if it `may_yield`, until must_yield() is.
        """

    def add_process_set(self, ranks: Sequence[int]) -> int:
        """All ranks of the job make the call. ranks ascend."""

    def remove_process_set(self, process_set: int) -> int:
        """All ranks of the job make the call."""

    def process_sets(self) -> dict[int, list[int]]:
        """Ranks by id."""

    def start_timeline(self, path: str, mark_cycles: bool = False, continues: bool = False) -> None:
        """Rank 0 writes it. ValueError unless HOROVOD_TIMELINE was set, or when the file cannot be
        written.
        """

    def note_span(self, name: str, begin: float, seconds: float, arguments: str = "{}") -> None: ...
    def stop_timeline(self) -> None:
        """When it has been told of what the GPU is still doing."""

class DeviceMemory:
    """Of a GPU, or pinned memory of the host; freed with the object, when nothing uses it any more."""

    @property
    def address(self) -> int: ...
    @property
    def nbytes(self) -> int: ...

class DeviceEvent:
    """A place in a stream."""

    pass

class Device:
    """A GPU by itself, without an engine: for benchmarks and tests. Streams are cudaStream_t as ints.

    Raises ValueError where there is no such GPU, or where the package or the machine serves none.
    """

    def __init__(self, index: int) -> None: ...
    @property
    def index(self) -> int: ...
    @property
    def identity(self) -> str: ...
    @property
    def name(self) -> str: ...
    def make_stream(self, is_urgent: bool = False) -> int: ...
    def allocate(self, nbytes: int) -> DeviceMemory: ...
    def allocate_pinned(self, nbytes: int) -> DeviceMemory: ...
    def copy(self, stream: int, to: int, source: int, nbytes: int) -> None: ...
    def record(self, stream: int) -> DeviceEvent: ...
    def synchronize(self, event: DeviceEvent) -> None: ...
    def milliseconds_between(self, begin: DeviceEvent, end: DeviceEvent) -> float: ...
    def encode(
        self, stream: int, codec: str, dtype: int, pieces: DevicePieces, message: int, prescale: float = 1.0
    ) -> None: ...
    def decode(self, stream: int, codec: str, dtype: int, pieces: DevicePieces, message: int) -> None: ...
    def reduce(self, stream: int, pieces: DevicePieces, sum: DeviceSum) -> None: ...
    def take_saturated(self) -> int:
        """Finite values that a codec's range cut off since the last call."""

class DevicePiece:
    """A whole tensor for kernels: addresses of the GPU's memory, 0 for those that a kernel does not use.

    ``residual``: float32, what encoding has lost. ``key`` and ``first_number``: random numbers of a
    stochastic codec.
    """

    def __init__(
        self,
        source: int = 0,
        destination: int = 0,
        count: int = 0,
        residual: int = 0,
        key: int = 0,
        first_number: int = 0,
    ) -> None: ...

class DevicePieces:
    """Tensors that make one message, each in runs of 4096 elements.

    ``codec``: a Codec's name, or "" for elements as they are.
    """

    def __init__(
        self, device: Device, stream: int, codec: str, dtype: int, pieces: Sequence[DevicePiece]
    ) -> None: ...
    @property
    def message_bytes(self) -> int: ...

class DeviceSum:
    """What ``Device.reduce`` does with the messages of all ranks, in their order.

    The sum over ``divisor`` goes to the destinations, or to a message at ``result``, or to both.
    """

    def __init__(
        self,
        dtype: int,
        codec: str,
        result_codec: str,
        messages: Sequence[int],
        to_destination: bool = False,
        result: int = 0,
        divisor: float = 1.0,
    ) -> None: ...
