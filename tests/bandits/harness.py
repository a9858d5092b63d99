"""The use cases as one worker has them, without a wire, over any store."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from tests.contracts.harness import home_of, whole_log

from topk_bandit.bandits.administration import FOLLOWER_SILENCE_MS, Bandits
from topk_bandit.bandits.fold import begin, fold
from topk_bandit.bandits.log_retention import AS_SNAPSHOTS_ALLOW
from topk_bandit.bandits.model_cache import ModelCache
from topk_bandit.bandits.recommender import Recommender
from topk_bandit.bandits.tenant_quotas import TenantQuotas
from topk_bandit.domain.bandits import (
    BanditName,
    BanditSettings,
    ConstantBeta,
    Exploration,
    Item,
    ItemUtility,
    Kernel,
    PaperBeta,
    Prior,
)
from topk_bandit.domain.errors import InvalidArgumentError, TopkBanditError, UnavailableError
from topk_bandit.domain.hooks import Hooks, ModelFigures
from topk_bandit.domain.operators import CallStatus, WorkerStatus
from topk_bandit.domain.quotas import Quota, Quotas
from topk_bandit.domain.slates import RecommendationRequest
from topk_bandit.learning.limits import Limits
from topk_bandit.learning.posterior import Posterior
from topk_bandit.learning.rankings import random_rankings
from topk_bandit.store.events import BanditCreated, ItemsChanged, LoggedEvent
from topk_bandit.store.timing import time_calls
from topk_bandit.store.whole_logs import WholeLogs

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Sequence

    from tests.contracts.harness import Stores

    from topk_bandit.bandits.budget import MemoryBudget
    from topk_bandit.bandits.model import Model
    from topk_bandit.domain.slates import Recommendation
    from topk_bandit.store.events import Event
    from topk_bandit.store.log import Store

__all__ = [
    "LIMITS",
    "NAME",
    "SETTINGS",
    "Archive",
    "AwayStore",
    "CountingThreads",
    "Notebook",
    "RecordedHooks",
    "Shop",
    "Worker",
    "assert_same",
    "rebuilt",
    "replayed",
    "request",
    "running_worker",
    "settles",
]

HOUR_MS = 3_600_000
NAME = BanditName("shop", "home")
LIMITS = Limits(rows=200, pending_rows=16)
SETTINGS = BanditSettings(
    item_capacity=12,
    slate_size=3,
    context_dim=2,
    kernel=Kernel.ADAPTIVE,
    exploration=Exploration(PaperBeta(0.1), uniform_share=0.1),
    reward_wait_ms=HOUR_MS,
    default_reward=None,
)


class AwayStore:
    """A store that can't be reached for slates while it is away."""

    def __init__(self, store: Store) -> None:
        self._store, self.is_away = store, False

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - of the store
        return getattr(self._store, name)

    async def record_recommendation(self, *given: Any, **named: Any) -> Any:  # noqa: ANN401 - of the store
        if self.is_away:
            raise UnavailableError("it is away", nothing_sent=True)
        return await self._store.record_recommendation(*given, **named)


class CountingThreads(ThreadPoolExecutor):
    """A thread that counts what it is given."""

    def __init__(self) -> None:
        super().__init__(1)
        self.works = 0

    def submit(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        self.works += 1
        return super().submit(*args, **kwargs)


class RecordedHooks(Hooks):
    """Hooks that record what they were called with."""

    def __init__(self) -> None:
        self.learned_rewards: list[float] = []
        self.expirations = 0
        self.failed_snapshots = 0
        self.failed_folds = 0
        self.divergences = 0
        self.forgotten_bandits: list[str] = []
        self.rests: list[str] = []
        self.store_calls: Counter[str] = Counter()
        self.lags: list[tuple[int, float]] = []
        self.backed_by: list[tuple[int, float, int]] = []
        self.folded_events = 0
        self.counts: Counter[str] = Counter()
        self.doubts: Counter[str] = Counter()
        self.figures: ModelFigures

    def posterior(self, bandit: str, figures: ModelFigures) -> None:
        if bandit == str(NAME):
            self.figures = figures

    def doubted(self, kind: str, count: int) -> None:
        self.doubts[kind] += count

    def followed(self, bandit: str, lag_events: int, waiting_seconds: float) -> None:
        if bandit == str(NAME):
            self.lags.append((lag_events, waiting_seconds))

    def backed(self, bandit: str, *, unsaved_events: int, age_seconds: float, n_bytes: int) -> None:
        if bandit == str(NAME):
            self.backed_by.append((unsaved_events, age_seconds, n_bytes))

    def folded(self, events: int, seconds: float) -> None:
        assert seconds > 0.0
        self.folded_events += events

    def refitted(self, seconds: float) -> None:
        assert seconds > 0.0
        self.counts["refits"] += 1

    def defaulted(self) -> None:
        self.counts["defaults"] += 1

    def rules_clashed(self) -> None:
        self.counts["clashes"] += 1

    def log_replaced(self, bandit: str) -> None:
        self.counts["logs replaced"] += bandit == str(NAME)

    def events_lost(self, bandit: str, *, events: int, rewards: int) -> None:
        self.counts["lost events"] += events * (bandit == str(NAME))
        self.counts["lost rewards"] += rewards * (bandit == str(NAME))

    def snapshot_saved(self) -> None:
        self.counts["snapshots"] += 1

    def learned(self, recommendation_id: str, reward: float, delay_seconds: float) -> None:
        assert recommendation_id
        assert delay_seconds >= 0.0
        self.learned_rewards.append(reward)

    def expired(self, count: int) -> None:
        self.expirations += count

    def forgotten(self, bandit: str) -> None:
        self.forgotten_bandits.append(bandit)

    def rested(self, reason: str) -> None:
        self.rests.append(reason)

    def store_called(self, operation: str, seconds: float, *, failed: bool) -> None:  # noqa: ARG002
        self.store_calls[operation] += 1

    def snapshot_failed(self, bandit: str) -> None:
        self.failed_snapshots += bandit == str(NAME)

    def fold_failed(self, bandit: str) -> None:
        self.failed_folds += bandit == str(NAME)

    def diverged(self, bandit: str) -> None:
        self.divergences += bandit == str(NAME)


@dataclass
class Notebook:
    """Priors written down by hand, by tenant and study."""

    priors: dict[tuple[str, str], Prior] = field(default_factory=dict)

    def write(self, study: str, utilities: Mapping[str, float | tuple[float, ...]]) -> None:
        entries = [
            ItemUtility(item_id, 0.0, value) if isinstance(value, tuple) else ItemUtility(item_id, value)
            for item_id, value in utilities.items()
        ]
        self.priors[NAME.tenant, study] = Prior(study, len(entries), tuple(entries))

    async def prior(self, tenant: str, study: str, *, context_dim: int) -> Prior:  # noqa: ARG002
        if (tenant, study) not in self.priors:
            raise InvalidArgumentError("prior_study", f"there is no study {study}")
        return self.priors[tenant, study]


@dataclass(frozen=True)
class Worker:
    store: Store
    models: ModelCache
    recommender: Recommender
    bandits: Bandits
    hooks: RecordedHooks
    notebook: Notebook


@asynccontextmanager
async def running_worker(
    store: Store,
    *,
    home: Stores | None = None,
    limits: Limits = LIMITS,
    budget: MemoryBudget | None = None,
    look_seconds: float = 0.2,
    now: Callable[[], float] | None = None,
    hooks: RecordedHooks | None = None,
    owns: Callable[[str], bool] = lambda _bandit: True,
) -> AsyncIterator[Worker]:
    """Run a worker on a store until the end of the block.

    Its ids are numbers of those who have opened the store, and its clock is theirs: so they do not depend on what else
    ran in this process, nor on how fast it runs.
    """
    hooks, notebook, home = hooks or RecordedHooks(), Notebook(), home or home_of(store)
    births, clock = home.births if home else itertools.count(), home.clock if home else None

    def new_id() -> str:
        return f"id-{next(births)}"

    async with AsyncExitStack() as stack:
        deciders = stack.enter_context(ThreadPoolExecutor(2))
        learners = stack.enter_context(ThreadPoolExecutor(1))
        observed = time_calls(store, hooks)
        models = ModelCache(
            observed,
            learners,
            limits=limits,
            hooks=hooks,
            clock_ms=clock.read_ms if clock else lambda: time.time_ns() // 1_000_000,
            worker_id=new_id(),
            retention=AS_SNAPSHOTS_ALLOW,
            budget=budget,
            look_seconds=look_seconds,
            now=now or (clock.read_seconds if clock else time.monotonic),
            owns=owns,
        )
        stack.push_async_callback(models.stop)
        models.start()
        quotas = TenantQuotas(observed, Quotas({Quota.BANDITS: 9}))
        yield Worker(
            store=store,
            models=models,
            recommender=Recommender(observed, models, deciders, quotas=quotas, hooks=hooks, new_id=new_id),
            bandits=Bandits(
                observed,
                models,
                logs=WholeLogs(observed, None),
                default_exploration=Exploration(ConstantBeta(1.0), 0.1),
                quotas=quotas,
                new_id=new_id,
                priors=notebook,
            ),
            hooks=hooks,
            notebook=notebook,
        )


def worker_status() -> WorkerStatus:
    """Return how a worker is that was called twice."""
    calls = (
        CallStatus(
            "topk_bandit.v1.RecommenderService/Recommend",
            2,
            1,
            median_seconds=0.004,
            p90_seconds=0.008,
            p99_seconds=0.008,
        ),
    )
    return WorkerStatus("0.0", "here/1", 1_000, 12.5, calls)


def request(
    request_id: str = "", *, context: Sequence[float] = (1.0, 0.5), candidates: Sequence[str] | None = None
) -> RecommendationRequest:
    return RecommendationRequest(request_id, tuple(context), None if candidates is None else tuple(candidates))


@dataclass
class Archive:
    """Every event of a bandit, also those that are trimmed later, as long as it looks often enough."""

    store: Store
    events: list[LoggedEvent] = field(default_factory=list)

    async def look(self) -> None:
        while True:
            part = await self.store.read_log(NAME, start=len(self.events) + 1, limit=1000)
            assert part.first_position <= len(self.events) + 1, "the archive came too late"
            self.events.extend(part.events)
            if len(self.events) >= part.log_position:
                return


@dataclass
class Shop:
    """A storefront with customers, slow rewards and changing shelves; everything it does comes from one seed."""

    worker: Worker
    stores: Stores
    rng: np.random.Generator
    open: list[str] = field(default_factory=list)
    rounds: int = 0

    async def create(self, settings: BanditSettings = SETTINGS) -> None:
        await self.worker.bandits.create_bandit(NAME, settings)
        await self.worker.bandits.upsert_items(NAME, [Item(f"i{n}") for n in range(8)])

    async def trade(self, rounds: int, *, archive: Archive | None = None) -> None:
        """Do `rounds` things; the rarer ones every so often."""
        for _ in range(rounds):
            self.rounds += 1
            if self.rounds % 10 == 0:
                await self._pause()
            if self.rounds % 60 == 30:
                await self._miss_deadlines()
            if self.rounds % 45 == 20:
                await self._change_items()
            if self.rounds % 70 == 40:
                await self._change_settings()
            if self.rounds % 90 == 50:
                await self._change_prior(self.rounds // 90)
            await self._serve_one()
            if archive is not None and self.rounds % 10 == 0:
                await archive.look()
        if archive is not None:
            await archive.look()

    async def _pause(self) -> None:
        """Let what was learned age, and the worker have all of it: it is never far behind, however slow it is."""
        if self.stores.clock is not None:
            await self.stores.pass_time(100)
        await self.worker.models.follow(NAME)

    async def _serve_one(self) -> None:
        if self.open and self.rng.random() < 0.45:
            chosen = self.open.pop(int(self.rng.integers(len(self.open))))
            await self.worker.recommender.reward(NAME, chosen, float(self.rng.normal()))
        else:
            self.open.append((await self.recommend()).recommendation_id)

    async def recommend(self) -> Recommendation:
        request_id, context = f"r{self.rng.integers(10**12)}", self.rng.normal(size=2).tolist()
        candidates = None
        if self.rng.random() < 0.3:
            candidates = [item.item_id for item in await self.worker.store.list_items(NAME)]
        wanted = request(request_id, context=context, candidates=candidates)
        return await self.worker.recommender.recommend(NAME, wanted)

    async def _miss_deadlines(self) -> None:
        """Close some slates without a reward, others with a late one; alternately with and without a default."""
        default = 0.25 if self.rounds % 120 == 30 else None
        await self._update(reward_wait_ms=1, default_reward=default)
        missed = [(await self.recommend()).recommendation_id for _ in range(6)]
        await self.stores.pass_time(10)
        outcomes = [(await self.worker.recommender.reward(NAME, one, 3.0)).outcome for one in missed[:3]]
        assert set(outcomes) == {"late"}
        await self.worker.models.expire(NAME)
        await self._update(reward_wait_ms=HOUR_MS, default_reward=None)

    async def _change_items(self) -> None:
        turn = self.rounds // 45
        changed = [Item(f"i{turn % 7}", available=False), Item(f"i{(turn - 1) % 7}")]
        await self._insist(self.worker.bandits.upsert_items(NAME, [*changed, Item("early")] if turn < 5 else changed))
        if turn in {5, 9}:
            await self._insist(self.worker.bandits.retire_items(NAME, ["early"] if turn == 5 else ["i7"]))
        # Two a turn: more than the bandit has capacity for, if retired ones kept their places.
        brief = [one.item_id for one in await self.worker.store.list_items(NAME) if one.item_id.startswith("brief")]
        if brief:
            await self._insist(self.worker.bandits.retire_items(NAME, brief))
        await self._insist(self.worker.bandits.upsert_items(NAME, [Item(f"brief-{turn}-{n}") for n in range(2)]))

    async def _insist(self, change: Coroutine[Any, Any, object]) -> None:
        """Have items changed; where a follower says nothing any more it is waited for until enough time has gone by."""
        changing = asyncio.create_task(change)
        while not (await asyncio.wait([changing], timeout=0.5))[0]:
            await self.stores.pass_time(FOLLOWER_SILENCE_MS + 1)
        await changing

    async def _change_settings(self) -> None:
        beta = ConstantBeta(float(self.rng.random())) if self.rounds % 140 == 40 else PaperBeta(0.2)
        uniform, near = self.rng.random(2) / 3
        half_life_ms = (0, HOUR_MS, 500)[self.rounds // 70 % 3]
        exploration = Exploration(beta, float(uniform), float(near))
        capacity = SETTINGS.item_capacity + self.rounds // 140
        await self._update(exploration=exploration, half_life_ms=half_life_ms, item_capacity=capacity)

    async def _change_prior(self, turn: int) -> None:
        """Name a study of constants, one of contexts, none, then newer constants, those again, and so on."""
        ids = [*(f"i{n}" for n in range(9)), "early", "nowhere"]
        study = ("", "constants", "constants", "contexts")[(turn + 2) % 4]
        if study == "constants":
            self.worker.notebook.write(study, dict(zip(ids, self.rng.normal(size=len(ids)).tolist(), strict=True)))
        if study == "contexts":
            rows = map(tuple, self.rng.normal(size=(len(ids), 2)).tolist())
            self.worker.notebook.write(study, dict(zip(ids, rows, strict=True)))
        await self._update(prior_study=study, prior_digest="")

    async def _update(self, **changed: object) -> None:
        await self.worker.bandits.update_bandit(NAME, lambda settings: replace(settings, **changed))


def replayed(
    incarnation: str, events: Sequence[LoggedEvent], *, limits: Limits = LIMITS, after: Sequence[Model] = ()
) -> list[Model]:
    """Fold a whole log from nothing, or after what a part of it gave; return the model after each event."""
    models = list(after) or [begin(incarnation, events[0], limits=limits)]
    for logged in events[len(models) :]:
        models.append(fold(models[-1], logged))
    return models


def begun(*, limits: Limits = LIMITS) -> Model:
    """Return a model that has items, i0 to i7, and nothing else."""
    first = LoggedEvent(1, 1, BanditCreated(SETTINGS))
    model = begin("birth", first, limits=limits)
    return then(model, ItemsChanged(tuple(Item(f"i{number}") for number in range(8))))


def then(model: Model, event: Event) -> Model:
    """Return the model after one more event of its log."""
    return fold(model, LoggedEvent(model.version + 1, model.version, event))


async def rebuilt(store: Store, *, limits: Limits = LIMITS) -> Model:
    """Return the model of a log that is whole."""
    record = await store.get_bandit(NAME)
    return replayed(record.incarnation, await whole_log(store, NAME), limits=limits)[-1]


def assert_same(one: Model, other: Model) -> None:
    """Hold two models to be the same to the bit, in what they are made of and in what they predict."""
    assert one.version == other.version
    assert _plain(one) == _plain(other)
    kernel = one.state.posterior.kernel
    rng = np.random.default_rng(7)
    items = np.arange(kernel.n_items, dtype=np.int32)
    rankings = random_rankings(items, slate_size=kernel.slate_size, count=40, rng=rng)
    for context in rng.normal(size=(4, one.settings.context_dim)):
        mine, theirs = (model.state.predict(context, rankings) for model in (one, other))
        assert mine.mean.tobytes() == theirs.mean.tobytes()
        assert mine.variance.tobytes() == theirs.variance.tobytes()


LEFT_OUT = {"names", "begun_at", "reward_curve", "catalogue", "learned_counts"}
"""What snapshots of data version 1 leave out: nothing is learned by it, but for provisional rewards, of version 2."""


def _plain(value: object) -> object:
    """Take a model apart into values that can be compared with ``==``; arrays become their bytes."""
    if isinstance(value, np.ndarray):
        return value.shape, value.dtype.str, np.ascontiguousarray(value).tobytes()
    if isinstance(value, Posterior):
        return _plain_posterior(value)
    if isinstance(value, Mapping):
        return [(key, _plain(entry)) for key, entry in value.items()]
    if is_dataclass(value) and not isinstance(value, type):
        return {one.name: _plain(getattr(value, one.name)) for one in fields(value) if one.name not in LEFT_OUT}
    if isinstance(value, float):
        return value.hex()
    return tuple(_plain(entry) for entry in value) if isinstance(value, tuple) else value


def _plain_posterior(posterior: Posterior) -> object:
    """Leave out the capacity that arrays have beyond the rows in use, and whom it is shared with."""
    n = posterior.n_rows
    scalars = (posterior.noise_variance, posterior.offset, posterior.slope, posterior.amplitude, n, *posterior._sums)
    return (
        _plain(scalars),
        _plain(posterior.observed_rows),
        _plain(posterior._rows.whitener[:n, :n]),
        _plain(posterior._weights),
        _plain(posterior._pending),
        _plain(posterior.prior_mean),
        _plain(posterior.kernel),
    )


async def settles(worker: Worker) -> bool:
    """Return whether a worker's model has folded in the whole log by itself."""
    try:
        record = await worker.store.get_bandit(NAME)
    except TopkBanditError:
        return False
    model = worker.models.peek_model(NAME)
    return model is not None and model.version == record.log_position
