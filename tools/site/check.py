"""Check a site that was built: every link leads somewhere, and nothing is fetched from another host.

Sphinx checks what pages link to; this checks what it made of them, its theme's own links, scripts and fonts included.
"""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["main", "problems"]

_FETCHED = {"src", "srcset", "poster", "data", "action"}
_FETCHED_IN_CSS = re.compile(r"""(?:url\(|@import)\s*["']?((?:https?:)?//[^"')\s]+)""")


class _Page(HTMLParser):
    """What a page fetches and where it leads, by its tags; and the anchors that it has."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.links: list[str] = []
        self.anchors: set[str] = {""}
        self.feed(text)
        self.fetched += _FETCHED_IN_CSS.findall(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Take in a tag's addresses and its anchor."""
        for name, value in attrs:
            if name in {"id", "name"}:
                self.anchors.add(value or "")
            elif name in _FETCHED or (name == "href" and tag == "link"):
                self.fetched.append(value or "")
            elif name == "href":
                self.links.append(value or "")


def problems(site: Path) -> Iterator[str]:
    """Yield what is wrong with the site in this folder: what is fetched from elsewhere, and links that lead nowhere."""
    pages = {path: _Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}
    for path, page in pages.items():
        for address in (*page.fetched, *page.links):
            told = _problem(path, address, pages, fetched=address in page.fetched)
            if told:
                yield f"{path.relative_to(site)}: {told}"
    for sheet in sorted(site.rglob("*.css")):
        for address in _FETCHED_IN_CSS.findall(sheet.read_text(encoding="utf-8")):
            yield f"{sheet.relative_to(site)}: {address} is fetched from another host"


def _problem(path: Path, address: str, pages: dict[Path, _Page], *, fetched: bool) -> str:
    """Return what is wrong with an address on a page, if anything is."""
    parts = urlsplit(address)
    if parts.scheme == "data":
        return ""
    if parts.scheme or parts.netloc:
        return f"{address} is fetched from another host" if fetched else ""
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    if not target.is_file():
        return f"{address} leads nowhere"
    if target in pages and unquote(parts.fragment) not in pages[target].anchors:
        return f"{address} leads to an anchor that is not there"
    return ""


def main(arguments: Sequence[str]) -> int:
    """Print the problems of the site in the folder that is named; return 1 if there are any."""
    found = sorted(set(problems(Path(arguments[0]).resolve())))
    print(*found, sep="\n", end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
