"""A rank that joins the job, prints its place, and waits until a file exists: `waiting_rank.py FILE`.

Its barrier has a name, which is visible in the network's traffic.
"""

import os
import sys
import time
from pathlib import Path

from horovod.common.basics import basics

basics.init()
engine = basics.member().engine
engine.wait(engine.barrier("for all to read"))
print(*(os.environ.get(f"TOKEN_{number}", "") for number in range(10)), flush=True)
while not Path(sys.argv[1]).exists():
    time.sleep(0.05)
basics.shutdown()
