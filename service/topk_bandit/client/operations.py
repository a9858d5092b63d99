"""Each call as a value: its request, how its response is read, and whether it may be sent twice. No I/O here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from google.protobuf.field_mask_pb2 import FieldMask

from topk_bandit.client import imports
from topk_bandit.client.arguments import choice, filled, message, number, numbers, refuse, several, texts
from topk_bandit.client.arguments import item_values as values_of_items
from topk_bandit.client.bandit_settings import settings_mask, settings_message
from topk_bandit.client.errors import error_of_entry, no_answer
from topk_bandit.client.features import feature_values, features_of
from topk_bandit.client.imports import ImportProgress
from topk_bandit.client.rules import READ_RULE, rule_messages
from topk_bandit.client.values import (
    ActivationReceipt,
    Bandit,
    BanditStats,
    BatchOutcome,
    Durability,
    Item,
    Kernel,
    PagePlacement,
    Recommendation,
    RewardPoint,
    RewardReceipt,
    RewardTimes,
    SlatePage,
    SlateRequest,
    Source,
)
from topk_bandit.v1 import bandit_service_pb2 as bandit_pb
from topk_bandit.v1 import recommender_service_pb2 as recommender_pb
from topk_bandit.v1.bandit_service_pb2_grpc import BanditServiceStub
from topk_bandit.v1.recommender_service_pb2_grpc import RecommenderServiceStub
from topk_bandit.wire.bandits import CONSERVATIVE, EXPOSURE, KERNELS, LIFT, LOG_REACH, SETTING_PARTS, SHADOW, STAGES
from topk_bandit.wire.features import FEATURE_STATS
from topk_bandit.wire.forms import SPAN, TIME, Form, Pair
from topk_bandit.wire.recommendations import ACTIVATIONS, GROUPS, OUTCOMES
from topk_bandit.wire.rules import ABSENCE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from google.protobuf.message import Message

    from topk_bandit.client.errors import ClientError
    from topk_bandit.client.imports import ImportReport, PastObservation
    from topk_bandit.client.outbox_file import KeptReward
    from topk_bandit.client.rules import Rule

__all__ = [
    "BANDIT",
    "ITEMS_PER_PAGE",
    "LAST_ID",
    "Operation",
    "Operations",
    "Page",
    "merge_outcomes",
    "recommendation_of",
]

T = TypeVar("T")

_MAX_BATCH = 1000
_MAX_SLATES = 100

_POINT = Form(RewardPoint, bandit_pb.RewardPoint, parts={"delay": SPAN})
_REWARD_TIMES = Form(
    RewardTimes,
    bandit_pb.RewardTimes,
    parts={
        "points": _POINT,
        **dict.fromkeys(("half_by", "nine_tenths_by", "almost_all_by", "reward_wait"), SPAN),
    },
)
_STATS = Form(
    BanditStats,
    bandit_pb.GetBanditStatsResponse,
    parts={
        "reward_times": _REWARD_TIMES,
        "shadow": SHADOW,
        "lift": LIFT,
        "log_reach": LOG_REACH,
        "exposures": EXPOSURE,
        "conservative": CONSERVATIVE,
        "context_features": FEATURE_STATS,
        "item_features": FEATURE_STATS,
    },
)
LAST_ID = Pair(read=lambda name: name.rpartition("/")[2])
"""A name, of which callers have the last id alone."""

_BETAS, _BESIDE_BETA = ("constant_beta", "schedule_scale"), ("uniform_share", "near_share", "shares_fall_after")
BANDIT = Form(
    Bandit,
    bandit_pb.Bandit,
    parts={
        **SETTING_PARTS,
        **dict.fromkeys(("reward_wait", "half_life", "provisional_after"), SPAN),
        "name": LAST_ID,
        "prior_study": Pair(read=lambda name: name.rpartition("/")[2] or None),
        "create_time": TIME,
        "rules": READ_RULE,
    },
    beside={*_BETAS, *_BESIDE_BETA},
)


@dataclass(frozen=True, slots=True)
class Operation(Generic[T]):
    """One call.

    Attributes
    ----------
    stub, method
        Where it goes.
    read
        Makes the result from the response.
    repeatable
        Whether sending it again, after it may have had its effect, does no harm.
    hedged
        Whether it may be sent a second time while the first one goes on, where the client hedges.
    """

    stub: type[Any]
    method: str
    request: Message
    read: Callable[[Any], T]
    repeatable: bool = True
    hedged: bool = False

    @property
    def bandit(self) -> str:
        """Name of the bandit that it is about; empty if it is about none."""
        named: Any = getattr(self.request, "bandit", None) or getattr(self.request, "name", "")
        name = named if isinstance(named, str) else named.name
        return name if "/bandits/" in name else ""

    def result(self, response: Any) -> T:  # noqa: ANN401 - a message of the method's own type
        """Return the result, or raise `Unexpected` for a response that the service never sends."""
        try:
            return self.read(response)
        except (KeyError, ValueError) as error:
            raise no_answer(f"to {self.method} can't be read") from error


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """A page of a list; `next_token` is empty on the last one."""

    entries: tuple[T, ...]
    next_token: str


ITEMS_PER_PAGE = 10_000
"""As many as the service gives: each page costs it a look at all items."""


class Operations:
    """The calls of one tenant.

    Parameters
    ----------
    new_request_id
        Makes an id that is different each time, so that a Recommend may be sent again.
    """

    def __init__(self, tenant: str, *, new_request_id: Callable[[], str]) -> None:
        self.tenant = tenant
        self.new_request_id = new_request_id
        self._parent = f"tenants/{tenant}"

    def _name(self, bandit: str) -> str:
        return f"{self._parent}/bandits/{bandit}"

    def recommend(
        self,
        bandit: str,
        context: Iterable[float],
        *,
        candidates: Iterable[str] | None,
        request_id: str | None,
        features: object,
        min_model_version: int,
        strict_candidates: bool,
        baseline: Iterable[str] | None,
        group_key: str | None,
        rules: Iterable[Rule | str] | None,
        explain: Iterable[str] | None,
        frequency_key: str | None,
    ) -> Operation[Recommendation]:
        """Ask for a slate."""
        request = message(
            recommender_pb.RecommendRequest,
            bandit=self._name(bandit),
            context=numbers("context", context),
            candidate_item_ids=filled("candidate_item_ids", candidates, absent="every available item"),
            request_id=request_id or self.new_request_id(),
            min_model_version=min_model_version,
            strict_candidates=strict_candidates,
            baseline_item_ids=filled("baseline_item_ids", baseline, absent="the bandit's baseline slate"),
            group_key=group_key,
            features=None if features is None else feature_values(features),
            rules=rule_messages("rules", rules),
            explain_item_ids=None if explain is None else texts("explain_item_ids", explain),
            frequency_key=frequency_key,
        )
        return Operation(RecommenderServiceStub, "Recommend", request, _slate_in, hedged=True)

    def recommend_batch(
        self,
        bandit: str,
        requests: Iterable[SlateRequest],
        *,
        min_model_version: int,
        strict_candidates: bool,
    ) -> Iterator[Operation[Sequence[Recommendation | ClientError]]]:
        """Ask for many slates, as many in a call as the service takes."""
        asked = [
            self._entry(
                f"requests[{place}]",
                bandit,
                one,
                min_model_version=min_model_version,
                strict_candidates=strict_candidates,
            )
            for place, one in enumerate(several("requests", requests))
        ]
        for start in range(0, len(asked), _MAX_SLATES):
            part = asked[start : start + _MAX_SLATES]
            request = recommender_pb.BatchRecommendRequest(bandit=self._name(bandit), requests=part)
            yield Operation(RecommenderServiceStub, "BatchRecommend", request, partial(_slates_in, len(part)))

    def _entry(
        self, path: str, bandit: str, asked: SlateRequest, *, min_model_version: int, strict_candidates: bool
    ) -> recommender_pb.RecommendRequest:
        """Return one of several requests for slates as a message, whose bandit is that of all."""
        if not isinstance(asked, SlateRequest):
            raise refuse(path, asked)
        request = self._asked(bandit, asked, min_model_version=min_model_version, strict_candidates=strict_candidates)
        request.ClearField("bandit")
        return request

    def _asked(
        self, bandit: str, asked: SlateRequest, *, min_model_version: int = 0, strict_candidates: bool = False
    ) -> recommender_pb.RecommendRequest:
        operation = self.recommend(
            bandit,
            asked.context,
            candidates=asked.candidates,
            request_id=asked.request_id,
            features=asked.features,
            min_model_version=min_model_version,
            strict_candidates=strict_candidates,
            baseline=asked.baseline,
            group_key=asked.group_key,
            rules=asked.rules,
            explain=None,
            frequency_key=asked.frequency_key,
        )
        return cast("recommender_pb.RecommendRequest", operation.request)

    def recommend_page(
        self,
        placements: Iterable[PagePlacement],
        *,
        context: Iterable[float],
        features: object,
        group_key: str | None,
        frequency_key: str | None,
        page_id: str | None,
    ) -> Operation[SlatePage]:
        """Ask for the slates of a page."""
        request = message(
            recommender_pb.RecommendPageRequest,
            parent=self._parent,
            page_id=page_id or self.new_request_id(),
            context=numbers("context", context),
            features=None if features is None else feature_values(features),
            group_key=group_key,
            frequency_key=frequency_key,
            placements=[
                self._placement(f"placements[{place}]", one)
                for place, one in enumerate(several("placements", placements))
            ],
        )
        read = partial(_page_in, [one.bandit.removeprefix(self._name("")) for one in request.placements])
        return Operation(RecommenderServiceStub, "RecommendPage", request, read)

    def _placement(self, path: str, placement: PagePlacement) -> recommender_pb.RecommendRequest:
        if not isinstance(placement, PagePlacement):
            raise refuse(path, placement)
        request = self._asked(placement.bandit, placement)
        if placement.request_id is None:  # it is made from the page's id
            request.ClearField("request_id")
        return request

    def reward_page(
        self, page_id: str, bandits: Iterable[str], value: float, *, reward_id: str, final: bool
    ) -> Operation[Sequence[RewardReceipt | ClientError]]:
        """Post one reward for all slates of a page."""
        request = message(
            recommender_pb.RewardPageRequest,
            parent=self._parent,
            page_id=page_id,
            bandits=[bandit and self._name(bandit) for bandit in texts("bandits", bandits)],
            value=number("value", value),
            reward_id=reward_id,
            final=final,
        )
        read = partial(_page_results, len(request.bandits))
        return Operation(RecommenderServiceStub, "RewardPage", request, read)

    def activate(
        self, bandit: str, recommendation_id: str, shown: Iterable[str] | None
    ) -> Operation[ActivationReceipt]:
        """Say that a slate was shown."""
        request = message(
            recommender_pb.ActivateRequest,
            bandit=self._name(bandit),
            recommendation_id=recommendation_id,
            shown_item_ids=filled("shown_item_ids", shown, absent="the recommended slate"),
        )
        return Operation(RecommenderServiceStub, "Activate", request, _activation)

    def reward(
        self,
        bandit: str,
        recommendation_id: str,
        value: float,
        *,
        reward_id: str,
        final: bool,
        item_values: Mapping[str, float] | None,
    ) -> Operation[RewardReceipt]:
        """Post a reward."""
        request = message(
            recommender_pb.RewardRequest,
            bandit=self._name(bandit),
            recommendation_id=recommendation_id,
            value=number("value", value),
            reward_id=reward_id,
            final=final,
            item_values=values_of_items("item_values", item_values),
        )
        return Operation(RecommenderServiceStub, "Reward", request, _receipt)

    def void_reward(self, bandit: str, recommendation_id: str, *, reward_id: str) -> Operation[RewardReceipt]:
        """Take a reward back."""
        request = message(
            recommender_pb.VoidRewardRequest,
            bandit=self._name(bandit),
            recommendation_id=recommendation_id,
            reward_id=reward_id,
        )
        return Operation(RecommenderServiceStub, "VoidReward", request, _receipt)

    def amend_reward(
        self,
        bandit: str,
        recommendation_id: str,
        value: float,
        *,
        reward_id: str,
        item_values: Mapping[str, float] | None,
    ) -> Operation[RewardReceipt]:
        """Replace a reward."""
        request = message(
            recommender_pb.AmendRewardRequest,
            bandit=self._name(bandit),
            recommendation_id=recommendation_id,
            value=number("value", value),
            reward_id=reward_id,
            item_values=values_of_items("item_values", item_values),
        )
        return Operation(RecommenderServiceStub, "AmendReward", request, _receipt)

    def rewards(
        self, bandit: str, values: Mapping[str, float], *, reward_id: str, final: bool
    ) -> Iterator[Operation[BatchOutcome]]:
        """Post many rewards, as many to a call as the service takes."""
        ids = list(values)
        for start in range(0, len(ids), _MAX_BATCH):
            part = {one: values[one] for one in ids[start : start + _MAX_BATCH]}
            yield self._batch(bandit, part, reward_id=reward_id, final=final)

    def _batch(
        self, bandit: str, values: Mapping[str, float], *, reward_id: str, final: bool
    ) -> Operation[BatchOutcome]:
        rewards = [
            message(
                recommender_pb.RewardEntry,
                f"rewards[{place}]",
                recommendation_id=one,
                value=number(f"rewards[{place}].value", value),
                reward_id=reward_id,
                final=final,
            )
            for place, (one, value) in enumerate(values.items())
        ]
        return self._batch_of(bandit, rewards, lambda response: _batch_outcome(values, response))

    def kept_rewards(self, bandit: str, rewards: Iterable[KeptReward]) -> Operation[list[RewardReceipt | ClientError]]:
        """Post rewards that an outbox has kept; what became of each comes back in their order."""
        entries = [
            recommender_pb.RewardEntry(
                recommendation_id=one.recommendation_id,
                value=one.value,
                reward_id=one.reward_id,
                final=bool(one.final),
                item_values=one.item_values,
            )
            for one in rewards
        ]
        return self._batch_of(bandit, entries, lambda response: list(map(_result, response.results)))

    def _batch_of(
        self, bandit: str, entries: list[recommender_pb.RewardEntry], read: Callable[[Any], T]
    ) -> Operation[T]:
        request = recommender_pb.BatchRewardRequest(bandit=self._name(bandit), rewards=entries)
        return Operation(RecommenderServiceStub, "BatchReward", request, read)

    def create_bandit(
        self,
        bandit: str,
        *,
        slate_size: int,
        item_capacity: int,
        context_dimension: int,
        kernel: Kernel,
        settings: Mapping[str, Any],
    ) -> Operation[Bandit]:
        """Create a bandit."""
        made = settings_message(
            {**settings, "item_capacity": item_capacity},
            parent=self._parent,
            name=self._name(bandit),
            slate_size=slate_size,
            context_dimension=context_dimension,
            kernel=choice("kernel", kernel, KERNELS),
        )
        request = bandit_pb.CreateBanditRequest(bandit=made)
        return Operation(BanditServiceStub, "CreateBandit", request, _bandit_of_response)

    def get_bandit(self, bandit: str) -> Operation[Bandit]:
        """Return a bandit."""
        request = bandit_pb.GetBanditRequest(name=self._name(bandit))
        return Operation(BanditServiceStub, "GetBandit", request, _bandit_of_response)

    def list_bandits(self, token: str) -> Operation[Page[Bandit]]:
        """Return a page of bandits."""
        request = bandit_pb.ListBanditsRequest(parent=self._parent, page_token=token)
        return Operation(BanditServiceStub, "ListBandits", request, _bandits)

    def update_bandit(self, bandit: str, changes: Mapping[str, Any]) -> Operation[Bandit]:
        """Change the settings that are given. Sent again it could undo somebody else's change in between."""
        changed = settings_message(changes, parent=self._parent, name=self._name(bandit))
        request = bandit_pb.UpdateBanditRequest(bandit=changed, update_mask=settings_mask(changes))
        return Operation(BanditServiceStub, "UpdateBandit", request, _bandit_of_response, repeatable=False)

    def reset_bandit(self, bandit: str, request_id: str | None) -> Operation[Bandit]:
        """Have a bandit forget what it learned."""
        request = message(
            bandit_pb.ResetBanditRequest, name=self._name(bandit), request_id=request_id or self.new_request_id()
        )
        return Operation(BanditServiceStub, "ResetBandit", request, _bandit_of_response)

    def delete_bandit(self, bandit: str) -> Operation[None]:
        """Remove a bandit. Sent again it would not be found, or be one that was created in between."""
        request = bandit_pb.DeleteBanditRequest(name=self._name(bandit))
        return Operation(BanditServiceStub, "DeleteBandit", request, lambda _: None, repeatable=False)

    def upsert_items(
        self,
        bandit: str,
        items: Iterable[str | Item] | Mapping[str, Any],
        *,
        mask: Iterable[str] | None = None,
        allow_missing: bool = False,
    ) -> Operation[int]:
        """Add items, or change what a mask names of them."""
        made = [_item_message(place, item) for place, item in enumerate(_entries(items))]
        paths = () if mask is None else map(_mask_path, texts("mask", mask))
        request = bandit_pb.UpsertItemsRequest(
            bandit=self._name(bandit),
            items=made,
            update_mask=None if mask is None else FieldMask(paths=paths),
            allow_missing=allow_missing,
        )
        return Operation(BanditServiceStub, "UpsertItems", request, _item_count)

    def retire_items(self, bandit: str, item_ids: Iterable[str]) -> Operation[int]:
        """Take items out for good."""
        request = message(bandit_pb.RetireItemsRequest, bandit=self._name(bandit), item_ids=texts("item_ids", item_ids))
        return Operation(BanditServiceStub, "RetireItems", request, _item_count)

    def list_items(self, bandit: str, token: str) -> Operation[Page[Item]]:
        """Return a page of items."""
        request = bandit_pb.ListItemsRequest(bandit=self._name(bandit), page_size=ITEMS_PER_PAGE, page_token=token)
        return Operation(BanditServiceStub, "ListItems", request, _items)

    def import_rows(
        self,
        bandit: str,
        rows: Iterable[PastObservation],
        *,
        import_id: str,
        first_row: int,
        next_row: int | None,
        skip_bad_rows: bool,
    ) -> Iterator[Operation[ImportReport]]:
        """Bring slates that were shown elsewhere, as many to a call as the service takes."""
        name = self._name(bandit)
        for request in imports.requests(
            name, rows, import_id=import_id, first_row=first_row, next_row=next_row, skip_bad_rows=skip_bad_rows
        ):
            read = partial(imports.report, request.first_row)
            yield Operation(BanditServiceStub, "ImportObservations", request, read)

    def get_import(self, bandit: str, import_id: str) -> Operation[ImportProgress]:
        """Ask how far an import is."""
        request = message(bandit_pb.GetImportRequest, bandit=self._name(bandit), import_id=import_id)
        return Operation(BanditServiceStub, "GetImport", request, _import_progress)

    def stats(self, bandit: str) -> Operation[BanditStats]:
        """Return where a bandit stands."""
        request = bandit_pb.GetBanditStatsRequest(bandit=self._name(bandit))
        return Operation(BanditServiceStub, "GetBanditStats", request, _STATS.read)


def _entries(items: Iterable[str | Item] | Mapping[str, Any]) -> list[Item]:
    if isinstance(items, Mapping):
        return [Item(item_id, features=features) for item_id, features in items.items()]
    return [Item(item) if isinstance(item, str) else item for item in several("items", items)]


def _mask_path(named: str) -> str:
    """Return the path on the wire of a part of `Item`."""
    return "unavailable" if named == "available" else named


def _item_message(place: int, item: Item) -> bandit_pb.Item:
    if not isinstance(item, Item):
        raise refuse(f"items[{place}]", item)
    values = feature_values(item.features, field=f'items["{item.item_id}"].features')
    return message(
        bandit_pb.Item, f"items[{place}]", item_id=item.item_id, unavailable=not item.available, features=values
    )


def _slate_in(response: recommender_pb.RecommendResponse) -> Recommendation:
    """Return the slate in a response; the service gives none without items, but whoever else answers may."""
    if not response.item_ids:
        raise no_answer("holds no slate")
    return recommendation_of(response)


def _slates_in(count: int, response: recommender_pb.BatchRecommendResponse) -> Sequence[Recommendation | ClientError]:
    """Return the slates in a response of so many results, or the errors in their place."""
    if len(response.results) != count:
        raise no_answer(f"holds {len(response.results)} results, not {count}")
    return [error_of_entry(one.error) if one.HasField("error") else _slate_in(one.slate) for one in response.results]


def _page_in(bandits: Sequence[str], response: recommender_pb.RecommendPageResponse) -> SlatePage:
    """Return the page in a response with a slate of each bandit."""
    if len(response.placements) != len(bandits):
        raise no_answer(f"holds {len(response.placements)} slates, not {len(bandits)}")
    slates = (
        error_of_entry(one.error) if one.HasField("error") else _slate_in(one.slate) for one in response.placements
    )
    rewarded = (
        bandit if one.slate.recommendation_id else "" for bandit, one in zip(bandits, response.placements, strict=True)
    )
    return SlatePage(response.page_id, tuple(slates), tuple(rewarded))


def recommendation_of(response: recommender_pb.RecommendResponse) -> Recommendation:
    """Return the recommendation in a response."""
    deadline = response.reward_deadline.ToDatetime(tzinfo=UTC) if response.HasField("reward_deadline") else None
    return Recommendation(
        id=response.recommendation_id,
        items=tuple(response.item_ids),
        propensity=response.propensity,
        mean=response.mean,
        standard_deviation=response.standard_deviation,
        regret_bound=response.regret_bound,
        estimated_regret=response.estimated_regret,
        explored=response.mode == recommender_pb.MODE_EXPLORED,
        baseline=response.mode == recommender_pb.MODE_BASELINE,
        model_version=response.model_version,
        observations=response.observation_count,
        reward_deadline=deadline,
        source=Source.DEGRADED if response.degraded else Source.SERVICE,
        position_propensities=tuple(response.position_propensities),
        regret_confidence=response.regret_confidence,
        passed_over=response.passed_over_count,
        stage=STAGES.read(response.stage),
        group=GROUPS.read(response.group),
        relaxed_rules=tuple(response.relaxed_rules),
        paid_exposures=tuple(response.paid_exposures),
        absent_items=tuple(map(ABSENCE.read, response.absent_items)),
    )


def _activation(response: recommender_pb.ActivateResponse) -> ActivationReceipt:
    return ActivationReceipt(ACTIVATIONS.read(response.outcome), response.log_position)


def _receipt(
    response: recommender_pb.RewardResponse
    | recommender_pb.RewardResult
    | recommender_pb.VoidRewardResponse
    | recommender_pb.AmendRewardResponse,
) -> RewardReceipt:
    synced = response.durability >= recommender_pb.DURABILITY_FSYNC
    durability = Durability(synced=synced, replicas=response.replica_count)
    return RewardReceipt(OUTCOMES.read(response.outcome), response.log_position, durability)


def _result(result: recommender_pb.RewardResult) -> RewardReceipt | ClientError:
    return error_of_entry(result.error) if result.HasField("error") else _receipt(result)


def _page_results(count: int, response: recommender_pb.RewardPageResponse) -> Sequence[RewardReceipt | ClientError]:
    if len(response.results) != count:
        raise no_answer(f"holds {len(response.results)} results, not {count}")
    return list(map(_result, response.results))


def _batch_outcome(ids: Iterable[str], response: recommender_pb.BatchRewardResponse) -> BatchOutcome:
    results = dict(zip(ids, response.results, strict=True))
    return BatchOutcome(
        receipts={one: _receipt(result) for one, result in results.items() if not result.HasField("error")},
        errors={one: error_of_entry(result.error) for one, result in results.items() if result.HasField("error")},
    )


def merge_outcomes(parts: Iterable[BatchOutcome]) -> BatchOutcome:
    """Return what became of the rewards of several calls."""
    receipts: dict[str, RewardReceipt] = {}
    errors: dict[str, ClientError] = {}
    for part in parts:
        receipts |= part.receipts
        errors |= part.errors
    return BatchOutcome(receipts, errors)


def _bandit_of_response(response: Any) -> Bandit:  # noqa: ANN401, three responses have a bandit
    return _bandit(response.bandit)


def _bandit(bandit: bandit_pb.Bandit) -> Bandit:
    found = bandit.exploration
    betas = {name: getattr(found, name) if found.HasField(name) else None for name in _BETAS}
    return BANDIT.read(bandit, **betas, **{name: getattr(found, name) for name in _BESIDE_BETA})


def _bandits(response: bandit_pb.ListBanditsResponse) -> Page[Bandit]:
    return Page(tuple(map(_bandit, response.bandits)), response.next_page_token)


def _items(response: bandit_pb.ListItemsResponse) -> Page[Item]:
    items = (Item(one.item_id, not one.unavailable, features_of(one.features)) for one in response.items)
    return Page(tuple(items), response.next_page_token)


def _import_progress(response: bandit_pb.GetImportResponse) -> ImportProgress:
    return ImportProgress(response.next_row, response.accepted_count, response.data_version)


def _item_count(response: bandit_pb.UpsertItemsResponse | bandit_pb.RetireItemsResponse) -> int:
    return response.item_count
