"""Whose slate a request gets: the bandit's own, or a baseline slate, by the bandit's stage and the request's group.

A group is drawn by a hash of the request's group key: it is the same in every worker and service, and after a restart.
Where the control share grows, keys move from the bandit to the control group, and none the other way; see decision 79.
"""

from __future__ import annotations

import math
from hashlib import blake2b
from typing import TYPE_CHECKING

from topk_bandit.domain.errors import NotReadyError
from topk_bandit.domain.replacing import replace
from topk_bandit.domain.stages import Group, Stage

if TYPE_CHECKING:
    from topk_bandit.bandits.model import Model
    from topk_bandit.domain.slates import Recommendation, RecommendationRequest

__all__ = ["baseline_of", "count_given", "gets_baseline", "group_of", "no_baseline"]

_BITS = 64


def group_of(model: Model, request: RecommendationRequest) -> Group:
    """Return the group that a request is drawn to; NONE where there is none, or no slate is the bandit's.

    What is not drawn to the control group is CONSERVATIVE while the
    bandit has no more to lose.
    """
    settings = model.settings
    share, conservative = settings.control_share, settings.conservative_share
    if not ((share or conservative) and settings.stage.shows_own):
        return Group.NONE
    if share and _is_in_control(model, request, share):
        return Group.CONTROL
    may_show_own = not conservative or model.comparison.may_show_own(conservative)
    return Group.BANDIT if may_show_own else Group.CONSERVATIVE


def _is_in_control(model: Model, request: RecommendationRequest, share: float) -> bool:
    """Return whether a request's key is drawn to the control group, or its id where it has none."""
    key = (request.group_key or request.request_id).encode()
    drawn = blake2b(key, key=model.incarnation.encode()[:64], person=b"group", digest_size=_BITS // 8).digest()
    return int.from_bytes(drawn) < math.ldexp(share, _BITS)


def count_given(model: Model, given: Recommendation) -> Model:
    """Return the model by which the next slate is chosen before this one is in the log: what it may lose is counted."""
    if not model.settings.conservative_share:
        return model
    return replace(model, comparison=model.comparison.draw(given))


def gets_baseline(stage: Stage, group: Group) -> bool:
    """Return whether the baseline slate is shown whatever the bandit would choose."""
    return group.gets_baseline or not stage.shows_own


def baseline_of(model: Model, request: RecommendationRequest) -> tuple[str, ...]:
    """Return the baseline slate for a request: the caller's own, or the bandit's; empty without one."""
    return request.baseline_item_ids or model.settings.baseline_item_ids


def no_baseline(model: Model, request: RecommendationRequest, group: Group) -> NotReadyError:
    """Return the error NO_BASELINE for a request that is to get a baseline slate, and has none that can be shown."""
    why = {
        Group.CONTROL: "the request is in the control group",
        Group.CONSERVATIVE: "the bandit has no more to lose by its conservative_share",
    }.get(group, f"the bandit is {model.settings.stage.phrase}")
    slate = baseline_of(model, request)
    hidden = model.items.find_hidden(slate)
    problem = f"item {hidden[0][:128]!r} of it can't be shown" if hidden else "neither of them has one"
    return NotReadyError(
        "NO_BASELINE",
        f"{why}, and a baseline slate is needed, of the request or the bandit: {problem}",
        hidden=len(hidden),
    )
