"""Which action goes to which slot, and with what probability. No I/O here."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from topk_bandit.compat.personalizer.messages import Slot

__all__ = ["baseline_slate", "place", "probabilities"]


def place(slate: Sequence[str], slots: Sequence[Slot], candidates: Sequence[str]) -> tuple[str, ...] | None:
    """Return an action for each slot, none twice and none where it is excluded; None if there is no such placement.

    Actions of the slate stay where they are if they may; else the others of the slate are tried, and then those of
    `candidates`, in their order (augmenting paths of a bipartite matching).
    """
    others = [one for one in candidates if one not in set(slate)]
    wishes = [
        [one for one in (own, *slate, *others) if one not in slot.excluded]
        for own, slot in zip(slate, slots, strict=True)
    ]
    placed = {own: place for place, own in enumerate(slate) if own not in slots[place].excluded}
    for number in range(len(slots)):
        if number not in placed.values() and not _seat(number, wishes, placed, set()):
            return None
    actions = {number: action for action, number in placed.items()}
    return tuple(actions[number] for number in range(len(slots)))


def _seat(number: int, wishes: Sequence[Sequence[str]], placed: dict[str, int], tried: set[str]) -> bool:
    """Find an action for a slot, moving others along; return whether there is one."""
    for action in wishes[number]:
        if action in tried:
            continue
        tried.add(action)
        if action not in placed or _seat(placed[action], wishes, placed, tried):
            placed[action] = number
            return True
    return False


def baseline_slate(slots: Sequence[Slot], candidates: Sequence[str]) -> tuple[str, ...]:
    """Return what the shop would show: each slot's baseline action, and the first that is left where there is none."""
    wanted = [slot.baseline for slot in slots]
    chosen: list[str] = []
    for slot, own in zip(slots, wanted, strict=True):
        left = [one for one in candidates if one not in chosen and one not in slot.excluded]
        free = [one for one in left if one not in wanted] or left or [one for one in candidates if one not in chosen]
        chosen.append(own if own in left else free[0])
    return tuple(chosen)


def probabilities(
    actions: Sequence[str], candidates: Collection[str], chosen: str, propensity: float
) -> dict[str, float]:
    """Return a probability for each action, the chosen one first; they add up to 1.

    That of the chosen one is exact. The others share the rest evenly, which is exact where the best action was chosen
    (exploration draws all others alike), and where there are two; an action that is no candidate has 0.
    """
    rest = (1.0 - propensity) / (len(candidates) - 1) if len(candidates) > 1 else 0.0
    own = propensity if len(candidates) > 1 else 1.0
    return {chosen: own} | {one: rest if one in candidates else 0.0 for one in actions if one != chosen}
