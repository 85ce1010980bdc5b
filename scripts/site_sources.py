"""MkDocs hook: files outside of docs/ that pages link to become pages of the site; pages get descriptions.

In the repository, on disk or on a code host, a link such as ../examples/pytorch_mnist.py leads to the file.
In the site it leads to the page source/examples/pytorch_mnist.py.html with the same text. A link to a file
that does not exist fails the build, whatever the flags.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from pygments.lexers import find_lexer_class_for_filename

FOLDER = "source"  # of the site, for copies
LINK = re.compile(r"\]\((?![a-z]+:|#)([^)#\s]+)")
FENCE = re.compile(r"^ *(```+|~~~+)")
RUNS = re.compile(r"^<!-- runs\n.*?^-->\n?", re.MULTILINE | re.DOTALL)  # for tests: how commands are run
LONGEST_DESCRIPTION = 200


def prose(text: str) -> Iterator[tuple[int, str]]:
    """Number and text of each line that is not inside a fenced block of code."""
    fence = ""
    for number, line in enumerate(text.splitlines(keepends=True), 1):
        mark = FENCE.match(line)
        if mark and not fence:
            fence = mark[1]
        elif mark and mark[1].startswith(fence):
            fence = ""
        elif not fence:
            yield number, line


def links(text: str, origin: str) -> Iterator[tuple[int, str, str]]:
    """Line, target, and path from the repository's root of each relative link in the file `origin`."""
    for number, line in prose(text):
        for match in LINK.finditer(line):
            yield number, match[1], target_of(match[1], origin)


def target_of(link: str, origin: str) -> str:
    """The path from the repository's root of a relative link in the file `origin`."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(origin), link))


def place_in_site(path: str) -> str:
    """The place of a repository's file among the site's Markdown files."""
    return path.removeprefix("docs/") if path.startswith("docs/") else f"{FOLDER}/{path}.md"


def origin_of(place: str) -> str:
    """The repository's file from which a Markdown file of the site was made."""
    return place.removeprefix(f"{FOLDER}/").removesuffix(".md") if is_copy(place) else f"docs/{place}"


def is_copy(place: str) -> bool:
    return place.startswith(f"{FOLDER}/")


def with_links_in_site(text: str, origin: str) -> str:
    """The Markdown of a repository's file, with links changed to their targets' places in the site."""
    here = posixpath.dirname(place_in_site(origin)) or "."

    def moved(match: re.Match[str]) -> str:
        return "](" + posixpath.relpath(place_in_site(target_of(match[1], origin)), here)

    text = RUNS.sub("", text)
    lines = text.splitlines(keepends=True)
    for number, _ in prose(text):
        lines[number - 1] = LINK.sub(moved, lines[number - 1])
    return "".join(lines)


def copied(root: Path, path: str) -> str:
    """The Markdown of the page that shows a repository's file, or the list of a folder's files."""
    target = root / path
    if target.is_dir():
        names = sorted(f"{entry.name}/" if entry.is_dir() else entry.name for entry in target.iterdir())
        return f"# {path}/\n\nFiles of this folder.\n\n" + "".join(
            f"* `{name}`\n" for name in names if not name.startswith((".", "__pycache__"))
        )
    text = target.read_text(encoding="utf-8")
    if target.suffix == ".md":
        return with_links_in_site(text, path)
    lexer = find_lexer_class_for_filename(target.name)
    language = "text" if lexer is None else lexer.aliases[0]
    fence = "`" * (1 + max((len(run) for run in re.findall("`{2,}", text)), default=2))
    return f"# {path}\n\nThe file of the repository.\n\n{fence}{language}\n{text}\n{fence}\n"


def outside(root: Path, origins: list[str]) -> list[str]:
    """Files outside of docs/ that these files link to, directly or indirectly.

    Raises:
        PluginError: a file does not exist.
    """
    found: list[str] = []
    waiting = list(origins)
    while waiting:
        origin = waiting.pop()
        for number, target, path in links((root / origin).read_text(encoding="utf-8"), origin):
            if path.startswith("docs/") or path in found:
                continue
            if path.startswith("..") or not (root / path).exists():
                raise PluginError(f"{origin}, line {number}: the link to {target} leads to no file: {path}")
            found.append(path)
            if path.endswith(".md"):
                waiting.append(path)
    return sorted(found)


def description(markdown: str) -> str:
    """The first sentences of a page, without markup, for search engines and previews."""
    body = "".join(line for _, line in prose(markdown))
    for paragraph in re.split(r"\n\s*\n", body):
        text = re.sub(r"\s+", " ", paragraph).strip()
        if text and text[0] not in "#|-*>:<!{=" and not text.startswith("["):
            text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
            text = re.sub(r"(?<!\w)[*_]+|[*_]+(?!\w)|`", "", text)
            if len(text) <= LONGEST_DESCRIPTION:
                return text
            begin = text[:LONGEST_DESCRIPTION]
            ends = [end.end() for end in re.finditer(r"[.:](?= )|。", begin)]
            return begin[: ends[-1]].rstrip(":") if ends else begin.rsplit(" ", 1)[0] + " …"
    return ""


def on_files(files: Files, config: MkDocsConfig, **_: Any) -> Files:
    root = Path(config.docs_dir).parent
    for path in outside(root, [f"docs/{file.src_uri}" for file in files.documentation_pages()]):
        files.append(File.generated(config, place_in_site(path), content=copied(root, path)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    page.meta.setdefault("description", description(markdown))
    place = page.file.src_uri
    return markdown if is_copy(place) else with_links_in_site(markdown, origin_of(place))


def unbroken(code: re.Match[str]) -> str:
    """Code within text, without line breaks after the -- of a flag. Blocks of code stay unchanged."""
    if code[1] is None:
        return code[0]
    return "<code>" + re.sub(r"(?<!\S)--?\w+", r'<span class="unbroken">\g<0></span>', code[1]) + "</code>"


def breakable(cell: re.Match[str]) -> str:
    """A table's cell with possible line breaks after commas, and after underscores and dots in names."""
    html = re.sub(r"(?<=<code>)[^<]*", lambda name: re.sub(r"(?<=\w[._])(?=\w)", "<wbr>", name[0]), cell[0])
    return re.sub(r"(<[^>]*>)|(?<=\w,)(?=[a-z])", lambda place: place[1] or "<wbr>", html)


def output(block: re.Match[str]) -> str:
    """A block of text with possible line breaks, unless it is a drawing or has columns."""
    is_drawn = re.search(r"[\u2500-\u259f]|\S {2,}\S", re.sub(r"<.*?>", "", block[0]))
    return block[0] if is_drawn else block[0].replace("language-text", "language-text broken-lines", 1)


def on_page_content(html: str, **_: Any) -> str:
    html = re.sub(r'<div class="language-text highlight">.*?</div>', output, html, flags=re.DOTALL)
    html = re.sub(r"<td\b.*?</td>", breakable, html, flags=re.DOTALL)
    return re.sub(r"<pre.*?</pre>|<code>((?:[^<]|<wbr>)*)</code>", unbroken, html, flags=re.DOTALL)


def on_post_page(output: str, page: Page, **_: Any) -> str:
    """Mark Chinese pages as such, for screen readers and the choice of a font."""
    is_chinese = page.file.src_uri.startswith("zh/")
    return output.replace('<html lang="en"', '<html lang="zh"', 1) if is_chinese else output
