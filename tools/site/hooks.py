"""Adds pages from elsewhere in the repository to the documentation site, with links that work in both.

On the site, pages of docs/ are at the root and everything else keeps its path. Links in Markdown are those of the
repository; they become links of the site, or plain text if they lead to a file that the site does not have, such as a
test.
"""

import os
import pathlib
import posixpath
import re
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Pages outside docs/, with their pictures.
TAKEN = (
    "CHANGELOG.md",
    "colab/README.md",
    "results/README.md",
    "results/stream.png",
    "results/near/near.md",
    "results/paper/*.md",
    "results/paper/*.png",
    "savedmodels/README.md",
    "savedmodels/*/README.md",
    "tools/research/README.md",
    "tools/serving/README.md",
)
_LINK = re.compile(
    r"(?P<picture>!?)\[(?P<text>(?:[^\[\]]|\[[^\[\]]*\])*)\]\((?P<target>[^()\s]+)\)"
)
# A picture from another server.
_BADGE = re.compile(r"\[!\[Open In Colab\]\([^)]*\)\]")
_CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.MULTILINE | re.DOTALL)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages and pictures from outside docs/."""
    for pattern in TAKEN:
        for path in sorted(ROOT.glob(pattern)):
            name = path.relative_to(ROOT).as_posix()
            files.append(File.generated(config, name, abs_src_path=os.fspath(path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turns links of the repository into links of the site."""
    source = page.file.src_uri
    taken = {file.src_uri for file in files}
    inside = source if (ROOT / source).is_file() and source in _taken_names() else f"docs/{source}"
    folder = posixpath.dirname(inside)

    def relink(link: re.Match[str]) -> str:
        target, _, anchor = link["target"].partition("#")
        if not target or ":" in target:
            return link[0]
        path = posixpath.normpath(posixpath.join(folder, target))
        on_site = path.removeprefix("docs/")
        if (ROOT / path).is_dir() and f"{on_site}/README.md" in taken:
            on_site = f"{on_site}/README.md"
        if on_site in taken:
            there = posixpath.relpath(on_site, posixpath.dirname(source) or ".")
            return f"{link['picture']}[{link['text']}]({there}{'#' + anchor if anchor else ''})"
        # A broken link stays as it is, and the strict build fails.
        return link["text"] if (ROOT / path).exists() else link[0]

    markdown = _BADGE.sub("[open in Colab]", markdown)
    return _outside_code(markdown, lambda text: _LINK.sub(relink, text))


def _taken_names() -> set[str]:
    return {path.relative_to(ROOT).as_posix() for pattern in TAKEN for path in ROOT.glob(pattern)}


def _outside_code(text: str, change: Any) -> str:
    """Applies `change` to everything but blocks and spans of code."""
    parts, end = [], 0
    for code in _CODE.finditer(text):
        parts += [change(text[end : code.start()]), code[0]]
        end = code.end()
    return "".join([*parts, change(text[end:])])
