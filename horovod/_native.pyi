"""Typed interface of the native core, implemented in horovod/native/bind.

dtypes are ints: uint8 0, int8 1, int16 2, int32 3, int64 4, float16 5, float32 6, float64 7, bool 8, bfloat16
9. Reduce ops are ints: Average 0, Sum 1, Adasum 2, Min 3, Max 4, Product 5. Addresses are ints. They mean
contiguous memory that the caller keeps alive, CPU memory unless a GPU is named. Streams are cudaStream_t as
ints.
"""

from collections.abc import Sequence
from typing import Any

def version() -> str: ...

class Settings:
    """The HOROVOD_* variables that the core reads."""

    def __init__(self) -> None: ...
    @staticmethod
    def from_environment() -> Settings:
        """Defaults overridden by the environment. ValueError names a malformed variable and its value."""
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
        """Whether HOROVOD_TRANSPORT requests MPI, which requires ranks started by MPI."""

    @property
    def asks_for_connections(self) -> bool:
        """Whether HOROVOD_TRANSPORT requests TCP connections, which any ranks can use."""

    def do_without_mpi(self) -> None:
        """Replaces a request for MPI by one for TCP without shared memory, for ranks not started by MPI."""

def build_digest() -> str: ...
def simd_level() -> str:
    """The instruction set in use: "baseline", "x86-64-v3" or "x86-64-v4". HOROVOD_SIMD forces one."""

def simd_levels() -> list[str]:
    """The levels that this machine can run; always includes "scalar" and "baseline"."""

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
        """Returns the number of finite values that saturated.

        A stochastic codec rounds element i by number `first + i` of the stream `key`. ValueError unless dtype
        is float16, bfloat16, float32 or float64.
        """

    def decode(self, source: int, count: int, destination: int, dtype: int) -> None: ...
    def decode_add(self, source: int, count: int, accumulator: int) -> None:
        """accumulator (float32) += decoded values."""

    def decode_two(self, first: int, second: int, count: int, factor: float, destination: int) -> None:
        """(first + second) * factor of two runs of `count`, rounded to float32 after each operation."""

class CodecFormat:
    """A row of horovod/native/codec/format_list.h. scale_bytes are per block, 0 if blocks have no scale."""

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
    """All formats of this build; the variants of a format are adjacent, the default first."""

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
    """The codec "bit16", "bit8" (`variant` e4m3, e5m2, e3m4), "int8" or "int4" (`rotation` none, hadamard;
    `levels` uniform, lloyd). ValueError for an unknown name and for an option that the format lacks.
    """

def codec_named(name: str, *, level: str = "") -> Codec:
    """The codec with this `Codec.name`, which includes its options; ValueError if there is none."""

class LinkCosts:
    """Costs of moving bytes, in seconds. The defaults are typical memory and a network of 10 Gbit/s."""

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
    """The facts on which the plan of an allreduce depends; the default is one rank."""

    def __init__(self) -> None: ...
    @staticmethod
    def of_world(world: World) -> PlanFacts:
        """The facts of a world: its ranks, hosts and shared memory. Those of tensors have their defaults."""

    def has_routes(self, algorithm: str) -> bool:
        """Whether each algorithm in a value of HOROVOD_ALLREDUCE_ALGORITHM has a route."""
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
    """The chosen route of an allreduce. `estimates`: (route, seconds) of all candidates."""

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
    """The plan that all ranks with these facts choose; ValueError for an unknown algorithm."""

def allreduce_patterns() -> dict[str, str]: ...
def carriers_of(hosts: Sequence[Sequence[int]]) -> int:
    """The number of carriers on each host, on a hierarchical route. `hosts`: the ranks of each host."""

class GpuFacts:
    """The GPUs and the NCCL that this process can use. `why_none` and `why_no_nccl` are reasons, or ""."""

    @property
    def count(self) -> int: ...
    @property
    def why_none(self) -> str: ...
    @property
    def names(self) -> list[str]: ...
    @property
    def identities(self) -> list[str]:
        """Unique to each GPU, and the same in every process of the machine."""

    @property
    def nccl_version(self) -> int:
        """NCCL's version code, 22809 for 2.28.9; 0: no NCCL."""

    @property
    def why_no_nccl(self) -> str: ...

def gpu_facts() -> GpuFacts:
    """Opens the CUDA library and makes a context on each GPU."""

def nccl_version() -> int:
    """As in GpuFacts; ValueError if the CUDA library does not exist or does not work."""

def use_device_library(path: str) -> None:
    """For tests: sets the CUDA library to open instead of this package's, before it is opened."""

def device_library_is_installed() -> bool:
    """Whether this package's CUDA library exists, or the library given to use_device_library()."""

RESIDUAL_BOUND: tuple[float, float, float]
"""Factors of the usual residual: the most that is kept; its fastest rise and fall in an operation."""

class Feedback:
    """Error feedback: the residuals of quantising one parameter's gradients.

    Do not use it during an operation of that parameter.

    Stages: "sent", of this rank's contribution, in units of the tensor times prescale; "result", of the slice
    of the result that this rank owns, in units of the result.
    """

    def __init__(self, count: int) -> None: ...
    @property
    def count(self) -> int: ...
    @property
    def nbytes(self) -> int:
        """Memory in use: 4 bytes for each element of each stage's interval."""
    uses: int
    """The number of operations with a stochastic codec, which determines the next random numbers."""
    usual: list[float]
    """The recent largest magnitudes of residuals: sent, result, sums of a host; 0: unknown.

    Residuals beyond RESIDUAL_BOUND[0] times these are dropped.
    """

    def read(self, stage: str) -> tuple[int, Any]:
        """(first element, a copy of the residuals from that element on: __dlpack__, float32, 1-D)."""

    def restore(self, stage: str, begin: int, values: Any) -> None:
        """values: float32, 1-D, contiguous, in CPU memory. ValueError if they do not fit."""

    def scale(self, factor: float) -> None:
        """Multiplies the residuals by a finite factor."""

    def clear(self) -> None: ...

class World:
    """A job's ranks with the transport between them, on this rank."""

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
        """Reports to the other ranks that this one cannot go on."""

    def leave_to_parent(self) -> None: ...
    @property
    def links(self) -> LinkCosts:
        """The costs that open_world() measured; the same on all ranks."""

    @property
    def transport(self) -> str:
        """A name for users, and for keys of the autotuner's results in such a world."""

    @property
    def has_connections(self) -> bool:
        """Whether data can use several connections to each rank."""

    @property
    def mpi_library(self) -> str: ...
    @property
    def mpi_threads_multiple(self) -> bool: ...

def open_world(
    settings: Settings, libmpi: str, launched_size: int, evidence: str, ranks: Sequence[int] = []
) -> World:
    """Joins the job that started this process; ValueError if start-up fails.

    ``libmpi``: path of the MPI library (horovod.common.mpi_here); empty: the build's. ``launched_size`` and
    ``evidence``: see horovod.common.launched.Launch. ``ranks``: the launched ranks that form the job; empty:
    all.
    """

def close_mpi() -> None:
    """Calls MPI_Finalize if this module initialised MPI, else does nothing. Call it at exit."""

def close_mpi_at_exit() -> None: ...
def local_worlds(size: int, shares_memory: bool = True, hosts: Sequence[int] = []) -> list[World]:
    """For tests: worlds of `size` ranks that are threads of this process."""

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
    """The memory of a tensor in an operation. Destination 0: the core allocates the output.

    ``feedback``, for an allreduce of floats with a codec, has as many elements as the tensor; one operation
    at a time uses it. ``device``: the GPU's number, or -1 for CPU memory. The operation waits for the earlier
    work of ``stream``, the caller's on that GPU. ``witness``: the address of a word that changes when the
    tensor's memory does; the operation fails if it changes before the end.
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
    """The result of an operation, as wait() returns it."""

    @property
    def sizes(self) -> list[int]:
        """allgather: first dimensions, by tensor, then by rank; alltoall: received rows by rank; join: [last
        rank]; add_process_set: [id]; missing: decisions, by name; else empty.
        """

    @property
    def nbytes(self) -> int: ...
    @property
    def is_completed(self) -> bool: ...
    def buffer(self) -> Any:
        """The received bytes of an allgather or alltoall: an object with __dlpack__ (uint8, 1-D).

        Each tensor starts at a multiple of 16 bytes. The core owns the memory. ValueError for an operation on
        a GPU.
        """

    def order(self, stream: int) -> None:
        """Makes the stream wait until the operation is done on the GPU. Does nothing for CPU memory."""

    def copy_to(self, offset: int, address: int, nbytes: int, stream: int) -> None:
        """Enqueues a copy of received bytes to GPU or pinned memory.

        ValueError if the result is in CPU memory or too short.
        """

class Engine:
    """A background thread that negotiates and runs collectives.

    Submissions return a handle. They raise ValueError for errors on this rank alone: an unknown process set,
    a rank that is not in it, a name in flight, or invalid arguments.
    """

    def __init__(
        self, world: World, settings: Settings, start_thread: bool = True, in_order: bool = False
    ) -> None: ...
    @property
    def has_failed(self) -> bool:
        """Whether the engine stopped because of a failure, on this or another rank."""

    def step(self, elapsed_ms: float = 0.0) -> bool:
        """For tests, with start_thread=False: advances the clock and does one round; True on progress."""

    def counters(self, process_set: int = 0) -> dict[str, int]: ...
    def cpu_microseconds(self) -> int:
        """Processor time of the engine's thread; 0 without one."""

    def shutdown(self) -> None: ...
    def add_process_set(self, ranks: Sequence[int]) -> int:
        """All ranks of the job must make the call. ranks ascend."""

    def remove_process_set(self, process_set: int) -> int:
        """All ranks of the job must make the call."""

    def process_sets(self) -> dict[int, list[int]]:
        """Ranks by id."""

    def memory(self, nbytes: int) -> Any:
        """Memory for a result: an object with __dlpack__ (uint8, 1-D), used again after its last reference.

        None for sizes below 1 MiB, for which other memory is as fast.
        """

    @property
    def idle_bytes(self) -> int:
        """The bytes of such memory that are kept for further results."""

    @property
    def has_ended(self) -> bool:
        """Whether the engine accepts no more submissions, since it failed or a rank has left."""

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
        """Destinations hold this rank's rows. The first ``rows % size`` ranks have one row more."""

    def allgather(self, name: str, tensors: Sequence[Tensor], process_set: int = 0) -> int: ...
    def broadcast(self, name: str, tensor: Tensor, root: int, process_set: int = 0) -> int:
        """root is a rank in the job."""

    def alltoall(self, name: str, tensor: Tensor, splits: Sequence[int], process_set: int = 0) -> int:
        """splits: rows for each rank of the set; empty: equal numbers."""

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
        """Whether the operation is done, also on the GPU; ValueError for an unknown handle."""

    def has_result(self, handle: int) -> bool:
        """Whether wait() would return at once; ValueError for an unknown handle."""

    def wait(self, handle: int) -> Result:
        """Sleeps until the operation is done, or enqueued on the GPU, then forgets the handle.

        Raises HorovodInternalError if it failed, ValueError for an unknown handle.
        """

    def has_result_within(self, handle: int, seconds: float) -> bool: ...
    def wait_or_yield(self, handle: int) -> bool:
        """Sleeps until has_result() and returns True, or returns False to break a deadlock of ranks.

        ValueError for an unknown handle.
        """

    def must_yield(self, handle: int) -> bool:
        """Whether wait_or_yield() would return False; True once for each deadlock."""

    def note_blocked(self, handle: int, may_yield: bool) -> None:
        """Reports a caller that only polls has_result() and, if it `may_yield`, must_yield()."""

    def start_timeline(self, path: str, mark_cycles: bool = False, continues: bool = False) -> None:
        """Rank 0 writes the file. ValueError if that fails, or HOROVOD_TIMELINE was not set."""

    def note_span(self, name: str, begin: float, seconds: float, arguments: str = "{}") -> None: ...
    def stop_timeline(self) -> None:
        """Waits until the timeline has the GPU's work, for 10 s at most, and ends the file."""

class DeviceMemory:
    """GPU memory, or pinned host memory. Freed with the object, after the work that uses it."""

    @property
    def address(self) -> int: ...
    @property
    def nbytes(self) -> int: ...

class DeviceEvent:
    """A place in a stream."""

    pass

class Device:
    """A GPU without an engine, for benchmarks and tests.

    Raises ValueError if there is no such GPU, or the package or the machine does not support GPUs.
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
        """The number of finite values that saturated since the last call."""

class DevicePiece:
    """A whole tensor for kernels. Addresses are in GPU memory, or 0 if a kernel does not use them.

    ``residual``: float32, the error of encoding. ``key`` and ``first_number``: random numbers of a stochastic
    codec.
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
    """The tensors of a message, each in runs of 4096 elements.

    ``codec``: a Codec's name, or "" for plain elements.
    """

    def __init__(
        self, device: Device, stream: int, codec: str, dtype: int, pieces: Sequence[DevicePiece]
    ) -> None: ...
    @property
    def message_bytes(self) -> int: ...

class DeviceSum:
    """The arguments of ``Device.reduce``, which sums the messages of all ranks in their order.

    It writes the sum divided by ``divisor`` to the destinations, to a message at ``result``, or to both.
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
