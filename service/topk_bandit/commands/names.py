"""Bandits as a person names them at a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.rpc import fields

if TYPE_CHECKING:
    from topk_bandit.domain.bandits import BanditName

__all__ = ["bandit_named"]


def bandit_named(text: str) -> BanditName:
    """Return the bandit that TENANT/BANDIT or the name on the wire means."""
    parts = text.removeprefix("tenants/").replace("/bandits/", "/").split("/")
    if len(parts) != 2:
        raise InvalidArgumentError("bandit", f"must be TENANT/BANDIT, not {text[:256]!r}")
    return fields.bandit_name("bandit", f"tenants/{parts[0]}/bandits/{parts[1]}")
