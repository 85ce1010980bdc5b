"""The processors of each rank of a host with ``--bind auto``: pure functions of Linux' files in /sys.

A rank gets whole cores, on one NUMA node if possible, and its engine's thread a hyper-thread if cores have
two. The first rank, which talks to other hosts, is on the node of the fastest network card. Standard
library only: ranks' wrappers import it.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

_SYS = Path("/sys")


class Core(NamedTuple):
    """A core: its NUMA node, and the numbers of its hyper-threads."""

    node: int
    processors: tuple[int, ...]


class Place(NamedTuple):
    """A rank's processors, and the processor of its engine's thread; None: any of them."""

    processors: tuple[int, ...]
    engine: int | None


def processors_in(text: str) -> list[int]:
    """Return the numbers in a list of Linux: "0-3,8" is 0, 1, 2, 3, 8. ValueError for other text."""
    found: list[int] = []
    for part in text.strip().split(","):
        if part:
            first, _, last = part.partition("-")
            found.extend(range(int(first), int(last or first) + 1))
    return found


def cores_of(allowed: Iterable[int], sys: Path = _SYS) -> list[Core]:
    """Return the cores that this process may use, node by node. A processor that /sys does not describe
    counts as a core on node 0.
    """
    may, cores = set(allowed), set()
    nodes = {
        processor: int(folder.name.removeprefix("node"))
        for folder in sorted((sys / "devices/system/node").glob("node[0-9]*"))
        for processor in processors_in(_text(folder / "cpulist"))
    }
    for processor in may:
        topology = sys / f"devices/system/cpu/cpu{processor}/topology"
        siblings = processors_in(_text(topology / "thread_siblings_list")) or [processor]
        cores.add(Core(nodes.get(processor, 0), tuple(sorted(may.intersection({*siblings, processor})))))
    return sorted(cores)


def node_of_network(sys: Path = _SYS) -> int | None:
    """Return the NUMA node of the fastest network card; None if no card has a node."""
    found = []
    for device in sorted((sys / "class/net").glob("*/device/numa_node")):
        node, speed = _number(_text(device)), _number(_text(device.parents[1] / "speed"))
        if node >= 0:
            found.append((speed, -node))
    return -max(found)[1] if found else None


def places(cores: Sequence[Core], ranks: int, first_node: int | None = None) -> list[Place]:
    """Return the place of each rank of the host; an empty list if ranks must share cores.

    Cores are dealt out evenly in the order of their nodes, beginning with ``first_node``. So no rank spans
    two nodes if nodes have equally many cores and the number of ranks divides that of nodes, or the reverse.
    """
    if ranks < 1 or ranks > len(cores):
        return []
    nodes = sorted({core.node for core in cores}, key=lambda node: (node != first_node, node))
    dealt = [core for node in nodes for core in cores if core.node == node]
    bounds = [len(dealt) * rank // ranks for rank in range(ranks + 1)]
    return [_place(dealt[begin:end]) for begin, end in itertools.pairwise(bounds)]


def _place(cores: Sequence[Core]) -> Place:
    """Give the engine the second hyper-thread of the last core: it encodes while the others compute."""
    processors = tuple(sorted(processor for core in cores for processor in core.processors))
    last = cores[-1].processors
    return Place(processors, last[1] if len(last) > 1 else None)


def bind(local_rank: int, local_size: int, sys: Path = _SYS) -> Place | None:
    """Bind this process, and set variables for its child processes; variables that the user set stay.

    Returns the processors that it got, or None if ranks must share cores and it did nothing.
    """
    all_places = places(cores_of(os.sched_getaffinity(0), sys), local_size, node_of_network(sys))
    if not all_places or not 0 <= local_rank < len(all_places):
        return None
    own = all_places[local_rank]
    os.sched_setaffinity(0, own.processors)
    engines = [place.engine for place in all_places]
    if None not in engines:
        os.environ.setdefault("HOROVOD_THREAD_AFFINITY", ",".join(map(str, engines)))
    os.environ.setdefault("OMP_NUM_THREADS", str(len(cores_of(own.processors, sys))))
    return own


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:  # an inactive card has no speed; a container may hide all files
        return ""


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        return -1
