"""docs/compression_explained.md prints what it shows."""

from pathlib import Path

from printing_page import check_page, run_alone


def test_the_page_prints_what_it_shows(tmp_path: Path) -> None:
    check_page("docs/compression_explained.md", 15, tmp_path, run_alone)
