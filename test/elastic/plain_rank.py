"""Print the state of its process: test_restart.py compares forked ranks with ranks that were not forked."""

from __future__ import annotations

import atexit
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time

print("torch is there:", "torch" in sys.modules)
print(__name__, __file__, __spec__ and __spec__.name, __doc__)
print(sys.argv[1:], sys.path[0], os.getcwd(), sys.executable)
print([signal.getsignal(getattr(signal, f"SIG{name}")) for name in ("INT", "TERM", "HUP", "PIPE", "CHLD")])
print(signal.set_wakeup_fd(-1), signal.pthread_sigmask(signal.SIG_BLOCK, []))
links = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")]
print(sorted(os.readlink(link).partition(":")[0] for link in links if os.path.lexists(link)))
print(sys.stdin.read() == "")
print(os.getpid() == os.getpgid(0), threading.active_count(), multiprocessing.parent_process())
print(sorted(name for name in os.environ if name.startswith("HOROVOD_")), os.environ["HOROVOD_RANK"])


class Mine:
    pass


assert type(pickle.loads(pickle.dumps(Mine()))) is Mine
atexit.register(print, "at exit", flush=True)


def go_on() -> None:
    time.sleep(0.2)
    print("thread", Mine.__module__, flush=True)


if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    child = context.Process(target=print, args=("child",))
    child.start()
    child.join()
    print("child", child.exitcode)
    threading.Thread(target=go_on).start()
    if sys.argv[1] == "raise":
        raise RuntimeError("mine")
    if sys.argv[1] == "exit":
        sys.exit(7)
