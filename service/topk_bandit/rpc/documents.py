"""What the HTTP server has to read: the OpenAPI document of all calls, and a page that shows it and makes calls.

Both are files of the package and the same for the life of a process. A browser keeps them, and asks each time whether
they are still the same.
"""

from __future__ import annotations

import gzip
from hashlib import sha256
from importlib.resources import files
from typing import TYPE_CHECKING, NamedTuple, Self

from aiohttp import ETag, web

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Document", "documents"]

_HEADERS = {
    "Cache-Control": "no-cache",
    "Vary": "Accept-Encoding",
    "X-Content-Type-Options": "nosniff",
    # The page has its style and its script in itself, and talks to nobody but its own server.
    "Content-Security-Policy": "default-src 'none'; connect-src 'self'; img-src data:; script-src 'unsafe-inline'; "
    "style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
}


class Document(NamedTuple):
    """One file, as it is and compressed.

    Attributes
    ----------
    tag
        Changes with the content.
    """

    content_type: str
    body: bytes
    compressed: bytes
    tag: ETag

    @classmethod
    def of(cls, content_type: str, body: bytes) -> Self:
        """Return a document of a content."""
        # The tag is weak, since it stands for the compressed bytes too.
        return cls(content_type, body, gzip.compress(body, mtime=0), ETag(sha256(body).hexdigest()[:32], is_weak=True))

    def answer(self, request: web.BaseRequest) -> web.Response:
        """Return the document, or that the one which the browser has is the same."""
        if any(tag.value in {self.tag.value, "*"} for tag in request.if_none_match or ()):
            response = web.Response(status=304, headers=_HEADERS)
        else:
            response = self._whole(compressed="gzip" in request.headers.get("Accept-Encoding", ""))
        response.etag = self.tag
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
    package = files("topk_bandit")
    return {
        "/": Document.of("text/html", package.joinpath("rpc", "pages", "index.html").read_bytes()),
        "/openapi.json": Document.of("application/json", package.joinpath("v1", "openapi.json").read_bytes()),
    }
