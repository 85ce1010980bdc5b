"""Every page with commands or Python on it has a test that runs them: the registry, page -> tests.

Who writes a page adds a row. The test of a page runs all its ```sh and ```python blocks, or says of a command
which other test does.
"""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.quick
RUNNABLE = re.compile(r"^ *(?:```|~~~)(?:sh|bash|shell|console|python|py)\b", re.MULTILINE)
INDENTED = re.compile(r"^ +```(?:sh|python)\b", re.MULTILINE)
TESTS = {
    "CONTRIBUTING.md": ["parallel/test_readme.py"],
    "README.md": ["parallel/test_readme.py"],
    "docs/benchmarks.md": [
        *("parallel/test_benchmarks.py", "parallel/test_gpu_benchmarks.py"),
        *("cluster/test_cluster_benchmark.py", "cluster/test_elastic_benchmark.py"),
        *("single/benchmarks/test_scaling.py", "parallel/test_scaling_runs.py"),
    ],
    "docs/cluster_install.md": ["setup/test_cluster_install.py"],
    "docs/compression.md": ["single/codec/test_codec_docs.py"],
    "docs/compression_explained.md": ["parallel/test_compression_explained_page.py"],
    "docs/concepts.md": ["parallel/test_concepts_page.py"],
    "docs/containers.md": ["container/test_containers_page.py"],
    "docs/ddp.md": ["parallel/test_ddp_page.py"],
    "docs/elastic.md": ["parallel/test_elastic_page.py"],
    "docs/examples.md": ["parallel/test_examples_docs.py"],
    "docs/gpu.md": ["parallel/test_gpu_page.py"],
    "docs/installing.md": ["setup/test_wheels.py", "setup/test_bare_machine.py"],
    "docs/index.md": ["parallel/test_index_page.py"],
    "docs/lab.md": ["parallel/test_lab_page.py"],
    "docs/lab_guide.md": ["parallel/test_lab_guide_page.py"],
    "docs/logging.md": ["parallel/test_logging_page.py"],
    "docs/lightning.md": ["parallel/test_lightning.py"],
    "docs/made_hosts.md": ["cluster/test_made_hosts_page.py"],
    "docs/migration.md": ["parallel/test_migration_page.py"],
    "docs/observability.md": ["parallel/test_observability_page.py"],
    "docs/optimizer.md": ["parallel/test_optimizer_page.py"],
    "docs/own_compressor.md": ["parallel/test_own_compressor_page.py"],
    "docs/platforms.md": ["parallel/test_platforms_page.py"],
    "docs/process_sets.md": ["parallel/test_process_sets_page.py"],
    "docs/running.md": ["parallel/test_running_page.py", "cluster/test_running_on_hosts.py"],
    "docs/sync_batch_norm.md": ["single/torch/test_sync_batch_norm.py"],
    "docs/textbook.md": ["parallel/test_textbook_page.py"],
    "docs/topology.md": ["parallel/test_topology_page.py"],
    "docs/troubleshooting.md": ["parallel/test_troubleshooting_page.py"],
    "docs/tuning.md": ["parallel/test_tuning_page.py"],
    "docs/wire_format.md": ["single/codec/test_codec_docs.py"],
    "docs/zh/index.md": ["parallel/test_lab_guide_page.py"],
    "docs/zh/lab_guide.md": ["parallel/test_lab_guide_page.py"],
}


def pages() -> list[str]:
    files = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [str(file.relative_to(ROOT)) for file in files]


def with_blocks() -> list[str]:
    return [page for page in pages() if RUNNABLE.search((ROOT / page).read_text())]


@pytest.mark.parametrize("page", sorted({*with_blocks(), *TESTS}))
def test_a_page_has_a_test_that_runs_it(page: str) -> None:
    assert page in with_blocks(), f"{page} has no commands (any more): remove its row here"
    assert page in TESTS, f"{page} has commands or Python: write a test that runs them, and add a row here"
    name = page.removeprefix("docs/")
    for test in TESTS[page]:
        path = ROOT / "test" / test
        assert path.exists(), f"{page}: its test {test} is gone"
        assert name in path.read_text(), f"{page}: {test} does not mention it, so it cannot run it"


@pytest.mark.parametrize("page", pages())
def test_no_block_hides_from_the_tests(page: str) -> None:
    """They look for blocks at the beginning of a line, and for the languages sh and python."""
    text = (ROOT / page).read_text()
    assert not INDENTED.search(text), f"{page}: a test would not see this block; begin it in the first column"
    others = set(re.findall(r"^```(shell|console|py|python3)\b", text, re.MULTILINE))
    assert not others, f"{page}: write ```sh or ```python, not {others}"
