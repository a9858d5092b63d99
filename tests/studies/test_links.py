"""Links of studies: which questions they ask, and that no answer counts twice or is one too many."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.contracts.clocks import StoreClock
from tests.rpc.studies import studies_of
from tests.waiting import PATIENCE

from topk_bandit.domain.errors import ConflictError, CorruptDataError, InvalidArgumentError, NotReadyError
from topk_bandit.domain.studies import (
    AnswerKind,
    AnswerOutcome,
    GivenChoice,
    GivenRanking,
    LinkCreated,
    LinkRevoked,
    LinkSettings,
    LinkState,
    LoggedStudyEvent,
    QuestionAnswered,
    QuestionsAsked,
    RankingAnswer,
    StudyCreated,
    StudyItem,
    StudyLink,
    StudyName,
    StudySettings,
)
from topk_bandit.store.memory.studies import MemoryStudies
from topk_bandit.studies.link_questions import next_link_questions, read_question_id, shares_missing
from topk_bandit.studies.model import LinkPlace, StudyModel, begin, fold
from topk_bandit.studies.pool import design_study

if TYPE_CHECKING:
    from topk_bandit.domain.studies import LinkPage
    from topk_bandit.studies.administration import Studies

TASTE = StudyName("shop", "taste")
SETTINGS = StudySettings(
    items=tuple(StudyItem(f"i{number}", (number / 9, number % 3 - 1.0)) for number in range(7)),
    queries=(),
    answer_kind=AnswerKind.RANKING,
    list_size=3,
    budget=400,
)
LINK = LinkSettings(most_answers=300, answers_each=5, expire_ms=10**15)


def devices(count: int) -> list[str]:
    return [f"{number:024x}" for number in range(count)]


def designed() -> StudyModel:
    """Return a study that has a design and a link."""
    design = design_study(SETTINGS, rng=np.random.default_rng(3), watch=lambda *_: False)
    model = replace(begin("one", LoggedStudyEvent(1, 0, StudyCreated(SETTINGS))), design=design)
    return fold(model, LoggedStudyEvent(2, 7, LinkCreated("l1", "ab", LINK)))


def after(model: StudyModel, device: str, number: int, list_number: int) -> StudyModel:
    """Return the study after an answer that came by the link."""
    asked = QuestionsAsked(LinkPlace("l1", device, number).request_id, (list_number,))
    for event in (asked, QuestionAnswered(len(model.questions) + 1, RankingAnswer((0, 1, 2)))):
        model = fold(model, LoggedStudyEvent(model.version + 1, 9, event))
    return model


def counts(model: StudyModel) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    lists = [one.list_number for one in model.questions.values()]
    return np.bincount(lists, minlength=len(model.chosen_design.lists))


def asked_next(model: StudyModel, device: str, count: int = 1) -> list[tuple[str, int, tuple[str, ...]]]:
    found = next_link_questions(model, model.links["l1"], device, answered=counts(model), count=count)
    return [(one.question_id, one.number, tuple(item.item_id for item in one.items)) for one in found]


def list_of(model: StudyModel, device: str, question_id: str) -> int:
    read = read_question_id(model, model.links["l1"], device, question_id)
    assert read is not None
    return read[1]


def test_a_device_is_asked_the_same_again_and_another_device_something_else() -> None:
    model = designed()
    first, second, third = asked_next(model, devices(1)[0], 3)
    assert asked_next(model, devices(1)[0], 3) == [first, second, third]
    assert [first[1], second[1], third[1]] == [1, 2, 3]
    assert len({tuple(sorted(one[2])) for one in (first, second, third)}) == 3, "no list twice"
    model = after(model, devices(1)[0], 1, list_of(model, devices(1)[0], first[0]))
    assert [one[1] for one in asked_next(model, devices(1)[0], 9)] == [2, 3, 4, 5]
    shown = {asked_next(model, device)[0][2] for device in devices(60)}
    assert len({tuple(sorted(one)) for one in shown}) > 10, "many people spread over the lists"
    assert len(shown) > len({tuple(sorted(one)) for one in shown}), "and over the orders of their items"


def test_a_device_that_has_seen_every_list_is_asked_again() -> None:
    model = designed()
    few = replace(model.chosen_design, lists=model.chosen_design.lists[:2], weights=(0.9, 0.1))
    model = replace(model, design=few)
    for device in devices(20):
        numbers = [list_of(model, device, one[0]) for one in asked_next(model, device, 5)]
        assert (len(numbers), set(numbers[:2])) == (5, {0, 1})


def test_ids_are_of_one_device_one_number_and_one_list() -> None:
    model, (mine, other) = designed(), devices(2)
    [(question_id, _, _)] = asked_next(model, mine)
    number, drawn, seal = question_id.split(".")
    link = model.links["l1"]
    assert read_question_id(model, link, mine, question_id) == (LinkPlace("l1", mine, 1), int(drawn))
    forged = [f"2.{drawn}.{seal}", f"{number}.{int(drawn) + 1}.{seal}", f"{number}.0{drawn}.{seal}", seal, "", "9" * 40]
    assert [read_question_id(model, link, mine, one) for one in forged] == [None] * len(forged)
    assert read_question_id(model, link, other, question_id) is None
    assert read_question_id(model, replace(link, link_id="l2"), mine, question_id) is None
    assert read_question_id(replace(model, incarnation="two"), link, mine, question_id) is None


def test_answers_come_in_the_shares_of_the_design() -> None:
    """Much closer than by drawing lists by their shares: that is what the weights are for."""
    model = designed()
    weights = np.array(model.chosen_design.weights)
    assert shares_missing(weights, np.zeros(len(weights), dtype=np.int64)) == pytest.approx(weights * len(weights))
    for device in devices(60):
        for number in range(1, 6):
            [(question_id, _, _)] = asked_next(model, device)
            model = after(model, device, number, list_of(model, device, question_id))
    got = counts(model)
    assert (got.sum(), asked_next(model, devices(1)[0])) == (300, [])
    chi_squared = float(np.sum((got - 300 * weights) ** 2 / (300 * weights)))
    assert chi_squared < 0.5 * (len(weights) - 1), "its mean is that number without the half if lists are drawn alike"
    link = model.links["l1"]
    assert (link.answered, link.respondents, link.last_answer_ms, link.created_ms) == (300, 60, 9, 7)


def test_a_log_with_links_that_can_not_be_is_damaged() -> None:
    model = designed()
    for event in (LinkCreated("l1", "cd", LINK), LinkRevoked("l2")):
        with pytest.raises(CorruptDataError):
            fold(model, LoggedStudyEvent(3, 0, event))
    ended = fold(model, LoggedStudyEvent(3, 0, LinkRevoked("l1")))
    assert ended.links["l1"] == StudyLink("l1", "ab", LINK, 7, revoked=True)
    assert ended.link_events == 2


@pytest.mark.parametrize("text", ["", "link", "link\x1fl1\x1fa\x1fx", "link l1 a 1", "other\x1fl1\x1fa\x1f1"])
def test_a_callers_request_is_of_no_link(text: str) -> None:
    assert LinkPlace.of(text) is None


async def ready(studies: Studies, settings: StudySettings = SETTINGS) -> None:
    await studies.create_study(TASTE, settings)
    await studies.wait_for_design(TASTE, seconds=PATIENCE)


async def asked(studies: Studies, token: str, device: str = "") -> LinkPage:
    return await studies.links.questions(TASTE, token, device, count=1, permit=lambda: None)


async def submitted(studies: Studies, token: str, page: LinkPage, *, reverse: bool = False) -> AnswerOutcome:
    [question] = page.questions
    best = sorted((one.item_id for one in question.items), reverse=reverse)
    answer = question.question_id, GivenRanking(tuple(best))
    return await studies.links.answer(TASTE, token, page.respondent, answer, permit=lambda: None)


def test_no_answer_counts_twice_nor_is_one_too_many_whichever_worker_takes_it() -> None:
    """Thirty people at three workers send all that they send twice, and there is room for forty answers."""

    async def scenario(executor: ThreadPoolExecutor) -> None:
        store = MemoryStudies(clock_ms=StoreClock().read_ms, before_commit=lambda: asyncio.sleep(0))
        workers = [studies_of(store, executor, owner=f"w{n}")[0] for n in range(3)]
        await ready(workers[0])
        _, _, token = await workers[0].links.create(TASTE, replace(LINK, most_answers=40, expire_ms=1_710_000_000_000))

        async def person(number: int) -> int:
            mine, taken, device = workers[number % 3], 0, devices(30)[number]
            with suppress(NotReadyError):  # there is no room any more
                for _ in range(5):
                    page = await asked(mine, token, device)
                    twice = await asyncio.gather(
                        submitted(mine, token, page), submitted(workers[(number + 1) % 3], token, page)
                    )
                    assert sorted(twice) == ["accepted", "duplicate"]
                    taken += 1
                    with pytest.raises(ConflictError):
                        await submitted(mine, token, page, reverse=True)
            return taken

        taken = await asyncio.gather(*map(person, range(30)))
        record, _, _ = await workers[2].get_study(TASTE)
        [(link, state)] = await workers[2].links.list(TASTE)
        assert state is LinkState.USED_UP
        assert (record.answered, record.asked, link.answered) == (40, 40, 40)
        assert sum(taken) == 40
        with pytest.raises(NotReadyError) as full:
            await asked(workers[0], token)
        assert full.value.reason == "LINK_USED_UP"

    with ThreadPoolExecutor(2) as executor:
        asyncio.run(scenario(executor))


def test_what_was_answered_is_a_duplicate_after_the_link_has_ended_too() -> None:
    async def scenario(executor: ThreadPoolExecutor) -> None:
        clock = StoreClock()
        store = MemoryStudies(clock_ms=clock.read_ms)
        studies, _ = studies_of(store, executor, clock_ms=clock.read_ms)
        await ready(studies)
        made, state, token = await studies.links.create(TASTE, replace(LINK, expire_ms=clock.read_ms() + 1000))
        assert state is LinkState.OPEN
        page, later = await asked(studies, token), await asked(studies, token)
        assert await submitted(studies, token, page) is AnswerOutcome.ACCEPTED
        clock.now_ms += 1000
        assert [state for _, state in await studies.links.list(TASTE)] == [LinkState.EXPIRED]
        for refuses in (asked(studies, token), submitted(studies, token, later)):
            with pytest.raises(NotReadyError) as refused:
                await refuses
            assert refused.value.reason == "LINK_EXPIRED"
        await studies.links.revoke(TASTE, made.link_id)
        assert (await studies.links.revoke(TASTE, made.link_id))[1] is LinkState.REVOKED
        assert (await store.get_study(TASTE)).link_events == 2
        with pytest.raises(NotReadyError) as refused:
            await submitted(studies, token, later)
        assert refused.value.reason == "LINK_REVOKED"
        assert await submitted(studies, token, page) is AnswerOutcome.DUPLICATE
        answer = page.questions[0].question_id, GivenChoice("i1")
        with pytest.raises(InvalidArgumentError, match=r"answer\.ranking"):
            await studies.links.answer(TASTE, token, page.respondent, answer, permit=lambda: None)

    with ThreadPoolExecutor(2) as executor:
        asyncio.run(scenario(executor))
