"""The use cases over plain dicts: a second implementation, small enough to be read, for tests of the wire."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tests.bandits.harness import worker_status

from topk_bandit.bandits.imports import ImportReceipt, RowError
from topk_bandit.domain.bandits import WHOLE_ITEMS, ConstantBeta, Exploration
from topk_bandit.domain.errors import (
    ConflictError,
    ExhaustedError,
    InvalidArgumentError,
    NotFoundError,
    NotReadyError,
    TopkBanditError,
    UnavailableError,
)
from topk_bandit.domain.features import FeatureStats
from topk_bandit.domain.operators import (
    BanditOverview,
    EventPage,
    Explanation,
    HistoryPoint,
    ModelSource,
    QuotaUse,
    RankedSlate,
    SkippedEvent,
    TenantStats,
    TopSlates,
    Verification,
)
from topk_bandit.domain.reward_times import RewardTimes
from topk_bandit.domain.rules import ExposureStats, describe_declared
from topk_bandit.domain.slates import (
    NOTHING_NAMED,
    ActivationOutcome,
    ActivationReceipt,
    Recommendation,
    RewardOutcome,
    RewardReceipt,
)
from topk_bandit.domain.stages import (
    ConservativeStats,
    GroupStats,
    Interval,
    LiftDay,
    LiftStats,
    LiftVerdict,
    ShadowStats,
)
from topk_bandit.domain.statistics import BanditStats, HyperparameterStats, LogReach
from topk_bandit.store.data_versions import NEWEST
from topk_bandit.store.log import BanditRecord, ImportProgress

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Mapping, Sequence

    from topk_bandit.bandits.batches import Asked
    from topk_bandit.bandits.imports import RowsOfImport
    from topk_bandit.domain.bandits import BanditName, BanditSettings, Item, ItemMask
    from topk_bandit.domain.features import Context
    from topk_bandit.domain.operators import StoreStatus, WorkerStatus
    from topk_bandit.domain.rules import SlateRule
    from topk_bandit.domain.slates import RecommendationRequest, Reward

BANDIT_QUOTA = 3
START_MS = 1_700_000_000_123


@dataclass
class Loop:
    """One bandit."""

    record: BanditRecord
    items: dict[str, Item] = field(default_factory=dict)
    retired: set[str] = field(default_factory=set)
    given: dict[str, tuple[RecommendationRequest, Recommendation]] = field(default_factory=dict)
    rewards: dict[str, float] = field(default_factory=dict)
    late: set[str] = field(default_factory=set)
    resets: list[str] = field(default_factory=list)
    skipped: list[tuple[int, str]] = field(default_factory=list)
    imports: dict[str, ImportProgress] = field(default_factory=dict)

    @property
    def present(self) -> list[Item]:
        return sorted(self.items.values(), key=lambda item: item.item_id.encode())

    def change_items(self, upserted: Sequence[Item], retired: Sequence[str]) -> None:
        changed = dict(self.items)
        for item in upserted:
            if item.item_id in self.retired:
                raise ConflictError("ITEM_RETIRED", f"item {item.item_id} was retired")
            changed[item.item_id] = item
        for item_id in retired:
            if item_id not in changed and item_id not in self.retired:
                raise NotFoundError(f"item {item_id}")
            changed.pop(item_id, None)
        if len(changed) > self.record.settings.item_capacity:
            raise ExhaustedError("ITEM_CAPACITY", f"the capacity is {self.record.settings.item_capacity} items")
        self.items, self.retired = changed, self.retired | set(retired)

    def eligible(self, request: RecommendationRequest, *, strict: bool) -> list[str]:
        names = [item.item_id for item in self.present]
        for index, wanted in enumerate(request.candidates or () if strict else ()):
            if wanted not in names:
                raise NotFoundError(f"candidate_item_ids[{index}]")
        wanted_ids = set(request.candidates or names)
        return [item.item_id for item in self.present if item.available and item.item_id in wanted_ids]


class Shop:
    """Stands for `Bandits`, for `Recommender` and for `Operators`.

    `away` is the store being away; `gate`, when set, holds every call until it is opened; `faults` are errors to raise,
    by call or by recommendation id; `calls` is what reached the use cases, `finished` what got through the gate.
    """

    default_exploration = Exploration(beta=ConstantBeta(4.0), uniform_share=0.05)

    def __init__(self) -> None:
        self.loops: dict[BanditName, Loop] = {}
        self.now_ms = START_MS
        self.away = False
        self.gate: asyncio.Event | None = None
        self.faults: dict[str, BaseException] = {}
        self.calls: list[str] = []
        self.asked_versions: list[int] = []
        self.activated: dict[str, tuple[str, ...]] = {}
        self.reward_ids: list[tuple[str, bool]] = []
        self.item_values: list[dict[str, float]] = []
        self.finished: list[str] = []
        self.sent: list[RowsOfImport] = []
        self.data_version = NEWEST

    async def _enter(self, call: str, name: BanditName | None = None) -> Loop:
        self.calls.append(call)
        if self.gate is not None:
            await self.gate.wait()
        self.finished.append(call)
        if call in self.faults:
            raise self.faults[call]
        if self.away:
            raise UnavailableError("the store can't be reached", retry_after=0.25)
        if name is None:
            return None  # type: ignore[return-value]
        if name not in self.loops:
            raise NotFoundError("bandit")
        return self.loops[name]

    async def recommend(
        self,
        name: BanditName,
        request: RecommendationRequest,
        *,
        min_model_version: int = 0,
        strict_candidates: bool = False,
    ) -> Recommendation:
        self.asked_versions.append(min_model_version)
        loop = await self._enter("recommend", name)
        settings = loop.record.settings
        context = request.context or (1.0,)
        if len(context) != settings.context_dim:
            raise InvalidArgumentError(
                "context", f"has {len(context)} numbers; the bandit takes {settings.context_dim}"
            )
        recommendation_id = request.request_id or f"made-{len(loop.given)}"
        if recommendation_id in loop.given:
            earlier, recommendation = loop.given[recommendation_id]
            if earlier != request:
                raise ConflictError("REQUEST_ID_REUSED", f"request {recommendation_id} had another context")
            return recommendation
        return self._decide(loop, replace(request, request_id=recommendation_id), strict=strict_candidates)

    async def find_id(self, name: BanditName, request_id: str) -> str:
        await self._enter("find_id", name)
        return request_id

    async def recommend_all(
        self, name: BanditName, asked: Sequence[Asked], *, time_left: Callable[[], float | None]
    ) -> list[Recommendation | Exception]:
        outcomes: list[Recommendation | Exception] = []
        for request, version, strict in asked if time_left() != 0.0 else ():
            try:
                slate = await self.recommend(name, request, min_model_version=version, strict_candidates=strict)
            except TopkBanditError as error:
                outcomes.append(error)
            else:
                outcomes.append(slate)
        return outcomes

    def _decide(self, loop: Loop, request: RecommendationRequest, *, strict: bool) -> Recommendation:
        settings = loop.record.settings
        eligible = loop.eligible(request, strict=strict)
        baseline = len(eligible) < settings.slate_size
        if baseline and not settings.baseline_item_ids:
            left, needed = len(eligible), settings.slate_size
            raise NotReadyError("TOO_FEW_ITEMS", f"{left} items are left", items_left=left, slate_size=needed)
        recommendation = Recommendation(
            recommendation_id=request.request_id,
            slate=settings.baseline_item_ids if baseline else tuple(eligible[: settings.slate_size]),
            baseline=baseline,
            passed_over=len(request.candidates or eligible) - len(eligible),
            propensity=0.95,
            position_propensities=(0.975, 0.95),
            mean=sum(loop.rewards.values()) / max(1, len(loop.rewards)),
            standard_deviation=1.0 / (1 + len(loop.rewards)),
            regret_bound=2.0,
            estimated_regret=0.5,
            explored=len(loop.given) % 2 == 1,
            model_version=1 + len(loop.rewards),
            observations=len(loop.rewards),
            deadline_ms=self.now_ms + settings.reward_wait_ms,
        )
        loop.given[request.request_id] = (request, recommendation)
        return recommendation

    async def activate(self, name: BanditName, recommendation_id: str, shown_slate: Sequence[str]) -> ActivationReceipt:
        loop = await self._enter("activate", name)
        if recommendation_id in self.faults:
            raise self.faults[recommendation_id]
        if recommendation_id not in loop.given:
            raise NotFoundError("recommendation")
        known = self.activated.setdefault(recommendation_id, tuple(shown_slate))
        if known != tuple(shown_slate):
            raise ConflictError("ACTIVATION_EXISTS", "another slate was shown")
        if self.now_ms > loop.given[recommendation_id][1].deadline_ms:
            return ActivationReceipt(ActivationOutcome.LATE)
        return ActivationReceipt(ActivationOutcome.ACTIVATED, 7)

    async def reward(
        self,
        name: BanditName,
        recommendation_id: str,
        value: float,
        *,
        reward_id: str = "",
        final: bool = False,
        item_values: Mapping[str, float] = NOTHING_NAMED,
    ) -> RewardReceipt:
        loop = await self._enter("reward", name)
        self.reward_ids.append((reward_id, final))
        self.item_values.append(dict(item_values))
        if recommendation_id in self.faults:
            raise self.faults[recommendation_id]
        if recommendation_id not in loop.given:
            raise NotFoundError("recommendation")
        if recommendation_id in loop.rewards:
            if loop.rewards[recommendation_id] != value:
                raise ConflictError("REWARD_EXISTS", "another value was posted before")
            return RewardReceipt(RewardOutcome.DUPLICATE, 2 + list(loop.rewards).index(recommendation_id))
        loop.rewards[recommendation_id] = value
        self.activated.setdefault(recommendation_id, ())
        late = self.now_ms > loop.given[recommendation_id][1].deadline_ms
        return (
            RewardReceipt(RewardOutcome.LATE) if late else RewardReceipt(RewardOutcome.ACCEPTED, 1 + len(loop.rewards))
        )

    async def rewards(self, name: BanditName, rewards: Sequence[Reward]) -> Sequence[RewardReceipt | Exception]:
        return [await self._attempt(name, reward) for reward in rewards]

    async def _attempt(self, name: BanditName, reward: Reward) -> RewardReceipt | Exception:
        try:
            return await self.reward(
                name,
                reward.recommendation_id,
                reward.value,
                reward_id=reward.reward_id,
                final=reward.final,
                item_values=reward.item_values,
            )
        except Exception as error:  # noqa: BLE001 - as a store does with what it can't read
            return error

    async def correct_reward(
        self,
        name: BanditName,
        recommendation_id: str,
        value: float | None,
        *,
        reward_id: str = "",
        item_values: Mapping[str, float] = NOTHING_NAMED,
    ) -> RewardReceipt:
        loop = await self._enter("correct_reward", name)
        self.reward_ids.append((reward_id, False))
        self.item_values.append(dict(item_values))
        if recommendation_id not in loop.given:
            raise NotFoundError("recommendation")
        if recommendation_id not in loop.rewards:
            raise NotReadyError("NO_REWARD", "there is no reward")
        if loop.rewards[recommendation_id] == value:
            return RewardReceipt(RewardOutcome.DUPLICATE)
        if value is None:
            del loop.rewards[recommendation_id]
        else:
            loop.rewards[recommendation_id] = value
        return RewardReceipt(RewardOutcome.ACCEPTED, 9)

    async def create_bandit(self, name: BanditName, settings: BanditSettings) -> BanditRecord:
        await self._enter("create_bandit")
        if name in self.loops:
            if self.loops[name].record.settings != settings:
                raise ConflictError("BANDIT_EXISTS", f"{name} exists with other settings")
            return self.loops[name].record
        if sum(other.tenant == name.tenant for other in self.loops) >= BANDIT_QUOTA:
            raise ExhaustedError("BANDIT_QUOTA", f"{name.tenant} has {BANDIT_QUOTA} bandits", retry_after=7.5)
        record = BanditRecord(name, "first", settings, 1, self.now_ms, 0, 1, 0, 0, 0, 0)
        self.loops[name] = Loop(record)
        return record

    async def get_bandit(self, name: BanditName) -> BanditRecord:
        return (await self._enter("get_bandit", name)).record

    async def list_bandits(self, tenant: str, *, after: str, limit: int) -> Sequence[BanditRecord]:
        await self._enter("list_bandits")
        names = sorted(name for name in self.loops if name.tenant == tenant and name.bandit > after)
        return [self.loops[name].record for name in names[:limit]]

    async def update_bandit(self, name: BanditName, change: Callable[[BanditSettings], BanditSettings]) -> BanditRecord:
        loop = await self._enter("update_bandit", name)
        loop.record = replace(loop.record, settings=change(loop.record.settings), revision=loop.record.revision + 1)
        return loop.record

    async def reset_bandit(self, name: BanditName, *, request_id: str = "") -> BanditRecord:
        loop = await self._enter("reset_bandit", name)
        loop.resets.append(request_id)
        return loop.record

    async def delete_bandit(self, name: BanditName) -> None:
        await self._enter("delete_bandit", name)
        del self.loops[name]

    async def upsert_items(self, name: BanditName, items: Sequence[Item], mask: ItemMask) -> int:
        assert mask == WHOLE_ITEMS, "what a mask does is tested with the real use cases"
        loop = await self._enter("upsert_items", name)
        loop.change_items(items, ())
        return len(loop.present)

    async def retire_items(self, name: BanditName, item_ids: Sequence[str]) -> int:
        loop = await self._enter("retire_items", name)
        loop.change_items((), item_ids)
        return len(loop.present)

    async def list_items(self, name: BanditName, *, after: str, limit: int) -> Sequence[Item]:
        loop = await self._enter("list_items", name)
        return [item for item in loop.present if item.item_id.encode() > after.encode()][:limit]

    async def explain_recommendation(
        self, name: BanditName, recommendation_id: str, _absent: tuple[str, ...] = ()
    ) -> Explanation:
        loop = await self._enter("explain_recommendation", name)
        if recommendation_id not in loop.given:
            raise NotFoundError("recommendation")
        request, recommendation = loop.given[recommendation_id]
        return Explanation(request, recommendation, 2, self.now_ms, ModelSource.TRIMMED, None)

    async def list_top_slates(
        self, name: BanditName, context: Context, *, limit: int, proposed: tuple[SlateRule, ...] | None = None
    ) -> TopSlates:
        loop = await self._enter("list_top_slates", name)
        ids = [item.item_id for item in loop.present]
        mean = float(len(context) + limit)
        best = RankedSlate(tuple(ids[: loop.record.settings.slate_size]), mean, 0.5, mean, mean)
        return TopSlates((best,), 7, len(ids), tuple(map(describe_declared, proposed or ())), ())

    async def list_tenants(self, *, after: str, limit: int) -> Sequence[str]:
        await self._enter("list_tenants")
        return sorted({name.tenant for name in self.loops if name.tenant > after})[:limit]

    async def service_status(self) -> tuple[WorkerStatus, StoreStatus | None]:
        await self._enter("service_status")
        return worker_status(), None

    async def tenant_stats(self, tenant: str) -> TenantStats:
        await self._enter("tenant_stats")
        return TenantStats(
            tenant, sum(name.tenant == tenant for name in self.loops), 2, 3, 4, 5, 6, 7, 8, (QuotaUse("bandits", 9, 1),)
        )

    async def list_overviews(
        self, tenant: str | None, *, after: BanditName | None, limit: int, containing: str
    ) -> tuple[Sequence[BanditOverview], BanditName | None]:
        await self._enter("list_overviews")
        names = sorted(name for name in self.loops if tenant in {None, name.tenant} and (not after or name > after))
        shown = [name for name in names[:limit] if containing in name.bandit]
        return [BanditOverview(name, self.now_ms, 1, 2, 3, 4, None) for name in shown], None

    async def history(self, name: BanditName) -> tuple[HistoryPoint, ...]:
        await self._enter("history", name)
        return (HistoryPoint(0, 1000, 4, 1, 2, 1, 3, 1.5, 0.5, 0.25),)

    async def verify(self, name: BanditName) -> Verification:
        await self._enter("verify", name)
        return Verification(0, 7, "1", "2", "paper", "1", "3", "paper", "posterior")

    async def skip_event(self, name: BanditName, position: int, *, reason: str) -> SkippedEvent:
        (await self._enter("skip_event", name)).skipped.append((position, reason))
        return SkippedEvent(position, 9, "" if position < 9 else "nine")

    async def export_events(
        self, name: BanditName, *, start: int, limit: int, incarnation: str
    ) -> tuple[EventPage, tuple[bytes, ...]]:
        await self._enter("export_events", name)
        return EventPage(incarnation or "first", (), start + limit, 5), ()

    async def import_rows(self, name: BanditName, sent: RowsOfImport) -> ImportReceipt:
        loop = await self._enter("import_rows", name)
        self.sent.append(sent)
        bad = [(place, row) for place, row in enumerate(sent.rows) if isinstance(row, InvalidArgumentError)]
        if bad and not sent.skips:
            raise InvalidArgumentError(f"rows[{bad[0][0]}].{bad[0][1].field}", bad[0][1].problem)
        errors = tuple(RowError(place, row.field, row.problem) for place, row in bad)
        taken = len(sent.rows) - len(bad)
        known = loop.imports.get(sent.import_id, ImportProgress())
        loop.imports[sent.import_id] = ImportProgress(sent.next_row, known.accepted + taken)
        return ImportReceipt(sent.next_row, taken, len(bad), 21, errors)

    async def find_import(self, name: BanditName, import_id: str) -> ImportProgress:
        return (await self._enter("find_import", name)).imports.get(import_id, ImportProgress())

    async def stats(self, name: BanditName) -> BanditStats:
        loop = await self._enter("stats", name)
        rewards = list(loop.rewards.values())
        return BanditStats(
            log_position=1 + len(loop.given) + len(rewards),
            model_version=1 + len(rewards),
            recommendations=len(loop.given),
            observations=len(rewards),
            imported=21,
            forgotten=22,
            defaults=3,
            expirations=4,
            late_rewards=5,
            clamped_rewards=15,
            lost_events=33,
            lost_rewards=32,
            inactive=16,
            lapsed=17,
            shown_otherwise=18,
            corrected=19,
            missed_corrections=20,
            pending=len(loop.given) - len(rewards),
            items=len(loop.present),
            available_items=sum(item.available for item in loop.present),
            places=15,
            passed_over=16,
            unplaced_rewards=17,
            posterior_rows=6,
            pending_rows=7,
            reward_sum=sum(rewards),
            mean_reward=sum(rewards) / max(1, len(rewards)),
            regret_bound_sum=2.0 * len(loop.given),
            estimated_regret_sum=0.5 * len(loop.given),
            explored=len(loop.given) // 2,
            hyperparameters=HyperparameterStats(
                noise_variance=0.25,
                prior_variance=0.75,
                prior_slope=-0.125,
                rank_weight_power=0.5,
                pair_scale=0.25,
                constant_variance=4.0,
                shared_context=2.0,
                content_share=16.0,
                edges_reached=("noise",),
            ),
            context_features=(
                FeatureStats("", 0.0, 2.5, frozen=False, clamped_count=3, unknown_count=0, missing_count=0),
            ),
            item_features=(
                FeatureStats("price", 1.0, 2.0, frozen=True, clamped_count=0, unknown_count=0, missing_count=4),
            ),
            outliers=14,
            outlier_contexts=51,
            spread_factor=52.0,
            has_reward_range=True,
            selection_share=55.0,
            reward_times=RewardTimes(56, ((1000, 1.5), (90_000, 0.9375), (3_600_000, 1.0)), 86_400_000),
            shadow=ShadowStats(57, 19, 1.5, Interval(0.25, -0.5, 1.0)),
            lift=LiftStats(
                since_ms=START_MS,
                bandit=GroupStats(90, 80, 0.5),
                control=GroupStats(10, 9, 0.25),
                verdict=LiftVerdict.BETTER,
                difference=Interval(0.25, 0.125, 0.375),
                ratio=Interval(2.0, 1.5, 2.5),
                further_requests=0,
                has_odd_groups=True,
                confidence=0.95,
                guarded_position=58,
                guarded_reason="it was worse",
                days=(LiftDay(START_MS, GroupStats(9, 8, 0.75), GroupStats(1, -2, 0.0), Interval(0.5, -0.5, 1.5)),),
            ),
            log_reach=LogReach(61, START_MS, 62, 63),
            rules=("filter price < 20 (may be relaxed)",),
            conservative=ConservativeStats(
                START_MS, GroupStats(66, 65, 0.5), GroupStats(67, 64, 0.25), reserve=-1.5, shows_own=True
            ),
            exposures=(ExposureStats("at least 0.1 of all slates show one of a", 64, 65, -0.5),),
            damage="event 9 does not match its checksum",
            noticed_changes=34,
            set_aside=35,
            snapshot_position=9,
            memory_bytes=10,
            memory_limit_bytes=11,
            store_bytes=48,
            log_digest="12",
            posterior_digest="13",
            arithmetic="paper and pencil",
        )
