"""Follows one bandit's log: a state machine whose states are `FollowerState` and whose drawing is in `Follower`.

A follower promises that its model is a fold of the log's events in their order, without gaps. It reports to the store
up to which position it knows the items, so that no slate with a retired item is recorded. It never decides by itself
when to follow or to leave: `topk_bandit.bandits.model_cache` does.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING

from topk_bandit.bandits.fold import begin, fold, folds_without_refit
from topk_bandit.bandits.own_events import LogEnd, OwnEvents, end_of
from topk_bandit.bandits.recent_events import RecentEvents
from topk_bandit.bandits.saved_snapshots import SavedSnapshots
from topk_bandit.domain.errors import CorruptDataError, ExhaustedError
from topk_bandit.domain.hooks import ModelFigures
from topk_bandit.domain.reward_times import ALMOST_ALL
from topk_bandit.store.events import (
    Expired,
    LoggedEvent,
    Recommended,
    RewardCollected,
    Rewarded,
    RewardRevised,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from concurrent.futures import Executor

    from topk_bandit.bandits.log_retention import Retention
    from topk_bandit.bandits.model import Model
    from topk_bandit.domain.bandits import BanditName
    from topk_bandit.domain.hooks import Hooks
    from topk_bandit.learning.limits import Limits
    from topk_bandit.store.log import LogSlice, Store

__all__ = ["Follower", "FollowerState"]

_log = logging.getLogger(__name__)

EVENTS_PER_READ = 512
SHORT_TAIL = 64
"""So many events after a snapshot are folded before the model is used; with a longer tail it is used as it is."""

EVENTS_AT_ONCE = 16
EVENTS_TIMES_ROWS_AT_ONCE = 4_096
ROWS_AT_ONCE = 1_024
SLATE_SIZE_AT_ONCE = 8
"""Events are folded on the event loop if none of the four is exceeded and none of them refits: it takes a few
milliseconds. A thread that computes meanwhile waits at each of its steps, and lets the calls wait that are answered
(decision 67)."""


class FollowerState(Enum):
    """Where a bandit's model stands in this worker; `Follower` draws what leads where."""

    ABSENT = "absent"
    LOADING = "loading"
    CURRENT = "current"
    LAGGING = "lagging"
    BROKEN = "broken"
    RESTING = "resting"


_PRESENT = frozenset({FollowerState.LOADING, FollowerState.CURRENT, FollowerState.LAGGING, FollowerState.BROKEN})


@dataclass(frozen=True, slots=True, eq=False)
class _Step:
    """What folding events gives: the newest model, the newest one at a checkpoint, and why it ends before the last."""

    model: Model
    checkpoint: Model | None
    problem: Exception | None = None


class Follower:
    """Holds one bandit's model and follows the bandit's log with it.

    ::

                  asked for              snapshot and short tail
        absent  ------------->  loading  ----------------------->  current
                                   |                                |   ^
                                   |         the store has more     |   |  the log's end
                                   |         than was folded        |   |  is folded
                                   |                                v   |
                                   +---------------------------->  lagging
                                     snapshot and long tail

        loading, current, lagging  ->  broken           an event can't be read or folded: logged and counted
        broken                     ->  current, lagging  it can be after all, at one of the next looks, or another
                                                         worker could fold it and saved a snapshot
        any                        ->  resting, absent  not used for long, or others need the memory
        any                        ->  absent           there is no such bandit, nothing to load it from, or the end

    Without a snapshot the whole log is folded, page by page: the model lags until it is at the end. A model is
    published (`model`) while current and lagging; a broken follower keeps the last one that could be folded, if there
    was one. A log that is not the one that was followed, as after a failover, is loaded anew while the old model lags.
    Resting and absent followers are never used again: a bandit that is asked for again gets a new one, which is
    loading. One task at a time may `load` or `follow`; everything may be read at any time.

    Parameters
    ----------
    executor
        Where events are folded that take long: a refit, many events, and the first ones.
    limits
        What the posterior may grow to.
    clock_ms
        This machine's clock, for the model's age only.
    worker_id
        What the store knows this worker by.
    announce_seconds
        How often at least the store receives how far the items are known.
    retention
        What stays of the log behind its snapshots.

    Attributes
    ----------
    own
        What this worker appended to the log, as far as the store reported it.
    """

    def __init__(
        self,
        name: BanditName,
        store: Store,
        executor: Executor,
        *,
        limits: Limits,
        hooks: Hooks,
        clock_ms: Callable[[], int],
        worker_id: str,
        announce_seconds: float,
        retention: Retention,
    ) -> None:
        self.name = name
        self.state = FollowerState.LOADING
        self.model: Model | None = None
        self.own = OwnEvents()
        self._store = store
        self._executor = executor
        self._limits = limits
        self._hooks = hooks
        self._clock_ms = clock_ms
        self._worker_id = worker_id
        self._announce_seconds = announce_seconds
        self._announced_position = -1
        self._announce_at = 0.0
        self._snapshots = SavedSnapshots(name, store, executor, limits=limits, hooks=hooks, retention=retention)
        self._loaded_end = 0
        self._unrewarded = 0
        self._recent = RecentEvents()
        self._end: LogEnd | None = None

    @property
    def is_present(self) -> bool:
        """Whether the follower neither rests nor is absent."""
        return self.state in _PRESENT

    @property
    def has_announced(self) -> bool:
        """Whether the store received lately how far the items are known, and knew no newer ones."""
        return _now() <= self._announce_at + self._announce_seconds

    async def load(self) -> Model:
        """Return a model soon, and publish it: at the log's end if that is near or no snapshot fits, else the newest's.

        It knows all changes of items that the store knew when it was asked. The errors are those of `follow`; an event
        that can't be folded is one only if that leaves no such model.
        """
        with self._breaking():
            model, part = await self._restore(limit=SHORT_TAIL + 1)
        self._report_lag(model, part)
        if model is None or part.log_position <= model.version + SHORT_TAIL:
            model = await self._fold_as_far_as_possible(model, part)
        if not await self._announce_unless_full(model):
            return await self.follow()
        if self.state is not FollowerState.BROKEN:
            self._publish(model, log_position=part.log_position)
        return model

    async def follow(self, *, reads: bool = True) -> Model:
        """Fold the log to its end, publish the model, and report to the store how far the items are known.

        Parameters
        ----------
        reads
            Whether the log is asked for its end. Else it is only where this worker's own events do not follow what was
            folded: others' may be missing then, unless somebody says that there are some.

        Raises
        ------
        NotFoundError
            There is no such bandit (any more).
        UnavailableError
            The store is away; the model stays as it is.
        CorruptDataError
            Neither the log nor a snapshot can be read, or an event can't be folded.
        """
        own = None if reads else self._find_own()
        model = await self._fold_to_end(*own or await self._read_next())
        while self._announced_position != model.items_position or _now() >= self._announce_at:
            if await self._announce_unless_full(model):
                break
            model = await self._fold_to_end(*await self._read_next())
        return model

    async def announce_items(self, model: Model) -> bool:
        """Report to the store how far a model knows the items; return whether that is all that the store knows."""
        position, now = model.items_position, _now()
        newest = await self._store.note_follower(self.name, follower=self._worker_id, items_position=position)
        self._announced_position = position
        if newest <= position:
            self._announce_at = now + self._announce_seconds
        return newest <= position

    async def _announce_unless_full(self, model: Model) -> bool:
        """Return what `announce_items` does, or True if the store is full: it records no slate then, whatever items."""
        try:
            return await self.announce_items(model)
        except ExhaustedError:
            return True

    @property
    def snapshot_position(self) -> int:
        """The log position of the newest snapshot that this worker resumed after or saved, 0 without one."""
        return self._snapshots.position

    def note_written(self, position: int, recommendation_id: str, *, is_reward: bool) -> None:
        """Note what the store has reported as written, so that its loss is noticed."""
        self._recent.note_written(position, recommendation_id, is_reward=is_reward)

    def rest(self) -> None:
        """Leave because the model is not used, or others need its memory; calls that hold the model end with it."""
        self._enter(FollowerState.RESTING)

    def leave(self) -> None:
        """Leave because there is no such bandit, or no model of it."""
        self._enter(FollowerState.ABSENT)

    def _enter(self, state: FollowerState) -> None:
        """Enter a state; a call that ends late does not bring back a follower that has left."""
        if self.is_present:
            self.state = state

    def _break(self) -> None:
        self._enter(FollowerState.BROKEN)
        self._hooks.fold_failed(str(self.name))

    @contextmanager
    def _breaking(self) -> Iterator[None]:
        """Break if what is read of the log or of its snapshots is damaged."""
        try:
            yield
        except CorruptDataError:
            self._break()
            raise

    def _publish(self, model: Model, *, log_position: int) -> None:
        is_new, self.model = model is not self.model, model
        if model.version >= log_position:
            self._enter(FollowerState.CURRENT)
        elif is_new or self.state is not FollowerState.BROKEN:
            self._enter(FollowerState.LAGGING)

    async def _fold_as_far_as_possible(self, model: Model | None, part: LogSlice) -> Model:
        """Fold a log to its end, or to an event that breaks the follower."""
        try:
            return await self._fold_to_end(model, part)
        except Exception:
            if self.model is None or self.state is not FollowerState.BROKEN:
                raise
            return self.model

    async def _fold_to_end(self, model: Model | None, part: LogSlice) -> Model:
        """Fold a slice of the log and all that comes after it into a model, and publish what comes out of each."""
        while True:
            self._report_lag(model, part)
            events = tuple(logged for logged in part.events if model is None or logged.position > model.version)
            step = await self._fold(model, part.incarnation, events)
            newest = step.model
            self._publish(newest, log_position=part.log_position)
            self._note_folded(newest, part)
            self._report_lag(newest, part)
            self._report_size(newest)
            if step.problem is not None:
                self._break()
                raise step.problem
            if newest.version >= part.log_position:
                return newest
            if newest is model:
                await self._refuse_event(newest.version + 1)
            model, part = await self._read_next()

    def _note_folded(self, model: Model, part: LogSlice) -> None:
        """Note where in its log a model stands that has folded a slice, or a part of it."""
        self.own.drop(through=model.version)
        if part.events:
            end = end_of(part)
            self._end = end if end is not None and end.position == model.version else None

    def _find_own(self) -> tuple[Model, LogSlice] | None:
        """Return the published model and what this worker appended behind it; None if the log has to be read."""
        model, end = self.model, self._end
        if model is None or end is None or end.position != model.version or self.state is not FollowerState.CURRENT:
            return None
        part = self.own.after(end)
        return None if part is None else (model, part)

    async def _refuse_event(self, position: int) -> None:
        """Break if the event at a position, with which the log goes on, can't be read or is not there."""
        with self._breaking():
            part = await self._store.read_log(self.name, start=position, limit=1)
            if not part.events and part.first_position <= position <= part.log_position:
                raise CorruptDataError(f"{self.name}: the log has no event at {position}")

    async def _read_next(self) -> tuple[Model | None, LogSlice]:
        """Return a model and the next slice of its log; no model if the slice begins the log."""
        with self._breaking():
            return await self._read_after_model() or await self._restore(limit=EVENTS_PER_READ)

    async def _read_after_model(self) -> tuple[Model | None, LogSlice] | None:
        """Return the published model and the log from its last event on; None without one, or if the log is another."""
        if self.model is None or await self._is_overtaken(self.model):
            return None
        written = self._recent.end  # by now: what is written while the log is read may not be in it
        part = await self._read_from(self.model, limit=EVENTS_PER_READ)
        is_same, is_lost = _is_same_log(part, self.model), False
        if part.incarnation == self.model.incarnation and (
            part.log_position < written or not is_same or self._recent.contradicts(part.events)
        ):
            is_lost = await self._note_loss(part)
        if is_same:
            if part.log_position > self.model.version and self.state is not FollowerState.BROKEN:
                self._enter(FollowerState.LAGGING)
            return self.model, part
        self._enter(FollowerState.LAGGING)
        if is_lost or not _begins_beyond(part, self.model):
            _log.warning("the log is not the one that was followed; rebuilding", extra={"bandit": str(self.name)})
            self._hooks.log_replaced(str(self.name))
        return None

    async def _read_from(self, model: Model, *, limit: int) -> LogSlice:
        """Return the log from a model's last event on, or from the next one where it was trimmed up to the model."""
        part = await self._store.read_log(self.name, start=model.version, limit=limit)
        if _begins_behind(part, model):
            return await self._store.read_log(self.name, start=part.first_position, limit=limit)
        return part

    async def _is_overtaken(self, model: Model) -> bool:
        """Return whether another worker, which could fold what this one can't, has saved a snapshot since."""
        if self.state is not FollowerState.BROKEN:
            return False
        if (await self._store.get_bandit(self.name)).snapshot_position <= model.version:
            return False
        return any(snapshot.position > model.version for snapshot in await self._store.load_snapshots(self.name))

    async def _note_loss(self, part: LogSlice) -> bool:
        """Find out what is gone of the log, and report it to the store, the log of operations and the metrics.

        Return whether anything is.
        """
        recent, events, start = self._recent, list[LoggedEvent](), max(self._recent.start, part.first_position)
        while (page := await self._store.read_log(self.name, start=start, limit=EVENTS_PER_READ)).events:
            events += page.events
            start += len(page.events)
        gone = recent.find_gone(events, first_position=part.first_position, log_position=part.log_position)
        loss = await self._store.note_loss(
            self.name, incarnation=part.incarnation, after=gone.after, end=gone.end, rewards=gone.rewards
        )
        recent.forget()
        self.own.forget()
        if loss.events:
            self._hooks.events_lost(str(self.name), events=loss.events, rewards=loss.rewards)
            _log.error(
                "the store has lost the end of a log: %s events, %s of them rewards",
                loss.events,
                loss.rewards,
                extra={
                    "bandit": str(self.name),
                    "after": gone.after,
                    "end": gone.end,
                    "lost_events": loss.events,
                    "lost_rewards": loss.rewards,
                },
            )
        return gone.after < gone.end

    async def _restore(self, *, limit: int) -> tuple[Model | None, LogSlice]:
        """Return the newest model that a snapshot gives and the log after it; no model for a log that is whole."""
        self._end = None
        self.own.forget()
        for snapshot in await self._snapshots.load():
            model = await self._snapshots.decode(snapshot)
            if model is None:
                continue
            part = await self._read_from(model, limit=limit)
            if _is_same_log(part, model):
                self._snapshots.resume_after(snapshot, at_ms=model.last.at_ms, imported=model.state.imported)
                self._recent.note_read((model.last,))
                self._loaded_end = part.log_position
                return model, part
        part = await self._store.read_log(self.name, start=1, limit=limit)
        if part.first_position > 1:
            raise CorruptDataError(f"{self.name}: the log begins at {part.first_position} and no snapshot fits")
        self._snapshots.resume_after(None)
        self._loaded_end = part.log_position
        return None, part

    async def _fold(self, model: Model | None, incarnation: str, events: Sequence[LoggedEvent]) -> _Step:
        if model is not None and not events:
            return _Step(model, None)
        work = partial(self._fold_events, model, incarnation, events)
        try:
            if _is_short(model, events):
                step = work()
            else:
                step = await asyncio.get_running_loop().run_in_executor(self._executor, work)
        except Exception:
            self._break()
            raise
        self._recent.note_read(logged for logged in events if logged.position <= step.model.version)
        if step.checkpoint is not None:
            await self._snapshots.save_if_due(step.checkpoint)
        return step

    def _fold_events(self, model: Model | None, incarnation: str, events: Sequence[LoggedEvent]) -> _Step:
        """Fold events into a model, up to one that can't be folded."""
        checkpoint, problem, n_folded, start = None, None, 0, time.perf_counter()
        try:
            for logged in events:
                model = self._fold_event(model, incarnation, logged)
                n_folded += 1
                if model.since_checkpoint == 0:
                    checkpoint = model
        except Exception as error:
            if model is None:
                raise
            problem = error
        if model is None:
            raise CorruptDataError(f"{self.name}: the log is empty")
        if n_folded:
            self._hooks.folded(n_folded, time.perf_counter() - start)
        return _Step(model, checkpoint, problem)

    def _fold_event(self, model: Model | None, incarnation: str, logged: LoggedEvent) -> Model:
        if model is None:
            return begin(incarnation, logged, limits=self._limits)
        start = time.perf_counter()
        folded = fold(model, logged)
        if folded.since_checkpoint == 0:
            self._hooks.refitted(time.perf_counter() - start)
        self._count_unrewarded(logged)
        self._report_learned(logged)
        self._report_doubts(model, folded)
        return folded

    def _count_unrewarded(self, logged: LoggedEvent) -> None:
        """Count the slates since the newest reward."""
        if isinstance(logged.event, Recommended):
            self._unrewarded += 1
        elif isinstance(logged.event, Rewarded | RewardCollected):
            self._unrewarded = 0

    def _report_learned(self, logged: LoggedEvent) -> None:
        """Report a reward with its slate's age, or a default one, unless it was in the log before that was loaded."""
        if logged.position <= self._loaded_end:
            return
        match logged.event:
            case Rewarded(recommendation_id=recommendation_id, value=value, shown=shown):
                self._hooks.learned(recommendation_id, value, (logged.at_ms - shown.at_ms) / 1e3)
            case RewardRevised() as revised:
                self._report_provisional(revised, at_ms=logged.at_ms)
            case Expired(default_reward=reward) if reward is not None:
                self._hooks.defaulted()

    def _report_provisional(self, event: RewardRevised, *, at_ms: int) -> None:
        """Report a slate's default reward, and the first reward that takes its place; later changes are neither."""
        if event.is_default:
            self._hooks.defaulted()
        elif event.value is not None and (event.before is None or event.was_default):
            self._hooks.learned(event.recommendation_id, event.value, (at_ms - event.shown.at_ms) / 1e3)

    def _report_doubts(self, before: Model, after: Model) -> None:
        """Report rewards that are not learned; log some of them: the first, the second, the fourth..."""
        if after.version <= self._loaded_end or after.state.counts_as(before.state):
            return
        known, counted = before.state.counted, after.state.counted
        for kind, then, now in (
            ("reward", known.wild_rewards, counted.wild_rewards),
            ("context", known.wild_contexts, counted.wild_contexts),
        ):
            if now > then:
                self._hooks.doubted(kind, now - then)
            if now.bit_length() > then.bit_length():
                _log.warning(
                    "%d rewards are not learned: %s far from all others; see outlier_count",
                    now,
                    "they are" if kind == "reward" else "the contexts of their slates are",
                    extra={"bandit": str(self.name), "log_position": after.version},
                )

    def _report_lag(self, model: Model | None, part: LogSlice) -> None:
        """Report what a model lacks of its log, and how long the oldest event of that has waited.

        Where the slice ends before that event, its newest one stands for it.
        """
        version = 0 if model is None else model.version
        lacking = [logged for logged in part.events if logged.position > version] or part.events[-1:]
        waiting_ms = self._clock_ms() - lacking[0].at_ms if lacking and part.log_position > version else 0
        self._hooks.followed(str(self.name), max(0, part.log_position - version), max(0, waiting_ms) / 1e3)

    def _report_size(self, model: Model) -> None:
        saved, age_ms = self._snapshots, self._clock_ms() - self._snapshots.at_ms
        self._hooks.backed(
            str(self.name),
            unsaved_events=model.version - saved.position,
            age_seconds=max(0, age_ms) / 1e3 if saved.position else 0.0,
            n_bytes=saved.n_bytes,
        )
        figures = ModelFigures(
            observations=model.state.observations,
            pending=model.open_slates,
            rows=model.state.posterior.n_rows,
            memory_bytes=model.memory_bytes,
            outlier_share=model.state.recent.outlier_share,
            spread_factor=model.state.spread_factor,
            missing_rewards=self._unrewarded * _reward_ratio(model),
            selection_share=model.selection_share,
            settled_seconds=(model.reward_times.came_by(ALMOST_ALL) or 0) / 1e3,
        )
        self._hooks.posterior(str(self.name), figures)


def _is_short(model: Model | None, events: Sequence[LoggedEvent]) -> bool:
    """Return whether folding events takes less time than it costs to have a thread do it."""
    if model is None or len(events) > EVENTS_AT_ONCE or model.settings.slate_size > SLATE_SIZE_AT_ONCE:
        return False
    n_rows = model.state.posterior.n_rows
    is_little = n_rows <= ROWS_AT_ONCE and len(events) * n_rows <= EVENTS_TIMES_ROWS_AT_ONCE
    return is_little and folds_without_refit(model, events)


def _reward_ratio(model: Model) -> float:
    """Return how many rewards a slate got in the mean of a bandit's life; a default is none."""
    rewards = model.state.observations - model.state.imported - model.tally.defaults
    return max(0, rewards) / max(1, model.tally.recommendations)


def _begins_behind(part: LogSlice, model: Model) -> bool:
    """Return whether the log begins with the event after a model's last one: it was trimmed up to that."""
    return part.incarnation == model.incarnation and part.first_position == model.version + 1


def _begins_beyond(part: LogSlice, model: Model) -> bool:
    """Return whether the log was trimmed beyond a model that lags: snapshots have what is between the two."""
    return part.incarnation == model.incarnation and part.first_position > model.version + 1


def _is_same_log(part: LogSlice, model: Model) -> bool:
    """Return whether what `Follower._read_from` returned is of the log that the model folded.

    After a failover a log can be shorter than what was folded, or have other events in the same places; and an event
    that could be folded here, and was damaged later, may have been passed over.
    """
    if _begins_behind(part, model):
        return True
    passed_over = {position for position in part.skipped if position <= model.version}
    is_same = part.incarnation == model.incarnation and part.events[:1] == (model.last,)
    return is_same and passed_over <= model.skipped


def _now() -> float:
    return asyncio.get_running_loop().time()
