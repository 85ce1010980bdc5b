"""horovod.torch with real ranks: every file of ranks/, with two and with four."""

from pathlib import Path

import pytest
from rank_jobs import run_test_file

FILES = sorted((Path(__file__).parent / "ranks").glob("test_*.py"))


@pytest.mark.timeout(150)
@pytest.mark.parametrize("np", [2, 4])
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_in_ranks(file: Path, np: int) -> None:
    run_test_file(np, file)
