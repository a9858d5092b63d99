"""Rules of a slate as parts of stored documents, written and read; equal rules have equal documents."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import astuple

from topk_bandit.domain.rules import Apart, Count, Exclude, Exposure, Filter, Frequency, Group, Pin, SlateRule
from topk_bandit.store.documents import Layout, any_of, derive, read

if TYPE_CHECKING:
    from collections.abc import Iterable

    from topk_bandit.domain.rules import Rule
    from topk_bandit.store.documents import Document

__all__ = ["RuleLayout", "rules_document"]


class _Rule(Layout, tag_field="kind"):
    may_relax: bool

    def read(self) -> SlateRule:
        may_relax, *said = astuple(self)
        return SlateRule(self.of(*map(read, said)), may_relax)


_KINDS: dict[type[Rule], str] = {
    Exclude: "exclude",
    Filter: "filter",
    Pin: "pin",
    Count: "count",
    Apart: "apart",
    Exposure: "exposure",
    Frequency: "frequency",
}
if TYPE_CHECKING:
    RuleLayout = _Rule
else:
    _PARTS = {"Group": derive(Group)}
    RuleLayout = any_of(derive(kind, _Rule, tag=tag, parts=_PARTS) for kind, tag in _KINDS.items())


def rules_document(rules: Iterable[SlateRule]) -> list[Document]:
    """Return rules in their order."""
    return [
        {
            "kind": _KINDS[type(one.rule)],
            "may_relax": one.may_relax,
            **{name: getattr(one.rule, name) for name in one.rule.__dataclass_fields__},
        }
        for one in rules
    ]
