"""A rank of test_collectives_on_hosts.py: adds over a slow cable; then rank 1 stops inside an operation."""

import os
import signal
import sys
import time

import numpy as np

from horovod import _native
from horovod.common.exceptions import HorovodInternalError
from horovod.common.membership import Membership, as_launched

member = Membership.begin(as_launched, None, [])
x = np.zeros(1 << 22, np.float32)
view = _native.Tensor(x.ctypes.data, x.ctypes.data, list(x.shape), 6)
for name in ("slow", "last"):
    began = time.monotonic()
    handle = member.engine.allreduce(name, [view], _native.Reduction())
    if name == "last" and member.world.rank == 1:
        while member.engine.counters()["buckets"] < 2:  # the operation has begun, and takes seconds
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGSTOP)
    try:
        member.engine.wait(handle)
    except HorovodInternalError as error:
        print(f"<{error}>", flush=True)
        sys.stdout.flush()
        os._exit(3)
    print(f"<{name} took {time.monotonic() - began:.2f} s>", file=sys.stderr, flush=True)
