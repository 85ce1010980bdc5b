"""Facts from the text of a script, on which warnings depend: a correct script must get no warning."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from horovod.runner.script import Script, imports_mpi4py, script_of

ROOT = Path(__file__).resolve().parents[3]
HVD = "import horovod.torch as hvd\nhvd.init()\n"
DDP = "import torch.distributed as dist\n"
FOR_HVD = [
    HVD,
    "import horovod.torch\nhorovod.torch.init()\n",
    "from horovod.torch import init\nif True:\n    init()\n",
    "from horovod import torch as hvd\ndef main():\n    hvd.init()\n",
]
FOR_TORCH = [  # with the variables that --ddp sets
    f"{DDP}dist.init_process_group('gloo')\n",
    "import torch\ntorch.distributed.init_process_group()\n",
    "from torch.distributed import init_process_group as begin\nbegin(backend='nccl')\n",
    f"{DDP}dist.init_process_group('gloo', 'env://')\n",
    f"{DDP}dist.init_process_group('gloo', init_method=None)\n",
    f"import os\n{DDP}rank = int(os.environ['RANK'])\ndist.init_process_group('gloo')\n",
    f"from horovod.torch import ddp\n{DDP}dist.init_process_group('gloo')\nddp.compress(model)\n",
    f"from horovod.torch.ddp import compress\n{DDP}dist.init_process_group('gloo')\n",
]
OWN_PLACE = [  # for torch too, but the variables are not needed, or set by the script
    f"{DDP}dist.init_process_group('gloo', init_method='file:///tmp/here', rank=rank, world_size=2)\n",
    f"{DDP}dist.init_process_group('gloo', method, rank=rank)\n",
    f"{DDP}dist.init_process_group('gloo', store=store)\n",
    f"{DDP}dist.init_process_group('mpi')\n",
    f"{DDP}dist.init_process_group(**given)\n",
    f"import os\n{DDP}dist.init_process_group('gloo')\nhere = os.environ['OMPI_COMM_WORLD_LOCAL_RANK']\n",
    f"import os\n{DDP}os.environ['RANK'] = other\ndist.init_process_group('gloo')\n",
    f"import os\n{DDP}os.environ.setdefault('MASTER_ADDR', 'localhost')\ndist.init_process_group('gloo')\n",
    f"{DDP}def main(rank):\n    dist.init_process_group('gloo')\ntorch.multiprocessing.spawn(main)\n",
    "from torch.nn.parallel import DistributedDataParallel as DDP\nDDP(model)\n",
]
NEITHER = [
    "print(1)\n",
    "# dist.init_process_group() and hvd.init() are for others\n",
    "import other as hvd\nhvd.init()\n",
    "import horovod.torch as hvd\ntrain(hvd)\n",
    f"{HVD}# not with DistributedDataParallel\n",
    f"{HVD}from torch.nn.parallel import DistributedDataParallel as DDP\nDDP(model)\n",
    "import horovod.torch as hvd\nhvd.elastic.init_process_group('gloo')\n",
    f"{HVD}trainer = Trainer(strategy='ddp')\n",
    f"{HVD}accelerator = Accelerator()\n",
]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        *((text, (True, False, False)) for text in FOR_HVD),
        *((text, (False, True, True)) for text in FOR_TORCH),
        *((text, (False, True, False)) for text in OWN_PLACE),
        *((text, (False, False, False)) for text in NEITHER),
    ],
)
def test_what_a_script_is_for(text: str, shown: tuple[bool, bool, bool], tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(text)
    assert script_of(["python", str(file)]) == Script(str(file), *shown)


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("python train.py", "train.py"),
        ("/usr/bin/python3.11 -u -X dev train.py --epochs 2 other.py", "train.py"),
        ("env A=1 numactl -N 0 python train.py", "train.py"),
        ("train.py", "train.py"),
        ("python -m train.py", ""),
        ("python -c 'import train' train.py", ""),
        ("python - train.py", ""),
        ("python none.py", ""),
        ("python broken.py", ""),
        ("python latin.py", ""),
        ("python", ""),
        ("torchrun --nproc-per-node 2 train.py", ""),
        ("accelerate launch train.py", ""),
        ("cat train.py", ""),
        ("python train", ""),
    ],
)
def test_which_file_is_the_script(
    command: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for file in ("train.py", "train", "other.py"):
        (tmp_path / file).write_text("print(1)\n")
    (tmp_path / "broken.py").write_text("print(\n")
    (tmp_path / "latin.py").write_bytes(b"print('\xe9')\n")
    script = script_of(shlex.split(command))
    assert (script.name if script else "") == name


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.name)
def test_examples_are_taken_for_what_they_are(path: Path) -> None:
    script = script_of(["python", str(path)])
    assert script is not None
    assert not (script.is_for_hvd and script.is_for_torch)
    if "import horovod.torch as hvd" in path.read_text() and "hvd.init()" in path.read_text():
        assert not script.is_for_torch


IMPORTS = [
    "import mpi4py\n",
    "from mpi4py import MPI",
    "import torch\nif True:\n\tfrom mpi4py.MPI import SUM\n",
]
IMPORTS += ["def f():\n    import  mpi4py.MPI as MPI\n", "x = 1\r\nfrom mpi4py import MPI\r\n"]
IMPORTS_NONE = [
    "",
    "# import mpi4py\n",
    "x = 1  # from mpi4py import MPI\n",
    "import mpi4pyx\n",
    "import numpy, os\n",
]
IMPORTS_NONE += ["print('import mpi4py')\n", "try_import('mpi4py')\n"]


@pytest.mark.parametrize("text", [*IMPORTS, *IMPORTS_NONE])
def test_whether_a_script_imports_mpi4py(text: str, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_bytes(text.encode())
    name = str(script) if text in IMPORTS else ""
    for more in ([], ["--lr", "1"], ["-c", "settings.yaml"]):
        assert imports_mpi4py(["python", "-u", str(script), *more]) == name
    assert imports_mpi4py([str(script)]) == name, "it may be a program itself"
    assert imports_mpi4py(["cat", str(script)]) == ""


@pytest.mark.parametrize(
    ("command", "is_found"),
    [
        (["python", "-c", "import torch; from mpi4py import MPI"], True),
        (["/usr/bin/python3.11", "-u", "-c", "import mpi4py.MPI\nprint(1)"], True),
        (["python", "-c", "print('mpi4py')"], False),
        (["python", "-c"], False),
        (["sh", "-c", "import mpi4py"], False),
        (["python", "nowhere.py"], False),
        (["python", "-m", "mpi4py"], False),
        ([], False),
    ],
)
def test_whether_code_imports_mpi4py(command: list[str], is_found: bool) -> None:
    assert imports_mpi4py(command) == ("the code after -c" if is_found else "")
