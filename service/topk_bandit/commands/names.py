"""Bandits and studies as a person names them at a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.rpc import fields

if TYPE_CHECKING:
    import argparse

    from topk_bandit.domain.bandits import BanditName
    from topk_bandit.domain.studies import StudyName

__all__ = ["add_bandit", "add_study", "bandit_named", "study_named"]


def add_bandit(parser: argparse.ArgumentParser) -> None:
    """Add the argument that names a bandit."""
    parser.add_argument("bandit", metavar="TENANT/BANDIT", help="which one; tenants/TENANT/bandits/BANDIT is as good")


def add_study(parser: argparse.ArgumentParser) -> None:
    """Add the argument that names a study."""
    parser.add_argument("study", metavar="TENANT/STUDY", help="which one; tenants/TENANT/studies/STUDY is as good")


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
