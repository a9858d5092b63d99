"""Checks of what is learned of the study: workers learn the same, and a bandit's prior follows from the answers.

What a log comes to is folded from its first event, and a worker's study, its preferences and the priors that a bandit's
log has are compared with that.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING

from tests.simulation.interviews import ITEMS, STUDY

from topk_bandit.domain.errors import CorruptDataError, NotFoundError, TopkBanditError
from topk_bandit.domain.studies import DesignState
from topk_bandit.store.events import BanditCreated, SettingsChanged
from topk_bandit.studies.analysis import StudyAnalysis, count_imported
from topk_bandit.studies.model import begin, fold
from topk_bandit.studies.pool import build_pool
from topk_bandit.studies.results import make_preferences, make_prior

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.simulation.server import Archive
    from tests.simulation.worker import Worker

    from topk_bandit.domain.bandits import Prior
    from topk_bandit.domain.studies import LoggedStudyEvent, Preferences
    from topk_bandit.store.events import LoggedEvent
    from topk_bandit.studies.model import StudyModel

__all__ = ["check_priors", "check_study_of"]


def _fold(incarnation: str, events: Sequence[LoggedStudyEvent]) -> StudyModel:
    model = begin(incarnation, events[0])
    for logged in events[1:]:
        model = fold(model, logged)
    return model


def _analyse(model: StudyModel) -> StudyAnalysis:
    pool = build_pool(model.settings)
    return StudyAnalysis(model, pool, lambda: count_imported(model, pool))


def _expect(model: StudyModel) -> Preferences | str:
    """Return what is learned of a study that is folded from its first event, or the word of a refusal."""
    analysis = _analyse(model)
    try:
        learned, agreement = analysis.learn(), analysis.measure_agreement()
        return make_preferences(analysis, learned, agreement, after=0, queries=3, items=3 * ITEMS)
    except TopkBanditError as error:
        return type(error).__name__


async def _ask(worker: Worker) -> Preferences | str:
    try:
        return await worker.studies.get_preferences(STUDY, after=0, queries=3, items=3 * ITEMS)
    except TopkBanditError as error:
        return type(error).__name__


def _digest(model: StudyModel) -> str:
    """Return a digest of all that a study is."""
    parts = (model.questions.merge(), model.answers.merge(), model.imported.merge())
    content = f"{model.incarnation} {model.last} {model.settings} {model.design} {parts}"
    return blake2b(content.encode(), digest_size=8).hexdigest()


async def check_study_of(workers: Sequence[Worker], archive: Archive) -> list[str]:
    """Return where workers, now that all faults are over, have another study than the log says, or none."""
    current = archive.studies.get(archive.incarnation)
    if current is None:
        return [one for worker in workers for one in await _check_is_gone(worker)]
    try:
        truth = _fold(archive.incarnation, current.events)
    except CorruptDataError:
        return ["no worker can learn from the study"]
    expected = _expect(truth)
    return [one for worker in workers for one in await _check_worker(worker, truth, expected)]


async def _check_is_gone(worker: Worker) -> list[str]:
    try:
        await worker.studies.get_study(STUDY)
    except NotFoundError:
        return []
    return [f"worker {worker.number} has a study that was deleted"]


async def _check_worker(worker: Worker, truth: StudyModel, expected: Preferences | str) -> list[str]:
    try:
        return await _compare(worker, truth, expected)
    except TopkBanditError as error:
        return [f"worker {worker.number} has no study: {error}"]


async def _compare(worker: Worker, truth: StudyModel, expected: Preferences | str) -> list[str]:
    found = []
    async with worker.studies._cache.use(STUDY) as entry:
        if _digest(entry.model) != _digest(truth):
            found.append(f"the study of worker {worker.number} differs from its log at {truth.version}")
    if (await worker.studies.get_design(STUDY)).state is DesignState.DESIGNING:
        found.append("the study's design has not ended")
    if await _ask(worker) != expected:
        found.append(f"worker {worker.number} learned otherwise from the study than its log says")
    return found


def check_priors(archive: Archive, known: dict[tuple[str, int], Prior | None]) -> Iterator[str]:
    """Yield each prior in a bandit's log that does not follow from the study's answers.

    Parameters
    ----------
    known
        What was worked out before, by incarnation and number of events; what is worked out now is added.
    """
    for logged in archive.events:
        prior = _prior_of(logged)
        studies = archive.studies
        if prior is None or any(studies[one].undone for one in studies):
            continue  # a bandit keeps the prior that it got before a failover has undone answers
        if not any(prior in _priors(one, study.events, prior.answers, known) for one, study in studies.items()):
            yield f"the bandit's prior at {logged.position} is not what {prior.answers} answers to the study come to"


def _prior_of(logged: LoggedEvent) -> Prior | None:
    return logged.event.prior if isinstance(logged.event, BanditCreated | SettingsChanged) else None


def _priors(
    incarnation: str, events: Sequence[LoggedStudyEvent], n_answers: int, known: dict[tuple[str, int], Prior | None]
) -> Iterator[Prior | None]:
    """Yield what the study hands out while it has so many answers; which questions are asked does not matter."""
    if not events:
        return
    model, folded = begin(incarnation, events[0]), 1
    while model.answer_count < n_answers and folded < len(events):
        try:
            model, folded = fold(model, events[folded]), folded + 1
        except CorruptDataError:
            return
    if model.answer_count == n_answers:
        key = incarnation, folded
        if key not in known:
            known[key] = _make_prior(model)
        yield known[key]


def _make_prior(model: StudyModel) -> Prior | None:
    analysis = _analyse(model)
    try:
        return make_prior(STUDY.study, analysis, analysis.learn())
    except TopkBanditError:
        return None
