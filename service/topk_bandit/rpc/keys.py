"""Keys: how they are made, written down without their secrets, and found by what a caller shows.

A secret is 256 random bits, so nobody can try them all, and one SHA-256 of it is as good as any hash: slow ones are for
passwords that people choose, and would cost each call milliseconds. This module does no I/O and knows no clock.
"""

from __future__ import annotations

import hmac
import json
import re
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from topk_bandit.domain.access import EVERY_TENANT, TENANTS, Key, Scope
from topk_bandit.domain.errors import ConfigurationError
from topk_bandit.domain.ids import ID_RULE
from topk_bandit.domain.json_text import JsonError, parse_json

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["MOST_ALIKE", "SECRET_BYTES", "KeyRing", "new_key", "parse_keys", "print_keys"]

SECRET_BYTES = 32
MOST_ALIKE = 2
"""How many keys a tenant may have with the same scopes: the one in use, and the one that takes its place."""

_NOBODY = bytes(sha256().digest_size)
_SHOWN = re.compile(r"(?i:bearer) +([A-Za-z0-9_-]{1,64})\.([A-Za-z0-9_-]{43})")
_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_FIELDS = {"id", "tenant", "scopes", "sha256", "created"}


class KeyRing:
    """The keys that a service knows.

    Raises
    ------
    ConfigurationError
        Two have the same id, or a tenant has more than two with the same scopes.
    """

    def __init__(self, keys: Iterable[Key] = ()) -> None:
        self.keys: tuple[Key, ...] = ()
        self._by_id: dict[str, Key] = {}
        for key in keys:
            self._add(key)

    def _add(self, key: Key) -> None:
        if key.id in self._by_id:
            raise ConfigurationError(f"two keys have the id {key.id}")
        alike = [one.id for one in self.keys if (one.tenant, one.scopes) == (key.tenant, key.scopes)]
        if len(alike) >= MOST_ALIKE:
            owner = "every tenant" if key.tenant == EVERY_TENANT else f"tenant {key.tenant}"
            problem = f"{owner} has two keys with the scopes {', '.join(sorted(key.scopes))} already"
            raise ConfigurationError(f"{problem}, {' and '.join(alike)}: revoke one first")
        self.keys = (*self.keys, key)
        self._by_id[key.id] = key

    def find(self, shown: str) -> Key | None:
        """Return the key of an ``authorization`` header; None if it is none, or its secret is not the key's.

        It takes the same time for an unknown id as for a wrong secret.
        """
        match = _SHOWN.fullmatch(shown)
        if match is None:
            return None
        key = self._by_id.get(match[1])
        digest = _NOBODY if key is None else key.digest
        return key if hmac.compare_digest(sha256(match[2].encode()).digest(), digest) else None

    def with_key(self, key: Key) -> KeyRing:
        """Return these keys and another one."""
        return KeyRing((*self.keys, key))

    def without(self, key_id: str) -> KeyRing:
        """Return these keys but one; `ConfigurationError` if it is not among them."""
        if key_id not in self._by_id:
            raise ConfigurationError(f"there is no key {key_id!r}")
        return KeyRing(one for one in self.keys if one.id != key_id)


def new_key(*, key_id: str, secret: str, tenant: str, scopes: Iterable[Scope], created: str) -> Key:
    """Return a key for a secret.

    Raises
    ------
    ConfigurationError
        The tenant is not the id of one, or there is no scope.
    """
    if not TENANTS.fullmatch(tenant):
        raise ConfigurationError(f"{tenant!r} is no tenant: {ID_RULE}, or *")
    if not (of := frozenset(scopes)):
        raise ConfigurationError(f"a key needs a scope: {', '.join(Scope)}")
    return Key(key_id, tenant, of, sha256(secret.encode()).digest(), created)


def print_keys(ring: KeyRing) -> str:
    """Return the text of a keys file."""
    entries = [
        {
            "id": key.id,
            "tenant": key.tenant,
            "scopes": sorted(key.scopes),
            "sha256": key.digest.hex(),
            "created": key.created,
        }
        for key in ring.keys
    ]
    return json.dumps({"keys": entries}, indent=2) + "\n"


def parse_keys(text: str) -> KeyRing:
    """Return the keys of a keys file's text.

    Raises
    ------
    ConfigurationError
        It is not what `print_keys` writes; the message says where, and repeats no digest.
    """
    try:
        content = parse_json(text)
    except JsonError:
        raise ConfigurationError("is not JSON") from None
    if not isinstance(content, dict) or set(content) != {"keys"} or not isinstance(content["keys"], list):
        raise ConfigurationError('is not {"keys": [...]}, as `topk-bandit keys create` writes it')
    return KeyRing(_key(entry, f"keys[{index}]") for index, entry in enumerate(content["keys"]))


def _key(entry: Any, where: str) -> Key:  # noqa: ANN401 - whatever JSON has
    if not isinstance(entry, dict) or set(entry) != _FIELDS:
        raise ConfigurationError(f"{where} must have {', '.join(sorted(_FIELDS))}, and nothing else")
    for name, pattern in (("id", _ID), ("tenant", TENANTS), ("sha256", _DIGEST)):
        if not isinstance(entry[name], str) or not pattern.fullmatch(entry[name]):
            raise ConfigurationError(f"{where}.{name} is not {pattern.pattern}")
    scopes, created = entry["scopes"], entry["created"]
    if not isinstance(scopes, list) or not scopes or not all(scope in list(Scope) for scope in scopes):
        raise ConfigurationError(f"{where}.scopes must be some of {', '.join(Scope)}")
    if not (isinstance(created, str) and created.isprintable()):
        raise ConfigurationError(f"{where}.created is not text that can be printed")
    of = frozenset(Scope(scope) for scope in scopes)
    return Key(entry["id"], entry["tenant"], of, bytes.fromhex(entry["sha256"]), created)
