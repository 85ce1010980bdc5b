"""Which PyTorch scripts/install_torch.sh requests from pip. A script in Python's place logs its arguments."""

from __future__ import annotations

import os
import pty
import re
import subprocess
from pathlib import Path

import pytest

OWN = "https://download.pytorch.org/whl"
SCRIPT = Path(__file__).resolve().parents[3] / "scripts" / "install_torch.sh"
# `-c` asks about torch: its version, or whether it has CUDA. `-` is the question whether an index answers.
PYTHON = """#!/bin/sh
echo "$*" >>"$ASKED"
case "$1 $2" in
  "-c import torch; print(torch.__version__)") [ -e "$INSTALLED" ] || exit 1; echo 9.9.9 ;;
  "-c "*) [ -n "$HAS_CUDA" ] ;;
  "- "*) cat >/dev/null; [ -n "$ANSWERS" ] ;;
  *) touch "$INSTALLED"; eval "$PIP" ;;
esac
"""


def run(
    folder: Path, *options: str, stdout: int = subprocess.PIPE, **settings: str
) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    """The script's output, and pip's arguments."""
    python, asked = folder / "python", folder / "asked"
    python.write_text(PYTHON)
    python.chmod(0o755)
    ours = ("CUDA", "TORCH_INDEX", "TORCH_VERSION")
    kept = {name: text for name, text in os.environ.items() if name not in ours}
    files = {"ASKED": str(asked), "INSTALLED": str(folder / "installed")}
    environment = {**kept, **files, "ANSWERS": "1", "HAS_CUDA": "", "PIP": "", **settings}
    done = subprocess.run(
        ["bash", str(SCRIPT), str(python), *options],
        env=environment,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    questions = asked.read_text().splitlines() if asked.exists() else []
    return done, [line for line in questions if line.startswith("-m pip")]


@pytest.mark.parametrize(
    ("settings", "asked"),
    [
        ({}, f"--index-url {OWN}/cpu torch==2.13.0"),
        ({"CUDA": "0", "TORCH_VERSION": "2.5.1"}, f"--index-url {OWN}/cpu torch==2.5.1"),
        ({"ANSWERS": ""}, "torch==2.13.0"),
        ({"TORCH_INDEX": "https://mirror/cpu"}, "--index-url https://mirror/cpu torch==2.13.0"),
        ({"CUDA": "1", "HAS_CUDA": "1"}, "torch==2.13.0"),
        ({"CUDA": "12.8", "HAS_CUDA": "1"}, f"--index-url {OWN}/cu128 torch==2.13.0"),
    ],
)
def test_what_pip_is_asked_for(settings: dict[str, str], asked: str, tmp_path: Path) -> None:
    done, pip = run(tmp_path, **settings)
    assert done.returncode == 0, done.stderr
    assert pip == [f"-m pip install --progress-bar off {asked}"]


def test_further_options_reach_pip(tmp_path: Path) -> None:
    _, pip = run(tmp_path, "--no-compile", ANSWERS="")
    assert pip == ["-m pip install --progress-bar off --no-compile torch==2.13.0"]


def test_how_much_is_downloaded_is_said(tmp_path: Path) -> None:
    """Progress is shown before it begins, for each file, and during a download, here every 0.1 s."""
    (tmp_path / "sleep").write_text("#!/bin/sh\nexec /bin/sleep 0.1\n")
    (tmp_path / "sleep").chmod(0o755)
    pip = """
        echo "Collecting torch==2.13.0"; echo "  Downloading torch-2.13.0.whl.metadata (29 kB)"
        echo "Downloading https://an.index/whl/torch-2.13.0.whl (190.4 MB)"
        head -c 3000000 /dev/zero >"$TMPDIR/torch.whl"; /bin/sleep 1
        echo "Installing collected packages: torch"; echo "$TMPDIR" >"$INSTALLED"
    """
    done, _ = run(tmp_path, PIP=pip, PATH=f"{tmp_path}:{os.environ['PATH']}")
    said = done.stdout.splitlines()
    assert said[0].endswith("/whl/cpu: some 200 MB to download, 750 MB on disk")
    assert said[1] == "  Downloading torch-2.13.0.whl (190.4 MB)"
    assert re.fullmatch(r"  PyTorch: 3 MB downloaded after \d s", said[2])
    assert said[-1] == "  unpacking"
    assert not Path((tmp_path / "installed").read_text().strip()).exists()


def test_a_package_of_this_machine_is_not_called_a_download(tmp_path: Path) -> None:
    (tmp_path / "sleep").write_text("#!/bin/sh\nexec /bin/sleep 0.1\n")
    (tmp_path / "sleep").chmod(0o755)
    pip = "echo 'Processing torch.whl'; /bin/sleep 1"
    done, _ = run(tmp_path, PIP=pip, PATH=f"{tmp_path}:{os.environ['PATH']}")
    assert re.search(r"^  pip is working: \d s$", done.stdout, re.M)
    assert "MB downloaded" not in done.stdout


def test_on_a_terminal_the_line_of_the_build_is_overwritten(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    run(tmp_path, stdout=theirs, PIP="echo 'Downloading torch-2.13.0.whl (190.4 MB)'")
    os.close(theirs)
    assert "\r\033[K  Downloading torch-2.13.0.whl (190.4 MB)\r\n" in os.read(ours, 100_000).decode()
    os.close(ours)


def test_the_usual_index_is_said_to_serve_gigabytes_before_it_is_asked(tmp_path: Path) -> None:
    done, _ = run(tmp_path, ANSWERS="", PIP="echo 'Downloading torch-2.13.0.whl (900 MB)'")
    before, _, after = done.stdout.partition("Downloading")
    assert "serves the CUDA build: some 3 GB to download" in before
    assert "TORCH_INDEX" in before and "900 MB" in after


def test_what_pip_complains_of_is_shown(tmp_path: Path) -> None:
    done, _ = run(tmp_path, PIP="echo 'ERROR: no such release' >&2; exit 1")
    assert done.returncode == 1
    assert done.stderr.count("ERROR: no such release") == 2  # its own index, then pip's


def test_cuda_that_did_not_arrive_is_an_error(tmp_path: Path) -> None:
    done, _ = run(tmp_path, CUDA="12.8")
    assert done.returncode == 1
    assert "CUDA=12.8 was asked for, and PyTorch 9.9.9 has no CUDA" in done.stderr


def test_what_is_there_stays(tmp_path: Path) -> None:
    (tmp_path / "installed").touch()
    done, pip = run(tmp_path)
    assert (done.returncode, done.stdout, pip) == (0, "PyTorch 9.9.9 is there already\n", [])
    assert run(tmp_path, CUDA="1")[0].returncode == 1


@pytest.mark.parametrize("value", ["yes", "12", "cu128", "2"])
def test_a_wrong_value_is_refused(value: str, tmp_path: Path) -> None:
    done, pip = run(tmp_path, CUDA=value)
    assert (done.returncode, pip) == (2, [])
    assert f"CUDA={value} is not understood" in done.stderr
