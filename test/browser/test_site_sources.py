"""scripts/site_sources.py: links out of docs/ become pages of the site, and pages get a description."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
pytest.importorskip("mkdocs", reason="mkdocs is not installed: pip install 'horovod[docs]'")
sys.path.append(str(ROOT / "scripts"))  # last, because a sanitized build may precede this folder

site_sources = importlib.import_module("site_sources")

PAGE = """# Page

See [the script](../examples/train.py), [here](other.md#part), ![plot](plot.svg) and [far](https://example.org/x).

```text
[not a link](../nowhere.py)
```

[Folder](../examples) and [anchor](#page).

<!-- runs
files: {train.py: all}
-->
"""


def repository(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("_md", ".md").replace("_py", ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def test_links_of_a_page() -> None:
    assert [(line, path) for line, _, path in site_sources.links(PAGE, "docs/page.md")] == [
        (3, "examples/train.py"),
        (3, "docs/other.md"),
        (3, "docs/plot.svg"),
        (9, "examples"),
    ]


def test_links_are_led_to_the_copies() -> None:
    moved = site_sources.with_links_in_site(PAGE, "docs/page.md")
    assert "[the script](source/examples/train.py.md)" in moved
    assert "[here](other.md#part), ![plot](plot.svg) and [far](https://example.org/x)" in moved
    assert "[not a link](../nowhere.py)" in moved
    assert "files" not in moved  # the metadata for tests
    assert "[Folder](source/examples.md) and [anchor](#page)" in moved
    assert "(../source/examples/train.py.md)" in site_sources.with_links_in_site(
        "[x](../../examples/train.py)", "docs/zh/page.md"
    )
    assert site_sources.with_links_in_site("[x](docs/running.md#a)", "README.md") == "[x](../running.md#a)"


def test_what_is_linked_is_found_through_other_files(tmp_path: Path) -> None:
    root = repository(
        tmp_path,
        docs__a_md="[r](../README.md)",
        README_md="[docs](docs/a.md) [c](CHANGELOG.md)",
        CHANGELOG_md="[code](code/x.py)",
        code__x_py="print()",
    )
    assert site_sources.outside(root, ["docs/a.md"]) == ["CHANGELOG.md", "README.md", "code/x.py"]


@pytest.mark.parametrize("target", ["../gone.py", "../../elsewhere.py"])
def test_a_link_to_nothing_names_page_and_line(tmp_path: Path, target: str) -> None:
    root = repository(tmp_path, docs__a_md=f"# A\n\n[x]({target})\n")
    with pytest.raises(site_sources.PluginError, match=r"docs/a\.md, line 3: .*leads to no file"):
        site_sources.outside(root, ["docs/a.md"])


def test_a_copy_shows_the_file_whatever_is_in_it(tmp_path: Path) -> None:
    root = repository(tmp_path, x_py='"""```python"""\n')
    assert site_sources.copied(root, "x.py").splitlines()[4:] == ["````python", '"""```python"""', "", "````"]


def test_a_copy_of_a_folder_lists_it(tmp_path: Path) -> None:
    root = repository(tmp_path, code__a_py="", code__b__c_py="")
    assert site_sources.copied(root, "code").endswith("* `a.py`\n* `b/`\n")


@pytest.mark.parametrize(
    ("markdown", "described"),
    [
        ("# T\n\n![p](p.svg)\n\nOne *two* [three](x.md) `four`.\n\nMore.", "One two three four."),
        ("# T\n\n" + "A sentence. " + "word " * 60, "A sentence."),
        ("# T\n\n" + "word " * 60, "word " * 39 + "word …"),
        ("# T\n\n```sh\nls\n```\n\n| a |\n| - |\n\nA snake_case name.", "A snake_case name."),
    ],
)
def test_descriptions(markdown: str, described: str) -> None:
    assert site_sources.description(markdown) == described


@pytest.mark.parametrize(
    ("text", "is_broken"),
    [
        ("a long message", True),
        ("size  time\n1 KB  3 us", False),
        ("\u250c\u2500 h1", False),
        ("  indented", True),
    ],
)
def test_only_text_that_is_no_drawing_may_be_broken(text: str, is_broken: bool) -> None:
    html = f'<div class="language-text highlight"><pre><span></span><code>{text}\n</code></pre></div>'
    assert ("broken-lines" in site_sources.on_page_content(html)) == is_broken


def test_names_in_tables_may_be_broken_but_not_flags_after_their_hyphens() -> None:
    html = "<td><code>--log-level</code>, <code>a_b.c</code> <a href='a_b'>x</a></td><p><code>a_b</code></p>"
    assert site_sources.on_page_content(html) == (
        '<td><code><span class="unbroken">--log</span>-level</code>, <code>a_<wbr>b.<wbr>c</code> '
        "<a href='a_b'>x</a></td><p><code>a_b</code></p>"
    )


def test_flags_in_text_are_kept_whole_and_blocks_as_they_are() -> None:
    html = "<p><code>run --np 2</code></p><pre><code>run --np 2</code></pre>"
    assert site_sources.on_page_content(html) == (
        '<p><code>run <span class="unbroken">--np</span> 2</code></p><pre><code>run --np 2</code></pre>'
    )


def test_a_name_in_a_table_may_be_broken_after_a_comma_but_not_in_text_or_a_link() -> None:
    html = '<p>a,b</p><table><tr><td><a href="x,y">int4:rotation=h,levels=l</a> 1,000</td></tr></table>'
    broken = html.replace("h,levels", "h,<wbr>levels")
    assert site_sources.on_page_content(html) == broken
