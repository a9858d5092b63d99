"""Values of who may call what, without behaviour."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum

from topk_bandit.domain.ids import ID

__all__ = ["EVERY_TENANT", "TENANTS", "Key", "Scope"]

EVERY_TENANT = "*"
"""Stands for the tenant in the keys of operators."""

TENANTS = re.compile(rf"{ID.pattern}|\*")
"""What the tenant of a key may be."""


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
