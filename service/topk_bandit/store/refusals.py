"""The errors with which a store of bandits refuses a call, by the word that its scripts answer with.

Every store raises these, so that a caller never sees which store it talks to. Nothing here decides whether to refuse.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from topk_bandit.domain.errors import (
    ConflictError,
    ExhaustedError,
    InvalidArgumentError,
    NotFoundError,
    NotReadyError,
    QuotaError,
    TopkBanditError,
)
from topk_bandit.domain.quotas import Quota
from topk_bandit.store.codec import canonical
from topk_bandit.store.log import MOST_IMPORT_PARTS, MOST_REWARDS, MOST_SKIPPED

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from topk_bandit.domain.bandits import BanditName

__all__ = ["REFUSALS", "finite_text", "import_gap", "import_reused", "quota_refusal", "refusal"]


def import_gap(row: str) -> NotReadyError:
    """Return the error for rows that come too early; `row` is the one to go on with."""
    return NotReadyError("IMPORT_GAP", f"the import goes on with row {row}", next_row=int(row))


def import_reused(row: str) -> ConflictError:
    """Return the error for other rows than those that the import has."""
    return ConflictError("IMPORT_REUSED", f"the import has other rows from row {row} on, or took them in other parts")


REFUSALS: Mapping[str, Callable[[BanditName, str], TopkBanditError]] = {
    "activation_exists": lambda _, key: ConflictError(
        "ACTIVATION_EXISTS", f"recommendation {key} is active with another slate"
    ),
    "skip_count": lambda name, _: ExhaustedError(
        "SKIP_COUNT", f"{MOST_SKIPPED} events of the log of {name} were passed over already", retry_after=None
    ),
    "wrong_slate": lambda _, size: InvalidArgumentError(
        "shown_item_ids", f"must name {size} items, as many as the slate has"
    ),
    "arrival_replaced": lambda name, _: ConflictError("ARRIVAL_REPLACED", f"another import into {name} has begun"),
    "arrived": lambda name, _: ConflictError("BANDIT_ARRIVED", f"{name} exists: an import makes its bandit anew"),
    "left": lambda name, _: NotReadyError(
        "BANDIT_DAMAGED", f"the store has lost the record of {name} and not the rest of it: delete that first"
    ),
    "bandit_exists": lambda name, _: ConflictError("BANDIT_EXISTS", f"{name} exists with other settings"),
    "event_not_skippable": lambda name, position: NotReadyError(
        "EVENT_NOT_SKIPPABLE", f"what is left of the log of {name} has no event {position} that can be passed over"
    ),
    "full": lambda name, text: quota_refusal(Quota.BANDITS, name.tenant, text),
    "import_count": lambda name, _: ExhaustedError(
        "IMPORT_COUNT", f"{name} has taken {MOST_IMPORT_PARTS} parts of imports", retry_after=None
    ),
    "item_capacity": lambda name, capacity: ExhaustedError(
        "ITEM_CAPACITY", f"{name} has room for {capacity} items, retired ones not counted; item_capacity can be raised"
    ),
    "item_retired": lambda _, item_id: ConflictError(
        "ITEM_RETIRED", f"item {item_id} was retired, and its id can't be used again"
    ),
    "no_bandit": lambda name, _: NotFoundError(str(name)),
    "no_item": lambda name, item_id: NotFoundError(f"{name}/items/{item_id}"),
    "no_reward": lambda _, key: NotReadyError(
        "NO_REWARD", f"recommendation {key} has no such reward that was accepted in time"
    ),
    "reward_void": lambda _, key: NotReadyError("REWARD_VOIDED", f"the reward of recommendation {key} was taken back"),
    "folded": lambda _, key: NotReadyError(
        "REWARD_FOLDED",
        f"the reward of recommendation {key} was learned before the last refit, and can't be told from others any more",
    ),
    "no_reward_id": lambda *_: InvalidArgumentError(
        "reward_id", "is required where a recommendation may have several rewards"
    ),
    "no_recommendation": lambda name, key: NotFoundError(f"{name}/recommendations/{key}"),
    "out_of_range": lambda _, ends: InvalidArgumentError(
        "value", "must be from {} to {}, the bandit's reward_range".format(*ends.split())
    ),
    "request_id_reused": lambda *_: ConflictError(
        "REQUEST_ID_REUSED",
        "the request id was used with another context, features, candidates, baseline slate, group key or rules",
    ),
    "slate_gone": lambda _, key: NotReadyError(
        "SLATE_GONE", f"recommendation {key} has ended, and its slate is not kept any more; ask with another id"
    ),
    "revision_changed": lambda name, _: ConflictError("REVISION_CHANGED", f"{name} was changed by somebody else"),
    "reward_count": lambda _, key: ExhaustedError(
        "REWARD_COUNT", f"recommendation {key} has {MOST_REWARDS} rewards", retry_after=None
    ),
    "reward_final": lambda _, key: ConflictError("REWARD_FINAL", f"recommendation {key} has had its final reward"),
    "reward_exists": lambda _, key: ConflictError(
        "REWARD_EXISTS", f"recommendation {key} has had another reward, which counts, was late or was taken back"
    ),
}
"""By the word that the scripts answer with."""


def quota_refusal(quota: Quota, tenant: str, text: str) -> QuotaError:
    """Return the error for a quota that is used up; `text` has how much the tenant has, and may have."""
    used, limit = map(int, text.split())
    return QuotaError(quota, tenant, limit=limit, used=used)


def refusal(word: str, name: BanditName, detail: object = "") -> TopkBanditError:
    """Return the error for a refusal; `detail` is the id or number that it is about."""
    return REFUSALS[word](name, str(detail))


def finite_text(field: str, value: float) -> str:
    """Return the one text of a number, or raise `InvalidArgumentError` for one that can't be stored."""
    try:
        return canonical(value)
    except ValueError as error:
        raise InvalidArgumentError(field, "must be a finite number") from error
