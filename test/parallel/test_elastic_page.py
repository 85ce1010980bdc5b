"""The script on docs/elastic.md trains with two ranks, elastic and not."""

import sys
from pathlib import Path

import pytest
from page_blocks import blocks
from rank_jobs import run_ranks

PAGE = "docs/elastic.md"


@pytest.mark.parametrize("elastic", ["0", "1"])
def test_the_script(tmp_path: Path, elastic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOROVOD_ELASTIC", elastic)
    (script,) = blocks(PAGE, "python")
    path = tmp_path / "page.py"
    path.write_text(script)
    done = run_ranks(2, [sys.executable, "-W", "error", str(path)], timeout=100)
    assert done.returncode == 0 and "2 epochs with 2 ranks" in done.stdout, done.stdout
