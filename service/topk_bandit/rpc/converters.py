"""Between the wire and `topk_bandit.domain`; only this, `history`, `bandit_settings` and the like know both.

A function from a request checks the form of every field and raises `InvalidArgumentError` with the field's path on the
wire; what takes a bandit's settings or items to judge is left to the use cases.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from topk_bandit.bandits.batches import Asked
from topk_bandit.domain.bandits import WHOLE_ITEMS, Item, ItemMask
from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.domain.slates import REGRET_CONFIDENCE, RecommendationRequest, Reward
from topk_bandit.domain.studies import StudyName
from topk_bandit.rpc import fields
from topk_bandit.rpc.bandit_settings import masked_change, settings_from_proto, settings_to_proto
from topk_bandit.rpc.features import features_from_proto, features_to_proto, is_feature_name
from topk_bandit.rpc.rules import rules_from_proto
from topk_bandit.v1 import bandit_service_pb2 as bandit_pb
from topk_bandit.v1 import recommender_service_pb2 as recommender_pb
from topk_bandit.wire.bandits import STAGES
from topk_bandit.wire.forms import timestamp
from topk_bandit.wire.recommendations import ACTIVATIONS, GROUPS, OUTCOMES
from topk_bandit.wire.rules import ABSENCE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from topk_bandit.domain.bandits import BanditName, BanditSettings, Exploration
    from topk_bandit.domain.features import Context
    from topk_bandit.domain.slates import ActivationReceipt, Recommendation, RewardReceipt
    from topk_bandit.store.log import BanditRecord
    from topk_bandit.v1 import operator_service_pb2 as operator_pb

__all__ = [
    "MAX_BATCH",
    "MAX_EXPLAINED",
    "MAX_SLATES",
    "PageRequest",
    "activation_request",
    "activation_to_proto",
    "amended_reward",
    "bandit_creation",
    "bandit_page",
    "bandit_reset",
    "bandit_to_proto",
    "bandit_update",
    "bandits_to_proto",
    "batch_of_requests",
    "batch_of_rewards",
    "context_from_proto",
    "explained_items",
    "item_page",
    "item_retirement",
    "item_upsert",
    "items_to_proto",
    "receipt_to_proto",
    "recommendation_request",
    "recommendation_to_proto",
    "reward_named",
    "reward_request",
]

Receipt = TypeVar(
    "Receipt",
    recommender_pb.RewardResponse,
    recommender_pb.RewardResult,
    recommender_pb.VoidRewardResponse,
    recommender_pb.AmendRewardResponse,
)

MAX_BATCH, MAX_EXPLAINED, MAX_SLATES = 1000, 100, 100
_DEFAULT_BANDITS_PER_PAGE = 100
_MAX_BANDITS_PER_PAGE = 1000
_DEFAULT_ITEMS_PER_PAGE = 1000

_OUTCOMES, _STAGES, _GROUPS = OUTCOMES.numbers, STAGES.numbers, GROUPS.numbers
_DURABILITIES = {
    "memory": recommender_pb.DURABILITY_MEMORY,
    "fsync": recommender_pb.DURABILITY_FSYNC,
    "replicated": recommender_pb.DURABILITY_REPLICATED,
}


def recommendation_request(
    request: recommender_pb.RecommendRequest,
) -> tuple[BanditName, RecommendationRequest, int]:
    """Return whom a Recommend asks, what, and how much of the log the model has to know."""
    name = fields.bandit_name("bandit", request.bandit)
    if request.request_id:
        fields.opaque_id("request_id", request.request_id)
    wanted = RecommendationRequest(
        request_id=request.request_id,
        context=context_from_proto("", request),
        candidates=fields.item_ids("candidate_item_ids", request.candidate_item_ids) or None,
        baseline_item_ids=fields.item_ids("baseline_item_ids", request.baseline_item_ids),
        group_key=fields.opaque_id("group_key", request.group_key) if request.group_key else "",
        rules=rules_from_proto("rules", request.rules) if request.rules else (),
        explain=explained_items(request),
        known_features_only=request.known_features_only,
        frequency_key=_frequency_key(request),
    )
    return name, wanted, fields.log_position("min_model_version", request.min_model_version)


def _frequency_key(request: recommender_pb.RecommendRequest) -> str:
    """Return whom rules of frequency count for; those of the request need it, and errors do not quote it."""
    if request.frequency_key:
        return fields.secret_id("frequency_key", request.frequency_key)
    for place, one in enumerate(request.rules):
        if one.WhichOneof("rule") == "frequency":
            raise InvalidArgumentError("frequency_key", f"is required by rules[{place}].frequency")
    return ""


def explained_items(
    request: recommender_pb.RecommendRequest | operator_pb.ExplainRecommendationRequest,
) -> tuple[str, ...]:
    """Return the items of which is asked why a slate does not show them."""
    if not request.explain_item_ids:
        return ()
    fields.size("explain_item_ids", len(request.explain_item_ids), most=MAX_EXPLAINED)
    return fields.item_ids("explain_item_ids", request.explain_item_ids)


def batch_of_requests(
    request: recommender_pb.BatchRecommendRequest,
) -> tuple[BanditName, list[Asked | InvalidArgumentError]]:
    """Return which bandit a BatchRecommend asks, and for each entry what, or what is wrong with it."""
    name = fields.bandit_name("bandit", request.bandit)
    fields.size("requests", len(request.requests), most=MAX_SLATES)
    return name, [_asked(entry, request.bandit) for entry in request.requests]


def _asked(entry: recommender_pb.RecommendRequest, bandit: str) -> Asked | InvalidArgumentError:
    if entry.bandit not in {"", bandit}:
        return InvalidArgumentError("bandit", "must be the bandit of the whole call, or empty")
    entry.bandit = bandit
    try:
        _, wanted, version = recommendation_request(entry)
    except InvalidArgumentError as error:
        return error
    return Asked(wanted, version, entry.strict_candidates)


def context_from_proto(
    prefix: str,
    message: recommender_pb.RecommendRequest
    | recommender_pb.RecommendPageRequest
    | operator_pb.ListTopSlatesRequest
    | bandit_pb.PastObservation,
) -> Context:
    """Return the context or the features of a request or a row, whose path `prefix` is."""
    if not message.features:
        return fields.context_vector(f"{prefix}context", message.context)
    if message.context:
        raise InvalidArgumentError(f"{prefix}features", "can't be used together with context: leave one of them out")
    return features_from_proto(f"{prefix}features", message.features)


def recommendation_to_proto(recommendation: Recommendation) -> recommender_pb.RecommendResponse:
    """Return the reply to a Recommend."""
    return recommender_pb.RecommendResponse(
        recommendation_id=recommendation.recommendation_id,
        item_ids=recommendation.slate,
        propensity=recommendation.propensity,
        mean=recommendation.mean,
        standard_deviation=recommendation.standard_deviation,
        regret_bound=recommendation.regret_bound,
        estimated_regret=recommendation.estimated_regret,
        mode=_mode(recommendation),
        model_version=recommendation.model_version,
        observation_count=recommendation.observations,
        reward_deadline=None if recommendation.degraded else timestamp(recommendation.deadline_ms),
        degraded=recommendation.degraded,
        position_propensities=recommendation.position_propensities,
        regret_confidence=REGRET_CONFIDENCE,
        passed_over_count=recommendation.passed_over,
        stage=_STAGES[recommendation.stage],
        group=_GROUPS[recommendation.group],
        relaxed_rules=recommendation.relaxed,
        absent_items=map(ABSENCE.write, recommendation.absent),
        paid_exposures=recommendation.paid,
    )


def _mode(recommendation: Recommendation) -> recommender_pb.Mode:
    if recommendation.baseline:
        return recommender_pb.MODE_BASELINE
    return recommender_pb.MODE_EXPLORED if recommendation.explored else recommender_pb.MODE_EXPLOITED


def reward_request(request: recommender_pb.RewardRequest) -> tuple[BanditName, Reward]:
    """Return whose reward a Reward posts, and what."""
    return fields.bandit_name("bandit", request.bandit), _posted_reward(request)


def amended_reward(request: recommender_pb.AmendRewardRequest) -> tuple[BanditName, Reward]:
    """Return whose reward an AmendReward replaces, and by what."""
    name, recommendation_id, reward_id = reward_named(request)
    value = fields.reward_value("value", request.value if request.HasField("value") else None)
    items = fields.item_values("item_values", request.item_values)
    return name, Reward(recommendation_id, value, reward_id, item_values=items)


def reward_named(
    request: recommender_pb.VoidRewardRequest | recommender_pb.AmendRewardRequest,
) -> tuple[BanditName, str, str]:
    """Return whose reward is to be another, of which recommendation, and its id if it has one."""
    name = fields.bandit_name("bandit", request.bandit)
    recommendation_id = fields.opaque_id("recommendation_id", request.recommendation_id)
    return name, recommendation_id, fields.opaque_id("reward_id", request.reward_id) if request.reward_id else ""


def batch_of_rewards(
    request: recommender_pb.BatchRewardRequest,
) -> tuple[BanditName, list[Reward | InvalidArgumentError]]:
    """Return whose rewards a BatchReward posts, and for each entry the reward or what is wrong with it."""
    name = fields.bandit_name("bandit", request.bandit)
    fields.size("rewards", len(request.rewards), most=MAX_BATCH)
    return name, list(map(_entry, request.rewards))


def _entry(entry: recommender_pb.RewardEntry) -> Reward | InvalidArgumentError:
    try:
        return _posted_reward(entry)
    except InvalidArgumentError as error:
        return error


def _posted_reward(entry: recommender_pb.RewardEntry | recommender_pb.RewardRequest) -> Reward:
    value = entry.value if entry.HasField("value") else None
    return Reward(
        recommendation_id=fields.opaque_id("recommendation_id", entry.recommendation_id),
        value=fields.reward_value("value", value),
        reward_id=fields.opaque_id("reward_id", entry.reward_id) if entry.reward_id else "",
        final=entry.final,
        item_values=fields.item_values("item_values", entry.item_values),
    )


def receipt_to_proto(receipt: RewardReceipt, message: type[Receipt]) -> Receipt:
    """Return what became of a reward, as a message of this type."""
    return message(
        outcome=_OUTCOMES[receipt.outcome],
        log_position=receipt.log_position,
        durability=_DURABILITIES[receipt.durability.word],
        replica_count=receipt.durability.replicas,
    )


def activation_request(request: recommender_pb.ActivateRequest) -> tuple[BanditName, str, tuple[str, ...]]:
    """Return the bandit, the slate that was shown, and its items if the request has them."""
    name = fields.bandit_name("bandit", request.bandit)
    recommendation_id = fields.opaque_id("recommendation_id", request.recommendation_id)
    return name, recommendation_id, fields.item_ids("shown_item_ids", request.shown_item_ids)


def activation_to_proto(receipt: ActivationReceipt) -> recommender_pb.ActivateResponse:
    """Return what became of an activation."""
    outcome = ACTIVATIONS.write(receipt.outcome)
    return recommender_pb.ActivateResponse(outcome=outcome, log_position=receipt.log_position)


def bandit_creation(request: bandit_pb.CreateBanditRequest, default: Exploration) -> tuple[BanditName, BanditSettings]:
    """Return what a CreateBandit creates; `default` fills in what it does not say about exploration."""
    return _name_in_bandit(request), settings_from_proto(request.bandit, default)


def bandit_update(
    request: bandit_pb.UpdateBanditRequest, default: Exploration
) -> tuple[BanditName, Callable[[BanditSettings], BanditSettings]]:
    """Return what an UpdateBandit changes; `default` is what a field goes back to that is named and not set."""
    return _name_in_bandit(request), masked_change(request.bandit, request.update_mask.paths, default)


def bandit_reset(request: bandit_pb.ResetBanditRequest) -> tuple[BanditName, str]:
    """Return which bandit a ResetBandit is about, and its request id, which may be empty."""
    name = fields.bandit_name("name", request.name)
    return name, fields.opaque_id("request_id", request.request_id) if request.request_id else ""


def _name_in_bandit(request: bandit_pb.CreateBanditRequest | bandit_pb.UpdateBanditRequest) -> BanditName:
    if not request.HasField("bandit"):
        raise InvalidArgumentError("bandit", "is required")
    return fields.bandit_name("bandit.name", request.bandit.name)


def bandit_to_proto(record: BanditRecord) -> bandit_pb.Bandit:
    """Return a bandit with its name, settings and time of creation."""
    bandit = settings_to_proto(record.settings)
    bandit.name = str(record.name)
    bandit.create_time.CopyFrom(timestamp(record.created_ms))
    if record.settings.prior_study:
        bandit.prior_study = str(StudyName(record.name.tenant, record.settings.prior_study))
    return bandit


@dataclass(frozen=True, slots=True)
class PageRequest:
    """A page asked for: up to `size` entries whose id sorts after `after`."""

    after: str
    size: int


def bandit_page(request: bandit_pb.ListBanditsRequest) -> tuple[str, PageRequest]:
    """Return whose bandits a ListBandits asks for, and which."""
    size = fields.page_size(
        "page_size", request.page_size, default=_DEFAULT_BANDITS_PER_PAGE, most=_MAX_BANDITS_PER_PAGE
    )
    tenant = fields.tenant_name("parent", request.parent)
    return tenant, PageRequest(after=fields.page_token("page_token", request.page_token), size=size)


def bandits_to_proto(records: Sequence[BanditRecord], page: PageRequest) -> bandit_pb.ListBanditsResponse:
    """Return a page of bandits; `records` holds one more than the page if there is one."""
    shown = records[: page.size]
    more = len(records) > page.size
    return bandit_pb.ListBanditsResponse(
        bandits=map(bandit_to_proto, shown),
        next_page_token=fields.to_page_token(shown[-1].name.bandit) if more else "",
    )


def item_page(request: bandit_pb.ListItemsRequest) -> tuple[BanditName, PageRequest]:
    """Return whose items a ListItems asks for, and which."""
    size = fields.page_size("page_size", request.page_size, default=_DEFAULT_ITEMS_PER_PAGE, most=fields.MAX_ITEMS)
    name = fields.bandit_name("bandit", request.bandit)
    return name, PageRequest(after=fields.page_token("page_token", request.page_token), size=size)


def items_to_proto(records: Sequence[Item], page: PageRequest) -> bandit_pb.ListItemsResponse:
    """Return a page of items; `records` holds one more than the page if there is one."""
    response, n_bytes = bandit_pb.ListItemsResponse(), 0
    for record in records[: page.size]:
        item = _item_to_proto(record)
        n_bytes += item.ByteSize()
        if n_bytes > _MOST_PAGE_BYTES and response.items:
            break
        response.items.append(item)
    if len(response.items) < len(records):
        response.next_page_token = fields.to_page_token(response.items[-1].item_id)
    return response


_MOST_PAGE_BYTES = 6 * 2**20
"""A page of more bytes has fewer items: with a few bytes more an item it is still smaller than a message may be."""


def _item_to_proto(item: Item) -> bandit_pb.Item:
    return bandit_pb.Item(
        item_id=item.item_id, unavailable=not item.available, features=features_to_proto(item.features)
    )


def item_upsert(request: bandit_pb.UpsertItemsRequest) -> tuple[BanditName, list[Item], ItemMask]:
    """Return which items an UpsertItems adds or changes, and what of them."""
    name = fields.bandit_name("bandit", request.bandit)
    fields.size("items", len(request.items), most=fields.MAX_ITEMS)
    ids = fields.item_ids("items", [item.item_id for item in request.items], member=".item_id")
    items = [
        Item(item_id, not item.unavailable, features_from_proto(f"items[{place}].features", item.features))
        for place, (item_id, item) in enumerate(zip(ids, request.items, strict=True))
    ]
    return name, items, _item_mask(request) if request.HasField("update_mask") else WHOLE_ITEMS


_OF_FEATURES = "features."
_IN_MASKS = "unavailable, features, or features.NAME"


def _item_mask(request: bandit_pb.UpsertItemsRequest) -> ItemMask:
    paths = set(request.update_mask.paths)
    if not paths:
        raise InvalidArgumentError("update_mask", f"is empty: leave it out for whole items; it may name {_IN_MASKS}")
    named = frozenset(path.removeprefix(_OF_FEATURES) for path in paths if path.startswith(_OF_FEATURES))
    for path in sorted(paths - {"unavailable", "features"}):
        if not (path.startswith(_OF_FEATURES) and is_feature_name(path.removeprefix(_OF_FEATURES))):
            raise InvalidArgumentError("update_mask", f"names {fields.quote_text(path)}; it may name {_IN_MASKS}")
    features = None if "features" in paths else named
    return ItemMask(availability="unavailable" in paths, features=features, creates=request.allow_missing)


def item_retirement(request: bandit_pb.RetireItemsRequest) -> tuple[BanditName, tuple[str, ...]]:
    """Return which items a RetireItems takes out."""
    name = fields.bandit_name("bandit", request.bandit)
    fields.size("item_ids", len(request.item_ids), most=fields.MAX_ITEMS)
    return name, fields.item_ids("item_ids", request.item_ids)
