"""Keys for tests: made as the command makes them, without its randomness."""

from __future__ import annotations

from typing import TYPE_CHECKING

from topk_bandit.domain.access import Scope
from topk_bandit.rpc.keys import KeyRing, new_key

if TYPE_CHECKING:
    from collections.abc import Iterable

    from topk_bandit.domain.access import Key

__all__ = ["SECRETS", "bearer", "key", "ring", "shown"]

SECRETS = {name: name.ljust(43, "_") for name in ("acme", "globex", "root", "scope", "second", "third")}


def key(key_id: str, tenant: str = "acme", scopes: Iterable[Scope] = Scope) -> Key:
    return new_key(key_id=key_id, secret=SECRETS[key_id], tenant=tenant, scopes=scopes, created="2026-11-22T00:00:00Z")


def ring(*more: Key) -> KeyRing:
    """Return keys of two tenants and of an operator, and more."""
    return KeyRing((key("acme"), key("globex", "globex"), key("root", "*"), *more))


def shown(key_id: str) -> str:
    return f"{key_id}.{SECRETS[key_id]}"


def bearer(key_id: str) -> str:
    return f"Bearer {shown(key_id)}"
