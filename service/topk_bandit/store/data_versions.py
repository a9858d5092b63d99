"""The data versions: one number for the layout of all that a store keeps, events, records, scripts and snapshots alike.

A store has one in force, which `topk_bandit.store.redis.programs` knows. A program reads every version up to its own,
and writes the one in force if that is its own or the one before: so the program before can take over at any time until
the next version is put in force. A number is never used again with another meaning.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from topk_bandit.domain.errors import NotReadyError
from topk_bandit.domain.stages import Group, Stage
from topk_bandit.domain.studies import ChoiceAnswer, DeclinedAnswer, RankingAnswer, RatingsAnswer, TiersAnswer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from topk_bandit.domain.bandits import BanditSettings
    from topk_bandit.domain.slates import ItemValues, Recommendation, RecommendationRequest
    from topk_bandit.domain.studies import Answer, StudySettings

__all__ = [
    "FIRST",
    "NEWEST",
    "OLDEST",
    "check_answer",
    "check_data_version",
    "check_item_values",
    "check_links",
    "check_recommendation",
    "check_request",
    "check_study_version",
]

FIRST = 1
"""As this version has them, digests are taken of values: they are the same whatever version is in force."""

_PROVISIONAL = _ITEM_VALUES = _STAGES = _FEATURES_ALONE = _MODELS = _TIERS = _RULES = _LINKS = _LISTS = _RESPONDENTS = (
    _TRUSTED
) = 2
"""The first with provisional rewards: their settings, their events, and open slates of which something is learned.

It is the first with item values, too: their setting, in events, and in what is kept of slates. And with stages and
groups: their settings, in requests, recommendations and events, and in what is kept of slates. And with studies whose
designs are for features alone, or that have a model of their own, and with answers in tiers or declined. And with
rules of slates, in settings and requests, those that were relaxed, and the promised exposures that were paid. And with
links of studies, titles and pictures of their items, lists that studies are given, and named respondents. And
with trusted ranges of rewards.
"""

NEWEST = 2
"""This program's own."""

OLDEST = max(FIRST, NEWEST - 1)
"""The oldest that this program writes. All can read it: the default where the version in force is not known."""


def check_data_version(settings: BanditSettings, version: int) -> None:
    """Refuse settings that a data version can't say: the program before could not take the bandit over."""
    if settings.provisional_after_ms is not None:
        _check_in_force("provisional_after", _PROVISIONAL, version)
    if settings.default_item_value is not None:
        _check_in_force("default_item_value", _ITEM_VALUES, version)
    if settings.stage is not Stage.LIVE:
        _check_in_force("stage", _STAGES, version)
    if settings.control_share:
        _check_in_force("control_share", _STAGES, version)
    if settings.guardrail_margin is not None:
        _check_in_force("guardrail_margin", _STAGES, version)
    if settings.conservative_share:
        _check_in_force("conservative_share", _STAGES, version)
    if settings.rules:
        _check_in_force("rules", _RULES, version)
    if settings.trusts_rewards:
        _check_in_force("reward_range.trusted", _TRUSTED, version)


def check_request(request: RecommendationRequest, version: int) -> None:
    """Refuse a request that a data version can't say, as `check_data_version` does."""
    if request.baseline_item_ids:
        _check_in_force("baseline_item_ids", _STAGES, version)
    if request.group_key:
        _check_in_force("group_key", _STAGES, version)
    if request.rules:
        _check_in_force("rules", _RULES, version)


def check_recommendation(given: Recommendation, version: int) -> None:
    """Refuse a recommendation that a data version can't say, as `check_data_version` does."""
    if given.stage is not Stage.LIVE or given.group is not Group.NONE or given.shadow is not None:
        _check_in_force("recommendation", _STAGES, version)
    if given.relaxed or given.paid:
        _check_in_force("recommendation", _RULES, version)


def check_study_version(settings: StudySettings, version: int) -> None:
    """Refuse settings of a study that a data version can't say, as `check_data_version` does."""
    if settings.features_alone:
        _check_in_force("study.features_alone", _FEATURES_ALONE, version)
    if settings.model is not None or settings.stream_rate is not None:
        _check_in_force("study.model", _MODELS, version)
    if settings.lists:
        _check_in_force("study.lists", _LISTS, version)
    if any(item.title or item.picture_url for item in settings.items):
        _check_in_force("a title or a picture of an item", _LINKS, version)


def check_links(version: int) -> None:
    """Refuse a link where a data version can't say it, as `check_data_version` does."""
    _check_in_force("a link", _LINKS, version)


def check_answer(answer: Answer, version: int, *, respondent: str = "") -> None:
    """Refuse an answer that a data version can't say, as `check_data_version` does."""
    if respondent:
        _check_in_force("respondent", _RESPONDENTS, version)
    match answer:
        case TiersAnswer():
            _check_in_force("an answer in tiers", _TIERS, version)
        case DeclinedAnswer():
            _check_in_force("a declined answer", _TIERS, version)
        case RatingsAnswer() | RankingAnswer() | ChoiceAnswer():
            pass


def check_item_values(version: int, *item_values: Mapping[str, float] | ItemValues | None) -> None:
    """Refuse item values that a data version can't say, as `check_data_version` does; what is empty has none."""
    if any(item_values):
        _check_in_force("item_values", _ITEM_VALUES, version)


def _check_in_force(field: str, needed: int, version: int) -> None:
    if version < needed:
        raise NotReadyError(
            "DATA_VERSION",
            f"{field} needs data version {needed}, and {version} is in force: once no worker of the "
            "version before is needed any more, topk-bandit finalize-upgrade puts it in force",
        )
