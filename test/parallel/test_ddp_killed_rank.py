"""Native DDP with compression when a rank is killed: the others raise an error that names it, and end."""

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent / "ddp_killed_rank.py"


@pytest.mark.parametrize("compression", ["none", "bit8"])
def test_a_killed_rank_ends_the_others(compression: str) -> None:
    """Without torchrun, which would end them itself. Well before torch's timeout of a minute: connections of
    a process that is gone are closed.
    """
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    ranks = [
        subprocess.Popen(
            [sys.executable, SCRIPT, compression],
            env={
                **os.environ,
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
                "RANK": str(rank),
                "WORLD_SIZE": "3",
                "OMP_NUM_THREADS": "1",
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(3)
    ]
    try:
        outputs = [rank.communicate(timeout=50)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert [rank.returncode for rank in ranks] == [3, -signal.SIGKILL, 3], outputs
    for survivor in (outputs[0], outputs[2]):
        said = r"Connection (closed|reset) by peer" if compression == "none" else "lost rank 1 "
        assert re.search(rf"step 2: \w+Error: .*{said}", survivor, re.DOTALL), survivor
