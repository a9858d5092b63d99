"""A store that reads what a rule needs, lets it decide, and commits the decision if nothing of that has changed."""

from __future__ import annotations

from abc import abstractmethod
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from topk_bandit.domain.bandits import WHOLE_ITEMS
from topk_bandit.domain.durability import IN_MEMORY, Durability
from topk_bandit.domain.errors import (
    CorruptDataError,
    NotDurableError,
    TopkBanditError,
    UnavailableError,
)
from topk_bandit.domain.paths import entry_of
from topk_bandit.domain.slates import NOTHING_NAMED, Reward, RewardReceipt
from topk_bandit.store.data_versions import check_item_values, check_request
from topk_bandit.store.log import (
    Appended,
    Expiry,
    ImportOutcome,
    ImportProgress,
    RecordOutcome,
    RecordStatus,
    Store,
    Written,
)
from topk_bandit.store.recorded import find_item_values
from topk_bandit.store.refusals import finite_text
from topk_bandit.store.rules import bandits, slates
from topk_bandit.store.rules.decisions import Commit, Decision, position_of
from topk_bandit.store.rules.imports import KnownImport, recall_part
from topk_bandit.store.visits import Visits

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from topk_bandit.domain.bandits import BanditName, BanditSettings, Item, ItemMask, Prior
    from topk_bandit.domain.rules import SlateRule
    from topk_bandit.domain.slates import ActivationReceipt, Recommendation, RecommendationRequest
    from topk_bandit.store.events import Imported
    from topk_bandit.store.log import BanditRecord, Correctable, ImportPart, LostEvents, NewSlate, Skip
    from topk_bandit.store.rules.decisions import Known

__all__ = ["REWARDS_AT_ONCE", "TRIES", "Commits", "Committed", "Due", "JournaledStore", "Sought", "too_fast"]

REWARDS_AT_ONCE = 100
"""How many rewards of a batch are decided and committed together."""

TRIES = 64
"""How often a call is decided anew whose decisions are stale when they are committed."""

_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True)
class Sought:
    """What a rule needs to know of a bandit.

    Attributes
    ----------
    slates
        Ids of recommendations.
    items
        Ids of items.
    recalls
        Whether the slates themselves are needed of recommendations that have ended, which the log may know.
    part
        Id of an import and first row of a part of it; None for no import.
    life
        Whether `Known.life` is needed.
    visitor
        A visitor whose visits are needed; empty for none.
    """

    slates: tuple[str, ...] = ()
    items: tuple[str, ...] = ()
    recalls: bool = False
    part: tuple[str, int] | None = None
    life: bool = False
    visitor: str = ""


@dataclass(frozen=True, slots=True)
class Due:
    """Slates whose deadlines have passed, and what comes next.

    Attributes
    ----------
    known
        Has these slates; None for one whose record can't be read.
    next_deadline_ms
        The earliest deadline of all others, None without any.
    forgets
        Whether slates have to be forgotten that ended long ago.
    """

    known: Known
    next_deadline_ms: int | None
    forgets: bool


@dataclass(frozen=True, slots=True)
class Committed:
    """What was committed: when, and from which position on; 0 where nothing was appended."""

    position: int = 0
    at_ms: int = 0
    appended: Appended | None = None
    durability: Durability = IN_MEMORY

    def achieved(self, durability: Durability) -> Committed:
        """Return the same, known to be so durable."""
        return self if durability == self.durability else replace(self, durability=durability)


class Commits(NamedTuple):
    """What became of decisions.

    Attributes
    ----------
    outcomes
        What was committed of each; None for one that has to be made again, and an error in place of one that failed.
    durability
        How durable all of it is; or that it was not durable in time.
    """

    outcomes: Sequence[Committed | Exception | None]
    durability: Durability | NotDurableError = IN_MEMORY


@dataclass(slots=True)
class _Batch:
    """What became of rewards that come together, so far.

    Attributes
    ----------
    appended
        What their commits appended.
    missed
        That some were not durable in time; None as long as all were.
    away
        That the store could not be asked; None as long as it could.
    """

    appended: list[Appended | None] = field(default_factory=list)
    missed: NotDurableError | None = None
    away: UnavailableError | None = None

    def note(self, outcome: TopkBanditError | Durability) -> None:
        """Note what became of some of them."""
        if isinstance(outcome, NotDurableError):
            self.missed = self.missed or outcome
        elif isinstance(outcome, UnavailableError):
            self.away = self.away or outcome


class JournaledStore(Store):
    """The commands of a `Store` that rules decide, for stores that read and commit."""

    @abstractmethod
    async def _read(self, name: BanditName, sought: Sought) -> Known:
        """Return what is known of a bandit, or raise `NotFoundError`."""

    @abstractmethod
    async def _read_due(self, name: BanditName, *, limit: int) -> Due | None:
        """Return up to `limit` slates whose deadlines have passed, earliest first; None for no such bandit."""

    @abstractmethod
    async def _commit(
        self, name: BanditName, decided: Sequence[tuple[Known, Commit]], *, is_durable: bool, hands_on: bool
    ) -> Commits:
        """Commit decisions about a bandit, each for itself and in order.

        Parameters
        ----------
        is_durable
            Whether to wait until all of them are as durable as was promised.
        hands_on
            Whether the caller hands on what is appended, so that it need not be announced to itself.
        """

    @abstractmethod
    async def _forget_closed(self, name: BanditName) -> None:
        """Forget slates that ended longer ago than they are kept."""

    def _presume(
        self,
        name: BanditName,  # noqa: ARG002 - nothing is remembered here
        key: str,  # noqa: ARG002
        *,
        items_position: int | None = None,  # noqa: ARG002
        visits: Visits | None = None,  # noqa: ARG002
    ) -> Known | None:
        """Return what is likely of a bandit and a slate, for stores that remember; None to read it.

        With an `items_position`, which is what is known of the items, the slate is likely to be new. `visits` are what
        was read of its visitor.
        """
        return None

    async def update_settings(
        self, name: BanditName, settings: BanditSettings, *, revision: int, prior: Prior | None = None, reason: str = ""
    ) -> BanditRecord:
        """See `Store.update_settings`."""
        await self._decide(
            name,
            Sought(),
            lambda known: bandits.change_settings(known, settings, revision=revision, prior=prior, reason=reason),
            hands_on=False,
        )
        return await self.get_bandit(name)

    async def reset_bandit(self, name: BanditName, *, request_id: str) -> BanditRecord:
        """See `Store.reset_bandit`."""
        await self._decide(name, Sought(life=True), lambda known: bandits.reset(known, request_id), hands_on=False)
        return await self.get_bandit(name)

    async def change_items(
        self, name: BanditName, *, upserted: Sequence[Item], retired: Sequence[str], mask: ItemMask = WHOLE_ITEMS
    ) -> BanditRecord:
        """See `Store.change_items`."""
        ids = dict.fromkeys([*(item.item_id for item in upserted), *retired])
        await self._decide(
            name,
            Sought(items=tuple(ids)),
            lambda known: bandits.change_items(known, upserted=upserted, retired=retired, mask=mask),
            hands_on=False,
        )
        return await self.get_bandit(name)

    async def find_import(self, name: BanditName, import_id: str) -> ImportProgress:
        """See `Store.find_import`."""
        known = await self._read(name, Sought(part=(import_id, 0)))
        return known.imported.progress if known.imported else ImportProgress()

    async def find_import_part(self, name: BanditName, part: ImportPart) -> ImportOutcome | None:
        """See `Store.find_import_part`; one that is found is waited for as the first time."""

        def rule(known: Known) -> Decision[ImportOutcome | None]:
            found = recall_part(known.imported or KnownImport(), part)
            return Decision(found, Commit() if found else None)

        decision, _ = await self._decide(name, Sought(part=part.place), rule, hands_on=False)
        return decision.answer

    async def record_import(
        self, name: BanditName, part: ImportPart, event: Imported | None, *, incarnation: str, items_position: int
    ) -> ImportOutcome:
        """See `Store.record_import`."""
        if event is not None:
            check_item_values(self.data_version, *find_item_values(event))
        decision, committed = await self._decide(
            name,
            Sought(part=part.place),
            lambda known: bandits.record_part(
                known, part, event, incarnation=incarnation, items_position=items_position
            ),
            hands_on=False,
        )
        outcome = decision.answer
        return replace(outcome, position=position_of(outcome.position, committed.position))

    async def skip_event(self, name: BanditName, skip: Skip) -> bool:
        """See `Store.skip_event`."""
        decision, _ = await self._decide(
            name, Sought(life=True), lambda known: bandits.skip(known, skip), hands_on=False
        )
        return decision.answer

    async def note_loss(
        self, name: BanditName, *, incarnation: str, after: int, end: int, rewards: Sequence[int]
    ) -> LostEvents:
        """See `Store.note_loss`."""
        decision, _ = await self._decide(
            name,
            Sought(life=True),
            lambda known: bandits.note_loss(known, incarnation=incarnation, after=after, end=end, rewards=rewards),
            is_durable=False,
            hands_on=False,
        )
        return decision.answer

    async def record_recommendation(
        self,
        name: BanditName,
        request: RecommendationRequest,
        recommendation: Recommendation,
        *,
        incarnation: str,
        items_position: int,
        rules: tuple[SlateRule, ...] = (),
        aside: bool = False,
        visits: Visits | None = None,
    ) -> Written[RecordOutcome]:
        """See `Store.record_recommendation`."""
        check_request(request, self.data_version)

        def rule(known: Known) -> Decision[RecordOutcome]:
            return slates.record(
                known,
                request,
                recommendation,
                incarnation=incarnation,
                items_position=items_position,
                rules=rules,
                aside=aside,
                visits=visits,
            )

        key = recommendation.recommendation_id
        sought = Sought((key,), recalls=True, visitor="" if visits is None else visits.visitor)
        presumed = self._presume(name, key, items_position=items_position, visits=visits)
        decision, committed = await self._decide(name, sought, rule, presumed=presumed, is_durable=False)
        outcome = decision.answer
        if outcome.status is not RecordStatus.RECORDED or decision.commit is None:
            return Written(outcome)
        return Written(_recorded(recommendation, decision.commit, committed), (committed.appended,))

    async def record_recommendations(
        self,
        name: BanditName,
        chosen: Sequence[NewSlate],
        *,
        incarnation: str,
        items_position: int,
        rules: tuple[SlateRule, ...] = (),
    ) -> Written[Sequence[RecordOutcome | Exception]]:
        """See `Store.record_recommendations`."""
        ids = [one.recommendation.recommendation_id for one in chosen]
        presumed = [self._presume(name, one, items_position=items_position) for one in ids]
        known = [one for one in presumed if one is not None]
        if len(known) < len(ids):
            known = [await self._read(name, Sought(tuple(dict.fromkeys(ids)), recalls=True))] * len(ids)
        outcomes: list[RecordOutcome | Exception] = []
        decided: dict[int, tuple[Known, Commit]] = {}
        for place, (one, state) in enumerate(zip(chosen, known, strict=True)):
            try:
                check_request(one.request, self.data_version)
                decision = slates.record(
                    state,
                    one.request,
                    one.recommendation,
                    incarnation=incarnation,
                    items_position=items_position,
                    rules=rules,
                    aside=one.aside,
                )
            except TopkBanditError as error:
                outcomes.append(error)
                continue
            outcomes.append(decision.answer)
            if decision.commit is not None:
                decided[place] = state, decision.commit
        if not decided:
            return Written(outcomes)
        committed, _ = await self._commit(name, list(decided.values()), is_durable=False, hands_on=True)
        for (place, (_, commit)), outcome in zip(decided.items(), committed, strict=True):
            if isinstance(outcome, Committed):
                outcomes[place] = _recorded(chosen[place].recommendation, commit, outcome)
            else:
                outcomes[place] = outcome or RecordOutcome(RecordStatus.STALE)
        return Written(outcomes, tuple(one.appended for one in committed if isinstance(one, Committed)))

    async def find_visits(self, name: BanditName, visitor: str) -> Visits:
        """See `Store.find_visits`."""
        known = await self._read(name, Sought(visitor=visitor))
        return known.visits or Visits(visitor)

    async def find_recommendation(
        self, name: BanditName, request: RecommendationRequest, recommendation_id: str
    ) -> Recommendation | None:
        """See `Store.find_recommendation`."""
        known = await self._read(name, Sought((recommendation_id,), recalls=True))
        return slates.recall(known, request, recommendation_id)

    async def activate(
        self,
        name: BanditName,
        recommendation_id: str,
        shown_slate: Sequence[str] = (),
    ) -> Written[ActivationReceipt]:
        """See `Store.activate`."""
        decision, committed = await self._decide(
            name,
            Sought((recommendation_id,), tuple(shown_slate)),
            lambda known: slates.activate(known, recommendation_id, shown_slate),
        )
        receipt = decision.answer
        dated = replace(receipt, log_position=position_of(receipt.log_position, committed.position))
        return Written(dated, (committed.appended,))

    async def record_reward(
        self,
        name: BanditName,
        recommendation_id: str,
        value: float,
        *,
        reward_id: str = "",
        final: bool = False,
        item_values: Mapping[str, float] = NOTHING_NAMED,
    ) -> Written[RewardReceipt]:
        """See `Store.record_reward`."""
        check_item_values(self.data_version, item_values)
        reward = Reward(recommendation_id, _finite(value), reward_id, final, _finite_items(item_values))
        decision, committed = await self._decide(
            name,
            Sought((recommendation_id,)),
            lambda known: slates.reward(known, reward),
            presumed=self._presume(name, recommendation_id),
        )
        return Written(_dated(decision.answer, committed), (committed.appended,))

    async def correct_reward(
        self,
        name: BanditName,
        recommendation_id: str,
        value: float | None,
        *,
        reward_id: str = "",
        item_values: Mapping[str, float] = NOTHING_NAMED,
        known: Correctable,
    ) -> RewardReceipt | None:
        """See `Store.correct_reward`."""
        check_item_values(self.data_version, item_values)
        wanted, items = None if value is None else _finite(value), _finite_items(item_values)
        decision, committed = await self._decide(
            name,
            Sought((recommendation_id,)),
            lambda now: slates.correct(
                now, recommendation_id, wanted, reward_id=reward_id, looked_at=known, item_values=items
            ),
            hands_on=False,
        )
        return None if decision.answer is None else _dated(decision.answer, committed)

    async def expire_due(self, name: BanditName, *, limit: int) -> Expiry:
        """See `Store.expire_due`."""
        for _ in range(TRIES):
            due = await self._read_due(name, limit=limit)
            if due is None:
                return Expiry(0, None)
            decision = slates.expire(due.known)
            commit = decision.commit
            if commit is None or await self._commit_one(name, due.known, commit, is_durable=False, hands_on=False):
                if due.forgets:
                    await self._forget_closed(name)
                ends = decision.answer
                filed = 0 if commit is None else len(commit.slates) - ends.ended
                return Expiry(ends.ended, due.next_deadline_ms, filed, ends.without_reward)
        raise too_fast(name)

    async def record_rewards(
        self, name: BanditName, rewards: Sequence[Reward]
    ) -> Written[Sequence[RewardReceipt | Exception]]:
        """See `Store.record_rewards`."""
        posted = [replace(one, value=_finite(one.value), item_values=_finite_items(one.item_values)) for one in rewards]
        outcomes: list[RewardReceipt | Exception] = []
        batch = _Batch()
        while len(outcomes) < len(posted) and batch.away is None:
            part = posted[len(outcomes) : len(outcomes) + REWARDS_AT_ONCE]
            outcomes += await self._record_part(name, part, batch)
        left = len(posted) - len(outcomes)
        if batch.away is not None:
            outcomes += [_untried(batch.away)] * left
        return Written(outcomes, tuple(batch.appended))

    async def _record_part(
        self, name: BanditName, part: Sequence[Reward], batch: _Batch
    ) -> list[RewardReceipt | Exception]:
        """Decide rewards, and commit them together; one whose slate has changed meanwhile is decided again.

        An error is the outcome of those alone that were not committed before it.
        """
        outcomes: dict[int, RewardReceipt | Exception] = {}
        is_damaged = False
        for _ in range(TRIES + len(part)):
            left = {place: one for place, one in enumerate(part) if place not in outcomes}
            if not left:
                break
            posted = _of_different_slates(left)
            if is_damaged:  # each alone: one whose record can't be read stops no other
                posted = dict(islice(posted.items(), 1))
            try:
                outcomes |= await self._attempt_rewards(name, posted, batch)
            except CorruptDataError as error:
                if len(posted) == 1:
                    outcomes |= dict.fromkeys(posted, error)
                is_damaged = True
            except TopkBanditError as error:
                batch.note(error)
                outcomes |= dict.fromkeys(left, error)
        return [outcomes.get(place, too_fast(name)) for place in range(len(part))]

    async def _attempt_rewards(
        self,
        name: BanditName,
        posted: Mapping[int, Reward],
        batch: _Batch,
    ) -> dict[int, RewardReceipt | Exception]:
        """Decide rewards of different slates and commit them; leave out those that have to be decided again.

        Once rewards of the batch were waited for in vain, others are not waited for too.
        """
        known = await self._read(name, Sought(tuple(one.recommendation_id for one in posted.values())))
        outcomes: dict[int, RewardReceipt | Exception] = {}
        decided: dict[int, Decision[RewardReceipt]] = {}
        for place, one in posted.items():
            try:
                check_item_values(self.data_version, one.item_values)
                decided[place] = slates.reward(known, one)
            except TopkBanditError as error:
                outcomes[place] = error
        commits = [(known, one.commit or Commit()) for one in decided.values()]
        missed = batch.missed
        committed, durability = await self._commit(name, commits, is_durable=missed is None, hands_on=True)
        batch.note(durability)
        for (place, decision), outcome in zip(decided.items(), committed, strict=True):
            if isinstance(outcome, Committed):
                batch.appended.append(outcome.appended)
            if outcome is not None:
                achieved = durability if missed is None else _unconfirmed(missed)
                outcomes[place] = _outcome(decision.answer, outcome, achieved)
        return outcomes

    async def _decide(
        self,
        name: BanditName,
        sought: Sought,
        rule: Callable[[Known], Decision[_Answer]],
        *,
        presumed: Known | None = None,
        is_durable: bool = True,
        hands_on: bool = True,
    ) -> tuple[Decision[_Answer], Committed]:
        """Return what a rule decides, and what was committed of it.

        What is presumed only serves to change something: a refusal, or an answer that changes nothing, is of what is
        read.
        """
        decision = None
        if presumed is not None:
            with suppress(TopkBanditError):
                decision = rule(presumed)
        if presumed is not None and decision is not None and decision.commit is not None and decision.commit.events:
            committed = await self._commit_one(
                name, presumed, decision.commit, is_durable=is_durable, hands_on=hands_on
            )
            if committed is not None:
                return decision, committed
        for _ in range(TRIES):
            known = await self._read(name, sought)
            decision = rule(known)
            if decision.commit is None:
                return decision, Committed()
            committed = await self._commit_one(name, known, decision.commit, is_durable=is_durable, hands_on=hands_on)
            if committed is not None:
                return decision, committed
        raise too_fast(name)

    async def _commit_one(
        self, name: BanditName, known: Known, commit: Commit, *, is_durable: bool, hands_on: bool
    ) -> Committed | None:
        [committed], durability = await self._commit(name, [(known, commit)], is_durable=is_durable, hands_on=hands_on)
        for outcome in (committed, durability):
            if isinstance(outcome, Exception):
                raise outcome
        return committed.achieved(durability) if isinstance(committed, Committed) else None  # type: ignore[arg-type]


def _recorded(recommendation: Recommendation, commit: Commit, committed: Committed) -> RecordOutcome:
    """Return what became of a slate that was recorded."""
    dated = replace(recommendation, deadline_ms=committed.at_ms + commit.wait_ms)
    return RecordOutcome(RecordStatus.RECORDED, dated, committed.position)


def _of_different_slates(left: Mapping[int, Reward]) -> dict[int, Reward]:
    """Return the first rewards up to one of a slate that has one among them: what becomes of it depends on that."""
    posted: dict[int, Reward] = {}
    slates_of_posted: set[str] = set()
    for place, one in left.items():
        if one.recommendation_id in slates_of_posted:
            break
        slates_of_posted.add(one.recommendation_id)
        posted[place] = one
    return posted


def _finite(value: float) -> float:
    return float(finite_text("value", value))


def _finite_items(item_values: Mapping[str, float]) -> Mapping[str, float]:
    return {
        item_id: float(finite_text(entry_of("item_values", item_id), value)) for item_id, value in item_values.items()
    }


def _outcome(
    receipt: RewardReceipt, outcome: Committed | Exception, durability: Durability | NotDurableError
) -> RewardReceipt | Exception:
    if isinstance(outcome, Exception):
        return outcome
    if isinstance(durability, NotDurableError):
        return durability
    return _dated(receipt, outcome.achieved(durability))


def _dated(receipt: RewardReceipt, committed: Committed) -> RewardReceipt:
    position = position_of(receipt.log_position, committed.position)
    return RewardReceipt(receipt.outcome, position, committed.durability)


def too_fast(name: object) -> UnavailableError:
    """Return the error for a bandit or a study of which each decision was stale."""
    return UnavailableError(f"{name} changes faster than can be decided")


def _untried(found: UnavailableError) -> UnavailableError:
    problem = "not tried, since the store was away for rewards before it"
    return UnavailableError(problem, retry_after=found.retry_after, nothing_sent=True)


def _unconfirmed(missed: NotDurableError) -> NotDurableError:
    return NotDurableError(
        "written, but not waited for, as others before it were not durable in time; the same call again finds out",
        retry_after=missed.retry_after,
    )
