"""Layouts and settings of ranks with which random programs use every pattern of allreduce."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st
from programs import CODECS, Memory, Program, Run, programs
from ranks import SUM, on_ranks, predictable

from horovod import _native
from horovod.common.options import BY_VARIABLE

# Whether ranks of a host share memory, and the number of hosts.
LAYOUTS = {
    "one host": (True, 1),
    "messages only": (False, 1),
    "two hosts": (True, 2),
    "two hosts, messages only": (False, 2),
    "three hosts": (True, 3),
}
ANYWHERE = tuple(LAYOUTS)
BY_MESSAGES = ANYWHERE[1:]
ALGORITHMS = BY_VARIABLE["HOROVOD_ALLREDUCE_ALGORITHM"].choices


@dataclass(frozen=True)
class Way:
    """``pattern``: the pattern of an allreduce of all ranks, or "" for the fastest by estimate."""

    pattern: str
    algorithms: Sequence[str]
    layouts: Sequence[str] = ANYWHERE
    gpu_transport: str = ""  # if set, tensors are on GPUs, else in CPU memory
    has_codes: bool | None = None  # None: with or without a codec
    is_deterministic: bool = True
    dtype: str = "float32"
    ranks: int = 2  # minimum

    def places(self, size: int) -> list[str]:
        """Layouts in which `size` ranks have this way; a hierarchy needs ranks that share a host."""
        if size < self.ranks:
            return []
        needs_company = "hierarchical" in self.pattern
        return [name for name in self.layouts if size > LAYOUTS[name][1] or not needs_company]


HIERARCHIES = ("two hosts", "three hosts")
WAYS = (
    Way("window gather", ["gather"], ["one host"]),
    Way("window scatter", ["scatter"], ["one host"]),
    Way("exchange gather", ["gather"], BY_MESSAGES),
    Way("exchange scatter", ["scatter"], BY_MESSAGES),
    Way("exchange ring", ["ring"], BY_MESSAGES, has_codes=False, ranks=3),
    Way("hierarchical gather", ["hierarchical"], ["two hosts"], has_codes=True),
    Way("hierarchical scatter", ["hierarchical"], HIERARCHIES, has_codes=False),
    # NCCL chooses the order of float sums, which is not deterministic.
    Way("nccl allreduce", ["auto"], gpu_transport="nccl", has_codes=False, dtype="int32"),
    Way("nccl gather", ["gather"], gpu_transport="nccl"),
    Way("nccl scatter", ["scatter"], gpu_transport="nccl"),
    Way("nccl hierarchical", ["hierarchical"], HIERARCHIES, "nccl", has_codes=True),
    Way("host", ALGORITHMS, gpu_transport="host"),
    Way("", ["auto"], is_deterministic=False),
)


def ways(size: int, has_gpus: bool) -> list[Way]:
    """The ways for `size` ranks."""
    return [way for way in WAYS if way.places(size) and (has_gpus or not way.gpu_transport)]


@dataclass(frozen=True)
class Case:
    """A program and its ranks. Its first allreduce has the way's pattern."""

    program: Program
    way: Way
    layout: str
    algorithm: str
    gpu_transport: str

    def settings(self) -> _native.Settings:
        settings = predictable(self.algorithm)
        settings.deterministic = self.way.is_deterministic
        settings.gpu_transport = self.gpu_transport
        return settings

    def run(self, gpus: Sequence[Memory] = (), settings: _native.Settings | None = None) -> None:
        size = self.program.size
        shares_memory, hosts = LAYOUTS[self.layout]

        def of_rank(rank: int, engine: _native.Engine) -> dict[str, bytes]:
            return Run(self.program, rank, engine, gpus[rank] if gpus else None).run()

        places = [rank % hosts for rank in range(size)]
        results = on_ranks(size, of_rank, shares_memory, settings or self.settings(), hosts=places)
        for rank, own in enumerate(results):
            for name, result in own.items():
                others = [other[name] for other in results[rank + 1 :] if name in other]
                assert all(other == result for other in others), (
                    f"{name} is another on another rank than {rank}"
                )


@st.composite
def cases(draw: st.DrawFn, size: int, has_gpus: bool = False, way: Way | None = None) -> Case:
    chosen = way or draw(st.sampled_from(ways(size, has_gpus)))
    has_codes = draw(st.booleans()) if chosen.has_codes is None else chosen.has_codes
    first: dict[str, Any] = {
        "kind": "allreduce",
        "members": tuple(range(size)),
        "dtype": chosen.dtype,
        "shape": draw(st.sampled_from([(3,), (5, 67), (2000,)])),
        "reduce_op": SUM,
        "on_gpu": bool(chosen.gpu_transport),
        "codec": draw(st.sampled_from(CODECS)) if has_codes else "",
    }
    return Case(
        program=draw(programs(size, has_gpus, first)),
        way=chosen,
        layout=draw(st.sampled_from(chosen.places(size))),
        algorithm=draw(st.sampled_from(chosen.algorithms)),
        gpu_transport=chosen.gpu_transport
        or (draw(st.sampled_from(["nccl", "host"])) if has_gpus else "auto"),
    )
