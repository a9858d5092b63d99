"""Requests on the fast path: a whole POST of a known length, with no header that HTTP has rules of its own for.

Nearly all calls are such requests, and are read here in a fraction of the time that the library takes. Any other
request is not refused here but left to the library, which knows all of HTTP.
"""

from __future__ import annotations

import re
from enum import Enum, auto
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["MOST_BYTES", "FastPathRequest", "NotYet", "read_fast_path_request"]

MOST_BYTES = 1 << 16
"""So long may a request on the fast path be, its head included."""

_LONGEST_HEAD = 8000  # less than the library takes, so that it is the one to refuse what is too long
_BEGINNING = b"POST /"
_END_OF_HEAD = b"\r\n\r\n"
# Possessive throughout: each byte is looked at once, whatever was sent.
_HEAD = re.compile(
    rb"POST (/[A-Za-z0-9_./]++) HTTP/1\.1\r\n"
    rb"((?:[A-Za-z0-9!#$%&'*+.^_`|~-]++:[\t\x20-\x7e\x80-\xff]*+\r\n)++)\r\n"
)
_RULES_OF_THEIR_OWN = frozenset(
    {"content-encoding", "expect", "te", "trailer", "transfer-encoding", "upgrade", "proxy-connection"}
)
_MOST_DIGITS = 5
_MOST_HEADERS = 100  # less than the library takes, likewise


class NotYet(Enum):
    """Why bytes are no request on the fast path."""

    UNFINISHED = auto()
    OTHER = auto()


class FastPathRequest(NamedTuple):
    """A whole request.

    Attributes
    ----------
    headers
        By their names in lower case; none was sent twice.
    """

    path: str
    headers: Mapping[str, str]
    body: bytes


def read_fast_path_request(sent: bytes) -> FastPathRequest | NotYet:
    """Return the request that these bytes are, if they are one on the fast path and nothing more."""
    found = _HEAD.match(sent, 0, _LONGEST_HEAD)
    if found is None:
        return NotYet.UNFINISHED if _may_become_whole(sent) else NotYet.OTHER
    headers = _headers_of(found[2][:-2])
    length = _length_by(headers)
    if length is None:
        return NotYet.OTHER
    missing = found.end() + length - len(sent)
    if not missing:
        return FastPathRequest(found[1].decode(), headers, sent[found.end() :])
    return NotYet.UNFINISHED if 0 < missing <= MOST_BYTES - len(sent) else NotYet.OTHER


def _may_become_whole(sent: bytes) -> bool:
    """Return whether the head goes on."""
    is_begun = sent.startswith(_BEGINNING) or _BEGINNING.startswith(sent)
    return is_begun and len(sent) < _LONGEST_HEAD and _END_OF_HEAD not in sent


def _headers_of(lines: bytes) -> dict[str, str]:
    """Return the headers by name; none if one is there twice."""
    headers = {}
    each = lines.decode("latin-1").split("\r\n")
    for line in each:
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip(" \t")
    return headers if len(headers) == len(each) else {}


def _length_by(headers: Mapping[str, str]) -> int | None:
    """Return how long the body is; None where the headers have rules of their own, or name no length or no host."""
    length = headers.get("content-length", "")
    if not (length.isascii() and length.isdigit() and len(length) <= _MOST_DIGITS):
        return None
    if "host" not in headers or len(headers) > _MOST_HEADERS:
        return None
    if not _RULES_OF_THEIR_OWN.isdisjoint(headers) or headers.get("connection", "keep-alive").lower() != "keep-alive":
        return None
    return int(length)
