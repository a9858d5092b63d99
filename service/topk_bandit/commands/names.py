"""Bandits and studies as a person names them at a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.rpc import fields

if TYPE_CHECKING:
    from topk_bandit.domain.bandits import BanditName
    from topk_bandit.domain.studies import StudyName

__all__ = ["bandit_named", "study_named"]


def bandit_named(text: str) -> BanditName:
    """Return the bandit that TENANT/BANDIT or the name on the wire means."""
    return fields.bandit_name("bandit", _on_the_wire("bandit", text, "bandits"))


def study_named(text: str) -> StudyName:
    """Return the study that TENANT/STUDY or the name on the wire means."""
    return fields.study_name("study", _on_the_wire("study", text, "studies"))


def _on_the_wire(field: str, text: str, kind: str) -> str:
    parts = text.removeprefix("tenants/").replace(f"/{kind}/", "/").split("/")
    if len(parts) != 2:
        raise InvalidArgumentError(field, f"must be TENANT/{field.upper()}, not {text[:256]!r}")
    return f"tenants/{parts[0]}/{kind}/{parts[1]}"
