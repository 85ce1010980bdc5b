"""The times of the stages of an allreduce through the host, which overlap.

The GPU encodes, codes go to the host and are summed there, and results go back and are decoded.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from mpi4py import MPI

if TYPE_CHECKING:
    from contenders import Bound, Contender

    from on_gpus.place import Place

# Their names in tables, and their counters in hvd.metrics().
STAGES = {
    "encode": "gpu_encode_microseconds",
    "copy to host": "gpu_copy_to_host_microseconds",
    "reduce": "gpu_reduce_microseconds",
    "copy back": "gpu_copy_back_microseconds",
    "decode": "gpu_decode_microseconds",
}
WHOLE = "gpu_whole_microseconds"
CALLS = 5
SETTLE_SECONDS = 0.1  # time for the engine to look at the last events


def stages_of(
    contenders: list[Contender], bounds: list[Bound], comm: MPI.Comm, place: Place
) -> dict[str, dict[str, float]]:
    """Return the seconds of one call by contender and stage, of the slowest rank; "whole" is the pipeline's.

    Only Horovod's contenders that took the host's route have stages.
    """
    from contenders import COMPRESSIONS

    found = {}
    for contender, bound in zip(contenders, bounds, strict=True):
        if contender.name not in COMPRESSIONS:
            continue
        before = settled(place)
        for _ in range(CALLS):
            bound.in_place()
        after = settled(place)
        names = {**STAGES, "whole": WHOLE}
        own = [(after[counter] - before[counter]) / CALLS / 1e6 for counter in names.values()]
        slowest = [float(seconds) for seconds in comm.allreduce(own, op=MAX_OF_EACH)]
        if slowest[-1] > 0:
            found[contender.name] = dict(zip(names, slowest, strict=True))
    return found


def settled(place: Place) -> dict[str, int]:
    """Return the counters when the engine has seen the end of all operations."""
    import horovod.torch as hvd

    place.synchronize()
    time.sleep(SETTLE_SECONDS)
    return hvd.metrics()


def _largest(one: list[float], other: list[float], datatype: object) -> list[float]:
    return [max(pair) for pair in zip(one, other, strict=True)]


MAX_OF_EACH = MPI.Op.Create(_largest, commute=True)
