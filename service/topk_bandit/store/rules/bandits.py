"""What becomes of a bandit: its settings, its items, imports into it, and what is noted of its log.

Each rule finds its own effect, so that a call may be sent again: it then changes nothing, and answers as the first one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from topk_bandit.domain.bandits import WHOLE_ITEMS, Item
from topk_bandit.domain.features import Features
from topk_bandit.store.events import BanditReset, ItemsChanged, SettingsChanged
from topk_bandit.store.log import (
    MOST_IMPORT_PARTS,
    MOST_SKIPPED,
    ImportOutcome,
    LostEvents,
    RecordStatus,
)
from topk_bandit.store.refusals import refusal
from topk_bandit.store.rules.decisions import Commit, Decision, Life, Loss, appended
from topk_bandit.store.rules.imports import KnownImport, recall_part

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topk_bandit.domain.bandits import BanditSettings, ItemMask, Prior
    from topk_bandit.store.events import Imported
    from topk_bandit.store.log import ImportPart, Skip
    from topk_bandit.store.rules.decisions import Known

__all__ = [
    "change_items",
    "change_settings",
    "merge_item",
    "note_loss",
    "record_part",
    "reset",
    "skip",
]


def change_settings(
    known: Known, settings: BanditSettings, *, revision: int, prior: Prior | None, reason: str
) -> Decision[None]:
    """Decide what becomes of settings; see `Store.update_settings`."""
    is_same = known.settings == settings
    # Of several workers that take a bandit off one does it, and has to know that.
    if known.revision != revision and (reason or not is_same):
        raise refusal("revision_changed", known.name)
    if is_same:
        return Decision(None, Commit())
    return Decision(None, Commit((SettingsChanged(settings, prior, reason),), settings=settings, revises=True))


def reset(known: Known, request_id: str) -> Decision[None]:
    """Decide what becomes of a reset; see `Store.reset_bandit`."""
    if _life(known).reset_by == request_id:
        return Decision(None, Commit())
    return Decision(None, Commit((BanditReset(request_id),), reset_by=request_id, revises=True))


def change_items(
    known: Known, *, upserted: Sequence[Item], retired: Sequence[str], mask: ItemMask = WHOLE_ITEMS
) -> Decision[None]:
    """Decide what becomes of items; see `Store.change_items`."""
    after: dict[str, Item | None] = dict.fromkeys(known.retired) | dict(known.items)
    count = known.item_count
    changed: list[Item] = []
    gone: list[str] = []
    for item in upserted:
        before = after.get(item.item_id)
        if before is None and item.item_id in after:
            raise refusal("item_retired", known.name, item.item_id)
        if before is None and not mask.creates:
            raise refusal("no_item", known.name, item.item_id)
        if before is None and count >= known.settings.item_capacity:
            raise refusal("item_capacity", known.name, known.settings.item_capacity)
        count += before is None
        merged = item if before is None else merge_item(before, item, mask)
        if merged != before:
            after[item.item_id] = merged
            changed.append(merged)
    for item_id in retired:
        if item_id not in after:
            raise refusal("no_item", known.name, item_id)
        if after[item_id] is not None:
            after[item_id] = None
            gone.append(item_id)
    if not (changed or gone):
        return Decision(None, Commit())
    commit = Commit(
        (ItemsChanged(upserted=tuple(changed), retired=tuple(gone)),),
        items={key: after[key] for key in dict.fromkeys([*(item.item_id for item in changed), *gone])},
        items_position=known.items_position,
    )
    return Decision(None, commit)


def merge_item(before: Item, given: Item, mask: ItemMask) -> Item:
    """Return an item with the parts that a mask names as they are given; a named feature that is not given is gone."""
    available = given.available if mask.availability else before.available
    if mask.features is None:
        return Item(given.item_id, available, given.features)
    kept = {name: value for name, value in before.features.values if name not in mask.features}
    named = {name: value for name, value in given.features.values if name in mask.features}
    return Item(given.item_id, available, Features.of(kept | named))


def record_part(
    known: Known, part: ImportPart, event: Imported | None, *, incarnation: str, items_position: int
) -> Decision[ImportOutcome]:
    """Decide what becomes of a part of an import; see `Store.record_import`."""
    outcome = recall_part(_imported(known), part)
    if outcome is not None:
        return Decision(outcome, Commit())
    if (known.incarnation, known.items_position) != (incarnation, items_position):
        return Decision(ImportOutcome(RecordStatus.STALE))
    if _imported(known).n_parts >= MOST_IMPORT_PARTS:
        raise refusal("import_count", known.name)
    position = 0 if event is None else appended(0)
    outcome = ImportOutcome(RecordStatus.RECORDED, part.next_row, part.accepted, position)
    commit = Commit(
        () if event is None else (event,),
        part=(part, outcome),
        clamped=0 if event is None else part.clamped,
        items_position=items_position,
    )
    return Decision(outcome, commit)


def skip(known: Known, wanted: Skip) -> Decision[bool]:
    """Decide what becomes of an event that is to be passed over; see `Store.skip_event`."""
    skipped = _life(known).skipped
    if wanted.position in skipped:
        return Decision(answer=True, commit=Commit())
    looked_at = wanted.incarnation, wanted.revision, wanted.items_position
    if (known.incarnation, known.revision, known.items_position) != looked_at:
        return Decision(answer=False)
    if not max(2, known.first_position) <= wanted.position <= known.log_position:
        raise refusal("event_not_skippable", known.name, wanted.position)
    if sum(one >= known.first_position for one in skipped) >= MOST_SKIPPED:
        raise refusal("skip_count", known.name)
    events = tuple(event for event in (wanted.settings, wanted.items) if event is not None)
    return Decision(answer=True, commit=Commit(events, skip=wanted, revises=True, items_position=wanted.items_position))


def note_loss(known: Known, *, incarnation: str, after: int, end: int, rewards: Sequence[int]) -> Decision[LostEvents]:
    """Decide what is new of a loss; see `Store.note_loss`."""
    if known.incarnation != incarnation:
        raise refusal("no_bandit", known.name)
    before = _life(known).loss
    start = before.end if before.after == after else after
    new = LostEvents(max(0, end - start), sum(position > start for position in rewards))
    if not new.events:
        return Decision(new)
    total = LostEvents(before.total.events + new.events, before.total.rewards + new.rewards)
    return Decision(new, Commit(loss=Loss(after, end, total)))


def _life(known: Known) -> Life:
    return known.life or Life()


def _imported(known: Known) -> KnownImport:
    return known.imported or KnownImport()
