"""What a well-formed text or picture is that people see in a study; see `topk_bandit.rpc.fields`."""

from __future__ import annotations

from urllib.parse import urlsplit

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.rpc import fields

__all__ = ["picture_url", "text", "title"]

_MAX_TITLE_BYTES = 200
_MAX_URL_LENGTH = 500


def title(path: str, value: str) -> str:
    """Return a heading or an item's title, which may be empty."""
    return text(path, value, most_bytes=_MAX_TITLE_BYTES)


def text(path: str, value: str, *, most_bytes: int) -> str:
    """Return a text that people read, which may be empty."""
    return value and fields.sentence(path, value, most_bytes=most_bytes)


def picture_url(path: str, value: str) -> str:
    """Return the address of a picture, which may be empty: of HTTPS, which nobody on the way can change."""
    if not value:
        return ""
    is_plain = value.isascii() and value.isprintable() and " " not in value and len(value) <= _MAX_URL_LENGTH
    try:
        parts = urlsplit(value) if is_plain else None
        host = parts.hostname if parts is not None and parts.scheme == "https" and "@" not in parts.netloc else None
    except ValueError:
        host = None
    if not host or not value.startswith("https://"):
        problem = f"must begin with https:// and a host, of at most {_MAX_URL_LENGTH} printable ASCII characters"
        raise InvalidArgumentError(path, f"{problem}, not {fields.quote_text(value)}")
    return value
