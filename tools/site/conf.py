"""How Sphinx makes the site: ``make site``.

The pages stay where they are and are read as they are: what they link to in the repository comes with them, sources as
pages of their own. What only the site needs, its navigation, is added while a page is read.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from docutils import nodes
from sphinx.parsers import Parser

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parents[2]
_LINK = re.compile(r"\]\(([^)#:]+\.py)[)#]")
_CHILDREN = "\n```{toctree}\n:hidden:\n:glob:\n\n*\n```\n"


def _linked_sources() -> Iterator[str]:
    """Yield the Python files that pages link to."""
    for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")):
        for target in _LINK.findall(page.read_text(encoding="utf-8")):
            yield (page.parent / target).resolve().relative_to(ROOT).as_posix()


class SourceParser(Parser):
    """Makes of a Python file a page that shows it."""

    supported = ("python",)

    def parse(self, inputstring: str, document: nodes.document) -> None:
        """Put the file's name and its code into the document."""
        docname = document.settings.env.docname
        document.settings.env.metadata[docname].update(orphan=True, nosearch=True)
        section = nodes.section(ids=["source"], names=["source"])
        section += nodes.title(text=f"{docname}.py")
        section += nodes.literal_block(inputstring, inputstring, language="python")
        document += section


def _add_navigation(_app: Sphinx, docname: str, source: list[str]) -> None:
    source[0] += _NAVIGATION.get(docname, "")


_NAVIGATION = {
    "README": Path(__file__).with_name("navigation.md").read_text(encoding="utf-8"),
    **{f"docs/{folder}/README": _CHILDREN for folder in ("api", "decisions", "wire")},
}

project = "topk-bandit"
html_title = project
extensions = ["myst_parser"]
root_doc = "README"
source_suffix = {".md": "markdown", ".py": "python"}
include_patterns = [
    "*.md",
    "docs/**.md",
    "clients/typescript/README.md",
    "deploy/README.md",
    "loadtests/README.md",
    "protos/README.md",
    *sorted(set(_linked_sources())),
]
exclude_patterns = [".*", "build", "dist", "**/node_modules", "**/__pycache__"]
myst_heading_anchors = 5  # the same anchors as on GitHub
nitpicky = True
html_theme = "furo"
html_copy_source = False
html_show_sphinx = False
html_static_path = ["static"]
html_css_files = ["site.css"]
html_extra_path = ["start"]


def setup(app: Sphinx) -> None:
    """Have pages read as the site needs them."""
    app.add_source_parser(SourceParser)
    app.connect("source-read", _add_navigation)
