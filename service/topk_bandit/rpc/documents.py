"""What the HTTP servers have to read: the OpenAPI document of all calls, pages that call and that ask, and the console.

All are files of the package and the same for the life of a process. A browser keeps them, and asks each time whether
they are still the same.
"""

from __future__ import annotations

import gzip
from hashlib import sha256
from importlib.resources import files
from pathlib import PurePath
from typing import TYPE_CHECKING, NamedTuple, Self

from aiohttp import ETag, web

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Document", "documents", "documents_of_console", "documents_with_page"]

_HEADERS = {
    "Cache-Control": "no-cache",
    "Vary": "Accept-Encoding",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
_POLICY = (
    "default-src 'none'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; "
)

# The page of all calls has its style and its script in itself.
_INLINE = _POLICY + "script-src 'unsafe-inline'; style-src 'unsafe-inline'"

# The console shows what others named, so nothing in it can become a script or a style: it has files for both.
_STRICT = _POLICY + "script-src 'self'; style-src 'self'; require-trusted-types-for 'script'; trusted-types 'none'"

# The page that asks shows pictures of a shop as well, from wherever they are, and nothing that is not encrypted.
_ASKING = _STRICT.replace("img-src data:", "img-src data: https:")
_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}


class Document(NamedTuple):
    """One file, as it is and compressed.

    Attributes
    ----------
    tag
        Changes with the content.
    policy
        What the browser lets it do.
    """

    content_type: str
    body: bytes
    compressed: bytes
    tag: ETag
    policy: str

    @classmethod
    def of(cls, content_type: str, body: bytes, *, policy: str = _INLINE) -> Self:
        """Return a document of a content."""
        # The tag is weak, since it stands for the compressed bytes too.
        tag = ETag(sha256(body).hexdigest()[:32], is_weak=True)
        return cls(content_type, body, gzip.compress(body, mtime=0), tag, policy)

    def answer(self, request: web.BaseRequest) -> web.Response:
        """Return the document, or that the one which the browser has is the same."""
        if any(tag.value in {self.tag.value, "*"} for tag in request.if_none_match or ()):
            response = web.Response(status=304, headers=_HEADERS)
        else:
            response = self._whole(compressed="gzip" in request.headers.get("Accept-Encoding", ""))
        response.etag = self.tag
        response.headers["Content-Security-Policy"] = self.policy
        return response

    def _whole(self, *, compressed: bool) -> web.Response:
        response = web.Response(
            body=self.compressed if compressed else self.body,
            content_type=self.content_type,
            charset="utf-8",
            headers=_HEADERS,
        )
        if compressed:
            response.headers["Content-Encoding"] = "gzip"
        return response


def documents() -> Mapping[str, Document]:
    """Return the documents by their paths."""
    pages = files("topk_bandit.rpc") / "pages"
    return {
        "/": Document.of("text/html", (pages / "index.html").read_bytes()),
        "/openapi.json": Document.of("application/json", (pages / "openapi.json").read_bytes()),
    }


def documents_of_console() -> Mapping[str, Document]:
    """Return the files of the console by their paths; the page itself is at the root."""
    return _files("console", root="/", policy=_STRICT)


def documents_with_page() -> Mapping[str, Document]:
    """Return the documents of all calls, and the files of the page that asks people, which is at ``/ask``."""
    return {**documents(), **_files("ask", root="/ask", policy=_ASKING)}


def _files(folder: str, *, root: str, policy: str) -> Mapping[str, Document]:
    """Return the files of a folder by their paths; the page itself is at `root`."""
    read = {file.name: file.read_bytes() for file in (files("topk_bandit.rpc") / folder).iterdir()}
    return {
        root if name == "index.html" else f"/{name}": Document.of(_TYPES[kind], body, policy=policy)
        for name, body in read.items()
        if (kind := PurePath(name).suffix) in _TYPES
    }
