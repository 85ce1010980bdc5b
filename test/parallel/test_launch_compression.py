"""`horovodrun --compression`: a script that sets no compression, or Compression.none, sends fewer bytes."""

import re
import sys
from pathlib import Path
from typing import Any

from launching import horovodrun

PLAIN = Path(__file__).parent / "plain_hvd"
SCRIPT = """
import sys, torch
import horovod.torch as hvd
hvd.init()
if "--register" in sys.argv:
    hvd.Compression.register("mine", hvd.Compression.bit8(block_size=1024))
model = torch.nn.Linear(300, 400)

def sent(**options):
    plain = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = hvd.DistributedOptimizer(plain, model.named_parameters(), **options)
    before = hvd.metrics()["wire_bytes"]
    model(torch.randn(5, 300)).sum().backward()
    optimizer.step()
    return hvd.metrics()["wire_bytes"] - before

elements = 300 * 400
for options in ({}, {"compression": hvd.Compression.none}):
    assert sent(**options) <= elements * 1.1 + 2000, "a byte each, scales, and the bias, which is a vector"
assert sent(compression="int4") <= elements * 0.6 + 2000, "another compressor of the script wins"
metric = torch.tensor([1 / 3] * 2000)
assert torch.equal(hvd.allreduce(metric, name="metric"), metric), "an explicit allreduce stays exact"
print("all right")
hvd.shutdown()
"""


def run(tmp_path: Path, *arguments: str) -> Any:
    (tmp_path / "train.py").write_text(SCRIPT)
    command = (sys.executable, str(tmp_path / "train.py"), *arguments)
    return horovodrun("-np", "2", "--compression", "mine", *command, limit=110)


def test_a_script_that_says_nothing(tmp_path: Path) -> None:
    result = run(tmp_path, "--register")
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("all right") == 2


def test_what_nobody_knows_ends_the_job_and_names_the_variable(tmp_path: Path) -> None:
    result = run(tmp_path)
    assert result.returncode != 0
    assert "HOROVOD_COMPRESSION=mine: " in result.stderr and "'mine'" in result.stderr


def test_scripts_of_horovod_as_they_are(tmp_path: Path) -> None:
    """They pass Compression.none without their fp16 option: nearly four times fewer bytes travel."""
    both = tmp_path / "both.py"
    scripts = [str(PLAIN / name) for name in ("mnist.py", "synthetic.py")]
    both.write_text(f"import runpy\nfor each in {scripts}:\n    runpy.run_path(each, run_name='__main__')\n")
    job = ("-np", "2", "--compression", "bit8", sys.executable, str(both))
    result = horovodrun(*job, limit=110)
    assert result.returncode == 0, result.stderr
    fewer = re.findall(r"gradients of (\d+) bytes travelled as (\d+)", result.stdout)
    assert len(fewer) == 2
    assert all(int(plain) > 3.9 * int(sent) for plain, sent in fewer)
    assert result.stderr.count("counts, and not compression=Compression.none of the script") == 2, "two jobs"
    assert re.findall(r"horovod: (.*) tensors, .*x fewer", result.stderr) == ["bit8: 2 of 4", "bit8: 2 of 8"]
