"""Typed face of the native core; implemented in horovod/native/bind.

dtypes are ints: uint8 0, int8 1, int16 2, int32 3, int64 4, float16 5, float32 6, float64 7, bool 8, bfloat16
9. Reduce ops are ints: Average 0, Sum 1, Adasum 2, Min 3, Max 4, Product 5. Addresses are ints and always
mean contiguous CPU memory that the caller keeps alive.
"""

from typing import Any

def version() -> str: ...
def simd_level() -> str:
    """Instruction set in use: "baseline", "x86-64-v3" or "x86-64-v4"; HOROVOD_SIMD forces one."""

def simd_levels() -> list[str]:
    """Levels this machine can run; always includes "scalar" and "baseline"."""

def settings_table() -> list[tuple[str, str, str, str]]:
    """(HOROVOD_ name, "int" | "float" | "bool" | "string", default as text, help) of every setting."""

class Settings:
    """Every HOROVOD_* variable the core reads."""

    fusion_threshold: int
    cycle_time: float
    cache_capacity: int
    disable_group_fusion: bool
    transport: str
    simd: str
    timeline: str
    timeline_mark_cycles: bool
    stall_check_disable: bool
    stall_check_time_seconds: float
    stall_shutdown_time_seconds: float
    thread_affinity: str
    mpi_threads_disable: bool
    allreduce_algorithm: str
    deterministic: bool
    log_level: str
    log_hide_time: bool

    def __init__(self) -> None: ...
    @staticmethod
    def from_environment() -> Settings:
        """Defaults overridden by the environment; ValueError names a malformed variable and its value."""

class Codec:
    """A native compression format. The GIL is released while it works."""

    @property
    def name(self) -> str: ...
    @property
    def block_size(self) -> int: ...
    @property
    def level(self) -> str: ...
    @property
    def is_stochastic(self) -> bool:
        """Whether encode() uses `key` and `first`."""

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

    memory_latency: float
    memory_byte: float
    network_latency: float
    network_byte: float

class RouteFacts:
    """What the route of an allreduce depends on; the default is one rank."""

    ranks: int
    hosts: int
    most_on_a_host: int
    carriers: int
    shares_memory: bool
    has_host_windows: bool
    is_encoded: bool
    bytes: int
    wire_bytes: int

def choose_route(
    facts: RouteFacts, algorithm: str = "auto", deterministic: bool = False, costs: LinkCosts = ...
) -> tuple[str, bool, str]:
    """The route's name, whether the codec is used, and why; ValueError for an unknown algorithm."""

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
    @property
    def links(self) -> LinkCosts:
        """What moving bytes costs here, as measured by open_world(); the same on all ranks."""
    @property
    def transport(self) -> str: ...
    @property
    def mpi_threads_multiple(self) -> bool: ...
    @property
    def mpi_library(self) -> str: ...
    def abandon(self) -> None:
        """Tells the other ranks that this one cannot go on."""

def open_world(settings: Settings, prefix: str, ranks: list[int] = ...) -> World:
    """Joins the job this process was started in; ValueError when start-up fails.

    libmpi is searched in prefix first. ``ranks`` are those of the launched ones that form the job; none: all.
    """

def close_mpi() -> None:
    """MPI_Finalize if this module initialised MPI; call at exit; harmless otherwise."""

def local_worlds(size: int, shares_memory: bool = True, hosts: list[int] = ...) -> list[World]:
    """`size` ranks that are threads of this process, for tests."""

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

    def read(self, stage: str) -> tuple[int, Any]:
        """(first element, a copy of the residuals of it and those after it: __dlpack__, float32, 1-D)."""

    def restore(self, stage: str, begin: int, values: Any) -> None:
        """values: float32, 1-D, contiguous, in CPU memory. ValueError if they do not fit."""

    def scale(self, factor: float) -> None:
        """Residuals times a finite factor."""

    def clear(self) -> None: ...

class Tensor:
    """Where a request reads and writes. Destination 0: the core allocates the output.

    ``feedback``, for an allreduce of floats with a codec, has as many elements as the tensor, and one
    operation at a time.
    """

    def __init__(
        self,
        source: int,
        destination: int,
        shape: list[int],
        dtype: int,
        feedback: Feedback | None = None,
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
    def buffer(self) -> Any:
        """allgather, alltoall: the bytes received, tensor by tensor at multiples of 16, owned by the core
        (object with
        __dlpack__: uint8, 1-D).
        """

class Engine:
    """One background thread that negotiates and runs collectives.

    Submissions return a handle. They raise ValueError for what is wrong on this rank alone: no such process
    set, a rank outside it, a name in flight, or arguments that the operation cannot have.
    """

    def __init__(self, world: World, settings: Settings, start_thread: bool = True) -> None: ...
    def allreduce(
        self, name: str, tensors: list[Tensor], reduction: Reduction, process_set: int = 0
    ) -> int: ...
    def reducescatter(
        self, name: str, tensors: list[Tensor], reduction: Reduction, process_set: int = 0
    ) -> int:
        """Destinations hold this rank's rows: the first ``rows % size`` ranks have one more."""

    def allgather(self, name: str, tensors: list[Tensor], process_set: int = 0) -> int: ...
    def broadcast(self, name: str, tensor: Tensor, root: int, process_set: int = 0) -> int:
        """root is its number in the job."""

    def alltoall(self, name: str, tensor: Tensor, splits: list[int], process_set: int = 0) -> int:
        """Rows for each rank of the set; no splits: equally many."""

    def barrier(self, name: str, process_set: int = 0) -> int: ...
    def join(self) -> int: ...
    def add_process_set(self, ranks: list[int]) -> int:
        """All ranks of the job make the call. ranks ascend."""

    def remove_process_set(self, process_set: int) -> int:
        """All ranks of the job make the call."""

    def process_sets(self) -> dict[int, list[int]]:
        """Ranks by id."""

    def poll(self, handle: int) -> bool:
        """ValueError on an unknown handle."""

    def wait(self, handle: int) -> Result:
        """Sleeps until done, then forgets the handle.

        Raises HorovodInternalError, or ValueError on an unknown handle.
        """

    def step(self, elapsed_ms: float = 0.0) -> bool:
        """Tests: one round after `elapsed_ms` of a clock that only steps move; needs start_thread=False."""

    def counters(self, process_set: int = 0) -> dict[str, int]: ...
    def cpu_microseconds(self) -> int:
        """Processor time of the engine's thread; 0 without one."""

    def start_timeline(self, path: str, mark_cycles: bool = False) -> None:
        """Rank 0 writes it. ValueError unless HOROVOD_TIMELINE was set, or when the file cannot be
        written.
        """

    def stop_timeline(self) -> None: ...
    @property
    def has_failed(self) -> bool:
        """Whether the engine stopped because something failed, here or on another rank."""

    def shutdown(self) -> None: ...
