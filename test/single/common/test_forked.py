"""A forked child of a process that has called hvd.init() gets an error at once and cannot harm its parent."""

import subprocess
import sys

# Without torch: quick, and the core by itself. test/parallel/test_children.py asks horovod.torch.
PROGRAM = """
import gc, os, sys
from horovod import _native
from horovod.common import waiting
from horovod.common.basics import basics
from horovod.common.exceptions import HorovodInternalError

def told(call):
    try:
        call()
    except HorovodInternalError as error:
        return error.code == "forked"

basics.init()
engine = basics.member().engine
handle = engine.barrier("apple")
waiting.wait(engine, engine.barrier("pear"))
child = os.fork()
if child == 0:
    calls = [
        lambda: engine.wait(handle), lambda: engine.poll(handle), lambda: engine.has_result(handle),
        lambda: engine.barrier("plum"), lambda: engine.allgather("x", []), engine.shutdown, engine.counters,
        lambda: waiting.wait(engine, handle), engine.process_sets, lambda: engine.start_timeline("t"),
        basics.init, basics.member, basics.metrics, lambda: basics.add_process_set([0]), basics.stop_timeline,
    ]
    silent = [number for number, call in enumerate(calls) if not told(call)]
    assert basics.is_initialized() and basics.rank() == 0 and basics.size() == 1
    basics.shutdown()
    assert not basics.is_initialized() and told(basics.init) and told(lambda: engine.wait(handle))
    if os.fork() == 0:
        sys.exit(not told(basics.init))  # a child of the child
    assert os.wait()[1] == 0
    del engine, calls
    gc.collect()  # what is destroyed here lives on there
    sys.exit(str(silent) if silent else 0)
assert os.waitpid(child, 0)[1] == 0
engine.wait(handle)
waiting.wait(engine, engine.barrier("plum"))
del engine
basics.shutdown()
child = os.fork()
if child == 0:
    sys.exit(not told(basics.init))
assert os.waitpid(child, 0)[1] == 0
basics.init()
"""


def test_a_forked_child_is_told() -> None:
    line = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
