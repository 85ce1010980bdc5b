"""One of six ranks in three jobs of two: in each job the other rank stops, and this one must not wait.

It prints the results on standard output; the job ends when all three have.
"""

import os
import signal
import sys
import time
from pathlib import Path

import numpy as np

from horovod import _native
from horovod.common.exceptions import HorovodInternalError
from horovod.common.membership import Membership, as_launched

# Transport, the rank that stops, and whether it stops inside an operation or before this rank starts it.
JOBS = {"auto": ("auto", 1, True), "mpi": ("mpi", 1, True), "answer": ("mpi", 0, False)}

# Operations: one of them is in progress when the first is done, however late this process notices it.
ENOUGH = 60


def main(folder: Path) -> None:
    number = int(os.environ["OMPI_COMM_WORLD_RANK"])
    name, (transport, stopping, inside) = list(JOBS.items())[number // 2]
    os.environ |= {"HOROVOD_TRANSPORT": transport, "HOROVOD_FUSION_THRESHOLD": "0"}
    first = number // 2 * 2
    member = Membership.begin(as_launched, [first, first + 1], [])
    world, engine = member.world, member.engine
    x = np.zeros(1 << 23, np.float32)
    view = _native.Tensor(x.ctypes.data, x.ctypes.data, list(x.shape), 6)
    engine.wait(engine.allreduce("first", [view], _native.Reduction()))
    if world.rank == stopping and not inside:
        os.kill(os.getpid(), signal.SIGSTOP)
    handles = [engine.allreduce(f"x{i}", [view], _native.Reduction()) for i in range(ENOUGH if inside else 1)]
    if world.rank == stopping:
        if inside:
            engine.wait(handles[0])
            os.kill(os.getpid(), signal.SIGSTOP)
        time.sleep(300)  # mpirun resumes it, to end it
    began = time.monotonic()
    try:
        for handle in handles:
            engine.wait(handle)
    except HorovodInternalError as error:
        facts = f"{type(error).__name__} {error.code} {list(error.ranks)}"
        print(f"<{name}: {time.monotonic() - began:.1f} s: {facts} {error}>", flush=True)
    (folder / name).touch()
    while len(list(folder.iterdir())) < len(JOBS):
        time.sleep(0.05)
    os._exit(3)


main(Path(sys.argv[1]))
