"""Identities: the names in callers' certificates, and for whom each of them calls.

Only names that a trusted authority put there get here: the handshake refuses other certificates. This module does no
I/O.
"""

from __future__ import annotations

import re
import tomllib
from typing import TYPE_CHECKING, Any

from topk_bandit.domain.access import TENANTS, Key, Scope
from topk_bandit.domain.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    AuthContext = Mapping[str, Iterable[bytes]]
    ClientCertificate = Mapping[str, Any] | None

__all__ = ["Identities", "auth_context", "names_in", "parse_identities"]

_URI, _DNS, _COMMON_NAME = "peer_uri", "peer_dns", "x509_common_name"
_NAME = re.compile(r"(URI|DNS|CN):[^\x00-\x20\x7f](?:[^\x00-\x1f\x7f]{0,498}[^\x00-\x20\x7f])?")
_FIELDS = {"tenant", "scopes"}


class Identities:
    """The identities that a service knows, each as the key that it stands for.

    Raises
    ------
    ConfigurationError
        Two are the same.
    """

    def __init__(self, keys: Iterable[Key] = ()) -> None:
        self._by_name: dict[str, Key] = {}
        for key in keys:
            if key.id in self._by_name:
                raise ConfigurationError(f"two entries are for {key.id}")
            self._by_name[key.id] = key

    def find(self, names: Iterable[str]) -> Key | None:
        """Return whose certificate has these names; None if no name is known, or more than one."""
        found = [self._by_name[name] for name in dict.fromkeys(names) if name in self._by_name]
        return found[0] if len(found) == 1 else None


def names_in(auth: AuthContext) -> tuple[str, ...]:
    """Return the names in a caller's certificate, as the file of identities writes them; none without a certificate.

    The subject's common name counts only where there are neither URIs nor DNS names among the alternative ones.
    """
    alternative = [f"URI:{name}" for name in _texts(auth, _URI)] + [_of_dns(name) for name in _texts(auth, _DNS)]
    return tuple(alternative or [f"CN:{name}" for name in _texts(auth, _COMMON_NAME)][:1])


def _texts(auth: AuthContext, kind: str) -> list[str]:
    return [name.decode(errors="replace") for name in auth.get(kind, ())]


def _of_dns(name: str) -> str:
    return f"DNS:{name.lower()}"


def auth_context(certificate: ClientCertificate) -> AuthContext:
    """Return what gRPC would report of a caller's certificate, from what `ssl` reports of it."""
    parts = certificate or {}
    common = [text for part in parts.get("subject", ()) for kind, text in part if kind == "commonName"]
    names = parts.get("subjectAltName", ())
    found = {
        _URI: [text for kind, text in names if kind == "URI"],
        _DNS: [text for kind, text in names if kind == "DNS"],
        _COMMON_NAME: common,
    }
    return {kind: [text.encode(errors="replace") for text in texts] for kind, texts in found.items()}


def parse_identities(text: str) -> Identities:
    """Return the identities in a file's text.

    Raises
    ------
    ConfigurationError
        It has something else; the message says where.
    """
    try:
        tables = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"is not TOML: {error}") from None
    return Identities(_key(name, table) for name, table in tables.items())


def _key(name: str, table: Any) -> Key:  # noqa: ANN401 - whatever TOML has
    if not _NAME.fullmatch(name):
        raise ConfigurationError(f'{name!r} is no identity: write ["URI:..."], ["DNS:..."] or ["CN:..."], with quotes')
    if not isinstance(table, dict) or set(table) != _FIELDS:
        raise ConfigurationError(f"{name} must have {' and '.join(sorted(_FIELDS))}, and nothing else")
    tenant, scopes = table["tenant"], table["scopes"]
    if not isinstance(tenant, str) or not TENANTS.fullmatch(tenant):
        raise ConfigurationError(f"{name}: tenant is not {TENANTS.pattern}")
    if not isinstance(scopes, list) or not scopes or not all(scope in list(Scope) for scope in scopes):
        raise ConfigurationError(f"{name}: scopes must be some of {', '.join(Scope)}")
    known = _of_dns(name.removeprefix("DNS:")) if name.startswith("DNS:") else name
    return Key(known, tenant, frozenset(Scope(scope) for scope in scopes))
