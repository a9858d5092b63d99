"""The URL of a store in Redis or Valkey: one grammar, for settings and for connections.

::

    redis://[user:password@]host[:port][/database][?option=value&...]
    rediss://...                                                         the same, encrypted
    unix://[user:password@]/path[?option=value&...]
    sentinel://[user:password@]host[:port],host[:port],.../service-name  the login is that of the servers

The options are those of the client library, and special characters are written as %XX. Settings accept exactly what
connections accept. Neither a message nor a shown URL ever holds a password.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, unquote, urlsplit

__all__ = ["SentinelUrl", "StoreUrl"]

_SECRET = "***"  # noqa: S105
_SENTINEL_PORT = 26379
_SENTINEL = re.compile(r"sentinel://(?:(?P<login>[^/?#]*)@)?(?P<hosts>[^/?#@]+)/(?P<service>[^/?#]+)/?")
_HOST = re.compile(r"(?:\[(?P<address>[0-9a-fA-F:.%\w]+)\]|(?P<name>[^:\[\]]+))(?::(?P<port>[0-9]{1,5}))?")
_DATABASE = re.compile(r"/?|/[0-9]{1,5}")
_SINGLE_SCHEMES = {"redis", "rediss", "unix"}


@dataclass(frozen=True, slots=True)
class SentinelUrl:
    """What a ``sentinel://`` URL names.

    Attributes
    ----------
    hosts
        Host and port of each sentinel.
    service
        The name by which the sentinels know the servers.
    username, password
        The login of the servers; empty for none.
    """

    hosts: tuple[tuple[str, int], ...]
    service: str
    username: str = field(default="", repr=False)
    password: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class StoreUrl:
    """A URL that a store can be connected with; as text it has no secret.

    Attributes
    ----------
    text
        The URL as it was given.
    shown
        The URL without its login and without the values of its options.
    sentinel
        What it names if it is a ``sentinel://`` URL, else None.
    """

    text: str = field(repr=False)
    shown: str
    sentinel: SentinelUrl | None = None

    def __str__(self) -> str:
        return self.shown

    @classmethod
    def parse(cls, text: str) -> StoreUrl:
        """Return the URL in `text`, or raise ValueError with a message that begins with "is not a URL like"."""
        try:
            return _with_sentinels(text) if text.startswith("sentinel://") else _single(text)
        except ValueError:
            # The cause is left out: a malformed URL may hold its password at any place.
            raise ValueError(
                "is not a URL like redis://host:port/0, rediss://..., unix:///path or "
                "sentinel://host:port,host:port/service-name (special characters of a password are written as %XX)"
            ) from None


def _single(text: str) -> StoreUrl:
    parts = urlsplit(text)
    place = parts.path if parts.scheme == "unix" else parts.hostname
    database = parts.scheme == "unix" or _DATABASE.fullmatch(parts.path)
    complete = bool(place) and parts.port != 0 and _is_plain(text) and database
    if not complete or parts.scheme not in _SINGLE_SCHEMES or parts.fragment:
        raise ValueError
    _, at, host = parts.netloc.rpartition("@")
    options = "&".join(f"{name}={_SECRET}" for name, _ in parse_qsl(parts.query, keep_blank_values=True))
    shown = f"{parts.scheme}://{_SECRET + at if at else ''}{host}{parts.path}" + (f"?{options}" if options else "")
    return StoreUrl(text, shown)


def _with_sentinels(text: str) -> StoreUrl:
    match = _SENTINEL.fullmatch(text)
    if match is None or not _is_plain(text):
        raise ValueError
    login, hosts, service = match["login"], match["hosts"], match["service"]
    username, _, password = (login or "").partition(":")
    shown = f"sentinel://{'' if login is None else f'{_SECRET}@'}{hosts}/{service}"
    addresses = tuple(_address(host) for host in hosts.split(","))
    return StoreUrl(text, shown, SentinelUrl(addresses, unquote(service), unquote(username), unquote(password)))


def _address(text: str) -> tuple[str, int]:
    match = _HOST.fullmatch(text)
    port = _SENTINEL_PORT if match is None or match["port"] is None else int(match["port"])
    if match is None or not 0 < port < 65536:
        raise ValueError
    return match["address"] or match["name"], port


def _is_plain(text: str) -> bool:
    return text.isprintable() and " " not in text
