"""Values of who may call what, without behaviour."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum

__all__ = ["EVERY_TENANT", "TENANT", "TENANT_RULE", "Key", "Scope"]

EVERY_TENANT = "*"
"""Stands for the tenant in the keys of operators."""

TENANT = re.compile(r"[A-Za-z0-9._-]{1,64}")
TENANT_RULE = "1 to 64 characters a-z, A-Z, 0-9, '.', '_' and '-'"
"""What a tenant's id is, for programs and for people."""


class Scope(StrEnum):
    """What a key may be used for; a key may have several."""

    RECOMMEND = "recommend"
    REWARD = "reward"
    MANAGE = "manage"
    OPERATE = "operate"


@dataclass(frozen=True, slots=True)
class Key:
    """A key as the service knows it, without its secret; or what a name in a caller's certificate stands for.

    Attributes
    ----------
    id
        What names it, in logs too; empty for a caller of a service without keys.
    tenant
        Whose names it is for; `EVERY_TENANT` for all.
    digest
        SHA-256 of the secret; empty for a name in a certificate.
    created
        When it was made, as a person reads it.
    """

    id: str
    tenant: str
    scopes: frozenset[Scope]
    digest: bytes = field(default=b"", repr=False)
    created: str = ""
