"""Bugs planted in a store, which the simulation has to find."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from topk_bandit.domain.errors import UnavailableError
from topk_bandit.domain.slates import ActivationOutcome, ActivationReceipt, RewardOutcome, RewardReceipt
from topk_bandit.domain.stages import Group, Stage
from topk_bandit.domain.studies import QuestionAnswered
from topk_bandit.store.events import Rewarded, RewardRevised
from topk_bandit.store.log import RecordStatus, Written
from topk_bandit.store.recorded import RecordState
from topk_bandit.store.study_log import AnswerStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.simulation.server import Stores

    from topk_bandit.domain.bandits import BanditName, BanditSettings, Prior
    from topk_bandit.domain.studies import Answer, AnswersImported, StudyEvent, StudyName
    from topk_bandit.store.events import Event, Imported
    from topk_bandit.store.journaled import Committed
    from topk_bandit.store.log import (
        BanditRecord,
        ImportOutcome,
        ImportPart,
        RecordOutcome,
        Store,
    )
    from topk_bandit.store.memory.bandits import MemoryStore
    from topk_bandit.store.memory.studies import MemoryStudies
    from topk_bandit.store.rules.decisions import Commit, Known
    from topk_bandit.store.study_log import StudyRecord, StudyStore

__all__ = [
    "Bug",
    "always_doubled_reward",
    "default_for_a_slate_of_nobody",
    "doubled_answer",
    "doubled_past_answers",
    "doubled_revision",
    "doubled_reward",
    "doubled_rows",
    "forgotten_reward",
    "kept_study",
    "learned_though_frozen",
    "learned_though_not_shown",
    "lost_activation",
    "lost_amendment",
    "lost_answer",
    "lost_item_values",
    "lost_past_answers",
    "lost_revision",
    "lost_reward",
    "lost_rows",
    "other_group",
    "other_items",
    "other_prior",
    "other_slate",
    "revision_of_another",
    "stale_commit",
    "unfenced_items",
    "wrong_amendment",
]


class _Wrong:
    """A store with one thing that goes wrong now and then."""

    def __init__(self, store: Store, *, every: int) -> None:
        self._store = cast("MemoryStore", store)
        self._every = every
        self._count = 0

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the store has
        return getattr(self._store, name)

    def _is_due(self) -> bool:
        self._count += 1
        return self._count % self._every == 0

    def _change(self, name: BanditName, recommendation_id: str, **changes: Any) -> None:  # noqa: ANN401 - a record's
        """Change a slate's record behind everybody's back."""
        recorded = self._store._bandits[name].recorded
        recorded[recommendation_id] = replace(recorded[recommendation_id], **changes)


class _WrongStudies:
    """A store of studies with one thing that goes wrong now and then."""

    def __init__(self, store: StudyStore, *, every: int) -> None:
        self._store = cast("MemoryStudies", store)
        self._every = every
        self._count = 0

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the store has
        return getattr(self._store, name)

    def _is_due(self) -> bool:
        self._count += 1
        return self._count % self._every == 0

    def _append(self, name: StudyName, event: StudyEvent) -> None:
        self._store._studies[name].append(event, at_ms=self._store._clock_ms())


class _DoublesRewards(_Wrong):
    async def record_reward(
        self,
        name: BanditName,
        recommendation_id: str,
        value: float,
        **named: Any,  # noqa: ANN401
    ) -> Written[RewardReceipt]:
        written = await self._store.record_reward(name, recommendation_id, value, **named)
        if written.answer.outcome is RewardOutcome.ACCEPTED and self._is_due():
            kept = self._store._bandits[name].recorded[recommendation_id].rewards
            self._change(name, recommendation_id, state=RecordState.PENDING, rewards=())
            await self._store.record_reward(name, recommendation_id, value, **named)
            self._change(name, recommendation_id, rewards=kept)
        return written


class _CommitsWhatIsStale(_Wrong):
    """Commits what was decided from a record that has changed since: the stamp is not the one that was read."""

    def __init__(self, store: Store, *, every: int) -> None:
        super().__init__(store, every=every)
        commit = self._store._commit_now

        def commit_all(name: BanditName, known: Known, wanted: Commit) -> Committed | None:
            recorded = self._store._bandits[name].recorded
            return commit(name, replace(known, slates={key: recorded.get(key) for key in wanted.slates}), wanted)

        self._store._commit_now = commit_all  # type: ignore[method-assign]


class _CommitsOtherRevisions(_Wrong):
    """Commits other events about provisional rewards than were decided."""

    def __init__(self, store: Store, *, every: int) -> None:
        super().__init__(store, every=every)
        commit = self._store._commit_now

        def commit_others(name: BanditName, known: Known, wanted: Commit) -> Committed | None:
            events: list[Event] = []
            for event in wanted.events:
                is_spoiled = isinstance(event, RewardRevised) and self._is_due()
                events += self._spoil(event) if is_spoiled else [event]
            return commit(name, known, replace(wanted, events=tuple(events)))

        self._store._commit_now = commit_others  # type: ignore[method-assign]

    def _spoil(self, event: RewardRevised) -> list[Event]:
        raise NotImplementedError


class _RevisesTwice(_CommitsOtherRevisions):
    def _spoil(self, event: RewardRevised) -> list[Event]:
        return [event, event]


class _LosesRevisions(_CommitsOtherRevisions):
    def _spoil(self, event: RewardRevised) -> list[Event]:  # noqa: ARG002
        return []


class _RevisesAnother(_CommitsOtherRevisions):
    def _spoil(self, event: RewardRevised) -> list[Event]:
        return [replace(event, shown=replace(event.shown, slate=event.shown.slate[::-1]))]


class _LosesItemValues(_Wrong):
    """Takes a reward in without what it says of items."""

    async def record_reward(
        self,
        name: BanditName,
        recommendation_id: str,
        value: float,
        **named: Any,  # noqa: ANN401
    ) -> Written[RewardReceipt]:
        if named["item_values"] and self._is_due():
            named["item_values"] = {}
        return await self._store.record_reward(name, recommendation_id, value, **named)


class _MixesUpItems(_Wrong):
    """Learns what the items of a slate did in another order."""

    def __init__(self, store: Store, *, every: int) -> None:
        super().__init__(store, every=every)
        commit = self._store._commit_now

        def commit_mixed_up(name: BanditName, known: Known, wanted: Commit) -> Committed | None:
            return commit(name, known, replace(wanted, events=tuple(map(self._spoil, wanted.events))))

        self._store._commit_now = commit_mixed_up  # type: ignore[method-assign]

    @staticmethod
    def _spoil(event: Event) -> Event:
        if not isinstance(event, Rewarded | RewardRevised) or event.item_values is None:
            return event
        return replace(event, item_values=event.item_values[::-1])


class _LosesRewards(_Wrong):
    async def record_reward(
        self,
        name: BanditName,
        recommendation_id: str,
        value: float,
        **named: Any,  # noqa: ANN401
    ) -> Written[RewardReceipt]:
        bandit = self._store._bandits[name]
        if recommendation_id in bandit.deadlines and self._is_due():
            return Written(RewardReceipt(RewardOutcome.ACCEPTED, bandit.log_position + 1))
        return await self._store.record_reward(name, recommendation_id, value, **named)


class _DeniesRecords(_Wrong):
    """Says that nothing was sent, when the slate is recorded: its default will be learned, and nobody has its id."""

    async def record_recommendation(self, *given: Any, **named: Any) -> Written[RecordOutcome]:  # noqa: ANN401
        written = await self._store.record_recommendation(*given, **named)
        if written.answer.position and self._is_due():
            raise UnavailableError("the store is away", nothing_sent=True)
        return written


class _IgnoresItemChanges(_Wrong):
    """Records slates whatever items the model knew."""

    async def record_recommendation(self, name: BanditName, *given: Any, **named: Any) -> Written[RecordOutcome]:  # noqa: ANN401
        named["items_position"] = self._store._bandits[name].items_position
        return await self._store.record_recommendation(name, *given, **named)

    async def slowest_follower(self, name: BanditName, *, heard_within_ms: int) -> int:  # noqa: ARG002
        return self._store._bandits[name].items_position


class _ForgetsRewards(_Wrong):
    """Takes in one of several rewards, and leaves it out of what they come to."""

    async def record_reward(
        self,
        name: BanditName,
        recommendation_id: str,
        value: float,
        **named: Any,  # noqa: ANN401
    ) -> Written[RewardReceipt]:
        written = await self._store.record_reward(name, recommendation_id, value, **named)
        recorded = self._store._bandits[name].recorded[recommendation_id]
        if written.answer.outcome is RewardOutcome.ACCEPTED and recorded.is_open and self._is_due():
            *others, last = recorded.rewards
            self._change(name, recommendation_id, rewards=(*others, replace(last, value=None)))
        return written


class _MixesUpGroups(_Wrong):
    """Forgets to which group a slate's request was drawn."""

    async def record_recommendation(self, *given: Any, **named: Any) -> Written[RecordOutcome]:  # noqa: ANN401
        written = await self._store.record_recommendation(*given, **named)
        if written.answer.position and self._is_due():
            name, key = given[0], given[2].recommendation_id
            kept = self._store._bandits[name].recorded[key]
            other = Group.BANDIT if kept.recommendation.group is Group.CONTROL else Group.CONTROL
            self._change(name, key, recommendation=replace(kept.recommendation, group=other))
        return written


class _LearnsThoughFrozen(_Wrong):
    """Takes every slate for one that is learned from, whatever the stage is."""

    async def record_reward(self, name: BanditName, recommendation_id: str, *given: Any, **named: Any) -> Any:  # noqa: ANN401
        bandit = self._store._bandits[name]
        known, bandit.settings = bandit.settings, replace(bandit.settings, stage=Stage.LIVE)
        if recommendation_id in bandit.recorded:
            self._change(name, recommendation_id, aside=False)
        try:
            return await self._store.record_reward(name, recommendation_id, *given, **named)
        finally:
            bandit.settings = known


class _LosesActivations(_Wrong):
    async def activate(
        self, name: BanditName, recommendation_id: str, shown: Sequence[str] = ()
    ) -> Written[ActivationReceipt]:
        bandit = self._store._bandits[name]
        recorded = bandit.recorded.get(recommendation_id)
        if recorded is not None and recorded.state is RecordState.INACTIVE and self._is_due():
            return Written(ActivationReceipt(ActivationOutcome.ACTIVATED, bandit.log_position + 1))
        return await self._store.activate(name, recommendation_id, shown)


class _MixesUpSlates(_Wrong):
    """Forgets that another slate was shown than the one that it chose."""

    async def activate(
        self, name: BanditName, recommendation_id: str, shown: Sequence[str] = ()
    ) -> Written[ActivationReceipt]:
        written = await self._store.activate(name, recommendation_id, shown)
        self._change(name, recommendation_id, instead=())
        return written


class _LearnsOfWhatNobodySaw(_Wrong):
    """Takes a reward without an activation."""

    async def record_reward(
        self,
        name: BanditName,
        recommendation_id: str,
        value: float,
        **named: Any,  # noqa: ANN401
    ) -> Written[RewardReceipt]:
        recorded = self._store._bandits[name].recorded.get(recommendation_id)
        if recorded is not None and recorded.state is RecordState.INACTIVE and self._is_due():
            self._change(name, recommendation_id, state=RecordState.PENDING)
        return await self._store.record_reward(name, recommendation_id, value, **named)


class _LosesAmendments(_Wrong):
    async def correct_reward(
        self,
        name: BanditName,
        recommendation_id: str,
        value: float | None,
        **named: Any,  # noqa: ANN401
    ) -> RewardReceipt | None:
        bandit = self._store._bandits[name]
        recorded = bandit.recorded.get(recommendation_id)
        if recorded is not None and recorded.state is RecordState.REWARDED and self._is_due():
            return RewardReceipt(RewardOutcome.ACCEPTED, bandit.log_position + 1)
        return await self._store.correct_reward(name, recommendation_id, value, **named)


class _AmendsWrongly(_Wrong):
    """Corrects a reward, and keeps another number."""

    async def correct_reward(
        self,
        name: BanditName,
        recommendation_id: str,
        value: float | None,
        **named: Any,  # noqa: ANN401
    ) -> RewardReceipt | None:
        wrong = value if value is None else value + 1.0
        return await self._store.correct_reward(name, recommendation_id, wrong, **named)


class _AnswersTwice(_WrongStudies):
    """Enters an answer a second time."""

    async def record_answers(
        self,
        record: StudyRecord,
        answers: Sequence[tuple[int, Answer]],
        **named: Any,  # noqa: ANN401
    ) -> Sequence[AnswerStatus]:
        statuses = await self._store.record_answers(record, answers, **named)
        for (question, answer), status in zip(answers, statuses, strict=True):
            if status is AnswerStatus.ACCEPTED and self._is_due():
                self._append(record.name, QuestionAnswered(question, answer))
        return statuses


class _LosesAnswers(_WrongStudies):
    async def record_answers(
        self,
        record: StudyRecord,
        answers: Sequence[tuple[int, Answer]],
        **named: Any,  # noqa: ANN401
    ) -> Sequence[AnswerStatus]:
        kept = [] if self._is_due() else answers
        await self._store.record_answers(record, kept, **named)
        return [AnswerStatus.ACCEPTED for _ in answers]


class _LearnsPastAnswersTwice(_WrongStudies):
    """Enters a part of an import again when it is repeated."""

    async def record_import(self, record: StudyRecord, part: ImportPart, event: AnswersImported) -> ImportOutcome:
        outcome = await self._store.record_import(record, part, event)
        if outcome.status is RecordStatus.REPEATED and self._is_due():
            self._append(record.name, event)
        return outcome


class _LosesPastAnswers(_WrongStudies):
    """Knows that it took a part of an import, and has lost its answers."""

    async def record_import(self, record: StudyRecord, part: ImportPart, event: AnswersImported) -> ImportOutcome:
        outcome = await self._store.record_import(record, part, event)
        if outcome.status is RecordStatus.RECORDED and self._is_due():
            self._store._studies[record.name].events.pop()
        return outcome


class _KeepsStudies(_WrongStudies):
    """Says that a study is deleted, and keeps it."""

    async def delete_study(self, name: StudyName) -> None:
        await self._store.get_study(name)


class _LearnsRowsTwice(_Wrong):
    """Enters a part of an import again when it is repeated."""

    async def find_import_part(self, name: BanditName, part: ImportPart) -> ImportOutcome | None:
        found = await self._store.find_import_part(name, part)
        return None if found is not None and self._is_due() else found

    async def record_import(
        self, name: BanditName, part: ImportPart, event: Imported | None, **named: str | int
    ) -> ImportOutcome:
        outcome = await self._store.record_import(name, part, event, **named)
        if outcome.status is RecordStatus.REPEATED and event is not None:
            self._store._append(self._store._bandits[name], event, at_ms=self._store._clock_ms())
        return outcome


class _LosesRows(_Wrong):
    """Knows that it took a part of an import, and has lost its rows."""

    async def record_import(
        self, name: BanditName, part: ImportPart, event: Imported | None, **named: str | int
    ) -> ImportOutcome:
        if event is None or not self._is_due():
            return await self._store.record_import(name, part, event, **named)
        outcome = await self._store.record_import(name, part, None, **named)
        return replace(outcome, position=self._store._bandits[name].log_position + 1)


class _MixesUpPriors(_Wrong):
    """Keeps other utilities than those that a bandit is to begin with."""

    async def create_bandit(
        self, name: BanditName, settings: BanditSettings, *, prior: Prior | None, **named: str | int
    ) -> BanditRecord:
        if prior is not None:
            first = replace(prior.utilities[0], item_id=prior.utilities[1].item_id)
            prior = replace(prior, utilities=(first, *prior.utilities[2:]))
        return await self._store.create_bandit(name, settings, prior=prior, **named)


@dataclass(frozen=True)
class Bug:
    """What stands before the stores that it spoils.

    Attributes
    ----------
    kind
        What goes wrong.
    every
        How rarely.
    """

    kind: type[_Wrong | _WrongStudies]
    every: int = 1

    def __call__(self, stores: Stores) -> Stores:
        """Return the stores, one of them spoiled."""
        if issubclass(self.kind, _WrongStudies):
            return stores._replace(studies=cast("StudyStore", self.kind(stores.studies, every=self.every)))
        return stores._replace(bandits=cast("Store", self.kind(stores.bandits, every=self.every)))


doubled_reward = Bug(_DoublesRewards, every=8)
always_doubled_reward = Bug(_DoublesRewards)
stale_commit = Bug(_CommitsWhatIsStale)
other_group = Bug(_MixesUpGroups)
learned_though_frozen = Bug(_LearnsThoughFrozen)
doubled_revision = Bug(_RevisesTwice, every=2)
lost_item_values = Bug(_LosesItemValues, every=3)
other_items = Bug(_MixesUpItems)
lost_revision = Bug(_LosesRevisions, every=2)
revision_of_another = Bug(_RevisesAnother, every=2)
lost_reward = Bug(_LosesRewards, every=8)
default_for_a_slate_of_nobody = Bug(_DeniesRecords, every=8)
unfenced_items = Bug(_IgnoresItemChanges)
forgotten_reward = Bug(_ForgetsRewards, every=2)
lost_activation = Bug(_LosesActivations, every=2)
other_slate = Bug(_MixesUpSlates)
learned_though_not_shown = Bug(_LearnsOfWhatNobodySaw, every=2)
lost_amendment = Bug(_LosesAmendments, every=2)
wrong_amendment = Bug(_AmendsWrongly)
doubled_answer = Bug(_AnswersTwice, every=4)
lost_answer = Bug(_LosesAnswers, every=4)
doubled_past_answers = Bug(_LearnsPastAnswersTwice)
lost_past_answers = Bug(_LosesPastAnswers, every=4)
kept_study = Bug(_KeepsStudies)
doubled_rows = Bug(_LearnsRowsTwice)
lost_rows = Bug(_LosesRows, every=4)
other_prior = Bug(_MixesUpPriors)
