"""The errors with which a store of bandits refuses a call, by the word that its scripts answer with.

Every store raises these, so that a caller never sees which store it talks to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from topk_bandit.domain.errors import (
    ConflictError,
    ExhaustedError,
    InvalidArgumentError,
    NotFoundError,
    TopkBanditError,
)
from topk_bandit.store.codec import canonical

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from topk_bandit.domain.bandits import BanditName

__all__ = ["REFUSALS", "finite_text", "refusal"]


def _quota(name: BanditName, quota: str) -> TopkBanditError:
    return ExhaustedError("BANDIT_QUOTA", f"tenants/{name.tenant} has its quota of {quota} bandits")


def _exists(name: BanditName, _: str) -> TopkBanditError:
    return ConflictError("BANDIT_EXISTS", f"{name} exists with other settings")


def _revision(name: BanditName, _: str) -> TopkBanditError:
    return ConflictError("REVISION_CHANGED", f"{name} was changed by somebody else")


def _item_retired(_: BanditName, item_id: str) -> TopkBanditError:
    return ConflictError("ITEM_RETIRED", f"item {item_id} was retired, and its id can't be used again")


def _item_capacity(name: BanditName, capacity: str) -> TopkBanditError:
    return ExhaustedError("ITEM_CAPACITY", f"{name} has room for {capacity} items, retired ones counted")


def _reused(_: BanditName, __: str) -> TopkBanditError:
    return ConflictError("REQUEST_ID_REUSED", "the request id was used with another context or other candidates")


def _reward_exists(_: BanditName, recommendation_id: str) -> TopkBanditError:
    return ConflictError("REWARD_EXISTS", f"recommendation {recommendation_id} has another reward already")


REFUSALS: Mapping[str, Callable[[BanditName, str], TopkBanditError]] = {
    "bandit_exists": _exists,
    "full": _quota,
    "item_capacity": _item_capacity,
    "item_retired": _item_retired,
    "no_bandit": lambda name, _: NotFoundError(str(name)),
    "no_item": lambda name, item_id: NotFoundError(f"{name}/items/{item_id}"),
    "no_recommendation": lambda name, key: NotFoundError(f"{name}/recommendations/{key}"),
    "request_id_reused": _reused,
    "revision_changed": _revision,
    "reward_exists": _reward_exists,
}
"""By the word that the scripts answer with."""


def refusal(word: str, name: BanditName, detail: object = "") -> TopkBanditError:
    """Return the error for a refusal; `detail` is the id or number that it is about."""
    return REFUSALS[word](name, str(detail))


def finite_text(field: str, value: float) -> str:
    """Return the one text of a number, or raise `InvalidArgumentError` for one that can't be stored."""
    try:
        return canonical(value)
    except ValueError as error:
        raise InvalidArgumentError(field, "must be a finite number") from error
