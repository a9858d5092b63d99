"""What every store of studies must do; see `topk_bandit.store.study_log` for the promises that are checked here."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.contracts.harness import run
from tests.contracts.study_archives import StudySender, archived_study, ended_study
from tests.contracts.study_samples import (
    CHOSEN,
    DESIGN,
    LEASE_MS,
    LINK,
    PROGRESS,
    STUDY,
    answers,
    imported,
    study_settings,
)

from topk_bandit.domain.errors import (
    ConflictError,
    ExhaustedError,
    InvalidArgumentError,
    NotFoundError,
    NotReadyError,
    TopkBanditError,
)
from topk_bandit.domain.studies import (
    AnswerKind,
    DesignCancelled,
    DesignChosen,
    DesignFailed,
    DesignProgress,
    DesignRestarted,
    DesignState,
    LinkRevoked,
    QuestionAnswered,
    QuestionList,
    QuestionsAsked,
    RankingAnswer,
    RatingsAnswer,
    StudyCreated,
    StudyItem,
    StudyName,
    StudySettings,
    StudyShape,
)
from topk_bandit.store.log import ImportOutcome, ImportProgress, RecordStatus
from topk_bandit.store.study_log import MOST_ATTEMPTS, MOST_IMPORTED, AnswerStatus, AskOutcome, AskStatus, KnownLinks

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.contracts.harness import Stores

    from topk_bandit.store.study_log import StudyRecord, StudyStore

ABSENT = StudyName("shop", "absent")
GONE = "gone"
FIRST, OTHER = RankingAnswer((0, 1)), RankingAnswer((1, 0))


async def create(
    store: StudyStore,
    name: StudyName = STUDY,
    *,
    having: StudySettings | None = None,
    incarnation: str = "first",
    quota: int = 100,
) -> StudyRecord:
    return await store.create_study(name, having or study_settings(), incarnation=incarnation, quota=quota)


async def designed(store: StudyStore) -> StudyRecord:
    return await store.end_design(await create(store), CHOSEN)


async def ask(
    store: StudyStore, *lists: int, count: int | None = None, asked: int = 0, request_id: str = "req-1"
) -> AskOutcome:
    record = await store.get_study(STUDY)
    wanted = len(lists) if count is None else count
    return await store.ask(record, request_id=request_id, count=wanted, lists=lists, asked=asked)


async def filled(store: StudyStore) -> None:
    """Create a study in which each kind of thing is there."""
    await create(store)
    record = await store.claim_design(STUDY, owner="me", lease_ms=LEASE_MS)
    assert record is not None
    assert await store.report_design(record, owner="me", lease_ms=LEASE_MS, progress=PROGRESS)
    await store.end_design(record, CHOSEN)
    await ask(store, 0, 1)
    await store.record_answers(record, [(1, FIRST)])
    await store.record_import(record, *imported())


def plain_settings() -> StudySettings:
    items = tuple(StudyItem(one, (number / 3, 1.0 - number)) for number, one in enumerate("abc"))
    return StudySettings(items, (), AnswerKind.RANKING, list_size=2, budget=5)


async def filled_plainly(store: StudyStore) -> None:
    """Create a study that can be learned from, in which each kind of thing is there."""
    record = await create(store, having=plain_settings())
    lists = (QuestionList(0, (0, 1)), QuestionList(0, (2, 1)))
    await store.end_design(record, DesignChosen(1, replace(DESIGN, lists=lists)))
    await ask(store, 0, 1, count=2)
    await store.record_answers(record, [(1, FIRST)], respondents={1: "ann"})
    part, event = imported()
    past = tuple(replace(one, shown=QuestionList(0, (0, 2))) for one in event.answers)
    await store.record_import(record, part, replace(event, answers=past))


async def kept(store: StudyStore, name: StudyName) -> tuple[Any, ...]:
    """Return what a store has of a study beside its record."""
    requests, parts = await store.scan_requests(name, cursor=0), await store.scan_imports(name, cursor=0)
    log = (await store.read_study(name, start=1, limit=100)).events
    return log, requests, parts, await store.find_import(name, "old")


async def take(store: StudyStore, *which: int, **how: str) -> ImportOutcome:
    """Record a part of an import."""
    return await store.record_import(await store.get_study(STUDY), *imported(*which, **how))


async def take_many(store: StudyStore, count: int) -> ImportOutcome:
    """Record a part that says that it has so many answers, though they are few."""
    part, event = imported(2, 1)
    many = replace(part, next_row=part.first_row + count, accepted=count)
    return await store.record_import(await store.get_study(STUDY), many, event)


async def events(store: StudyStore, name: StudyName = STUDY) -> list[Any]:
    part = await store.read_study(name, start=1, limit=1000)
    assert [logged.position for logged in part.events] == list(range(1, part.record.log_position + 1))
    return [logged.event for logged in part.events]


async def dump(store: StudyStore) -> tuple[Any, ...]:
    """Return everything that can be seen of a study, to compare it with later."""
    return (
        await store.read_study(STUDY, start=1, limit=1000),
        await store.get_study(STUDY),
        await store.list_studies(STUDY.tenant, after="", limit=100),
        await store.unfinished_designs(limit=100),
        [await store.find_import(STUDY, import_id) for import_id in ("old", "new")],
    )


FAILING: dict[str, tuple[Callable[[StudyStore], Awaitable[object]], type[TopkBanditError], str]] = {
    "create with other settings": (
        lambda store: create(store, having=study_settings(budget=6)),
        ConflictError,
        "STUDY_EXISTS",
    ),
    "create with another kind": (
        lambda store: create(store, having=study_settings(kind=AnswerKind.CHOICE)),
        ConflictError,
        "STUDY_EXISTS",
    ),
    "create beyond the quota": (lambda store: create(store, ABSENT, quota=1), ExhaustedError, "STUDY_QUOTA"),
    "get an absent study": (lambda store: store.get_study(ABSENT), NotFoundError, ""),
    "read an absent study": (lambda store: store.read_study(ABSENT, start=1, limit=1), NotFoundError, ""),
    "delete an absent study": (lambda store: store.delete_study(ABSENT), NotFoundError, ""),
    "claim an absent design": (
        lambda store: store.claim_design(ABSENT, owner="me", lease_ms=1),
        NotFoundError,
        "",
    ),
    "ask with another count": (lambda store: ask(store, 0, count=1, asked=2), ConflictError, "REQUEST_ID_REUSED"),
    "ask beyond the budget": (
        lambda store: ask(store, 0, 0, 0, 0, asked=2, request_id="r2"),
        ExhaustedError,
        "STUDY_BUDGET",
    ),
    "go on with an absent import": (lambda store: store.find_import(ABSENT, "old"), NotFoundError, ""),
    "import other rows": (lambda store: take(store, fingerprint="cd"), ConflictError, "IMPORT_REUSED"),
    "import in other parts": (lambda store: take(store, 1), ConflictError, "IMPORT_REUSED"),
    "import behind a gap": (lambda store: take(store, 3), NotReadyError, "IMPORT_GAP"),
    "begin an import late": (lambda store: take(store, 1, import_id="new"), NotReadyError, "IMPORT_GAP"),
    "import too many": (lambda store: take_many(store, MOST_IMPORTED - 1), ExhaustedError, "STUDY_IMPORTED"),
}

WITH_RECORD: dict[str, Callable[[StudyStore, StudyRecord], Awaitable[object]]] = {
    "ask": lambda store, record: store.ask(record, request_id="r", count=1, lists=[0], asked=2),
    "end": lambda store, record: store.end_design(record, CHOSEN),
    "answer": lambda store, record: store.record_answers(record, [(2, FIRST)]),
    "import": lambda store, record: store.record_import(record, *imported(2)),
}


async def _end_again(store: StudyStore) -> None:
    record = await store.get_study(STUDY)
    assert await store.end_design(record, DesignCancelled(1)) == record


async def _answer_again(store: StudyStore) -> None:
    """Who says it makes no difference: the first answer to a question counts."""
    batch = [(1, FIRST), (1, OTHER), (3, FIRST), (0, FIRST)]
    statuses = await store.record_answers(await store.get_study(STUDY), batch, respondents={1: "bob"})
    assert statuses == [AnswerStatus.DUPLICATE, AnswerStatus.CONFLICT, AnswerStatus.UNKNOWN, AnswerStatus.UNKNOWN]


async def _report_again(store: StudyStore) -> None:
    record = await store.get_study(STUDY)
    progress = DesignProgress(9, 9.0, 9.0, 9.0)
    assert not await store.report_design(record, owner="me", lease_ms=LEASE_MS, progress=progress)


async def _import_again(store: StudyStore) -> None:
    assert await take(store) == ImportOutcome(RecordStatus.REPEATED, 2, 2, 5)


REPEATABLE: dict[str, Callable[[StudyStore], Awaitable[object]]] = {
    "create": lambda store: create(store, incarnation="second", quota=0),
    "end": _end_again,
    "ask": lambda store: ask(store, 5, 6, asked=99),
    "answer": _answer_again,
    "import": _import_again,
    "claim": lambda store: store.claim_design(STUDY, owner="me", lease_ms=LEASE_MS),
    "report": _report_again,
}


class StudyContract:
    """A test class inherits this and gives the fixture `studies`."""

    @pytest.fixture
    def studies(self) -> Stores:
        """Return an empty store's connections."""
        raise NotImplementedError

    def test_a_created_study_is_as_described(self, studies: Stores) -> None:
        async def scenario(store: StudyStore) -> None:
            made = await create(store)
            assert made == await store.get_study(STUDY)
            assert made.shape == StudyShape(AnswerKind.RANKING, 2, 5, 3, 2, 2, 1)
            assert (made.name, made.incarnation, made.attempt) == (STUDY, "first", 1)
            assert (made.state, made.progress, made.failure) == (DesignState.DESIGNING, None, None)
            assert (made.asked, made.answered, made.log_position) == (0, 0, 1)
            part = await store.read_study(STUDY, start=1, limit=9)
            assert (part.record, part.events[0].event) == (made, StudyCreated(study_settings()))
            assert part.events[0].at_ms == made.created_ms

        run(studies, scenario)

    @pytest.mark.parametrize("kind", AnswerKind)
    def test_a_study_without_queries_is_kept(self, studies: Stores, kind: AnswerKind) -> None:
        async def scenario(store: StudyStore) -> None:
            plain = replace(study_settings(kind=kind), queries=())
            made = await create(store, having=plain)
            assert (made.shape.queries, made.shape.query_features, made.shape.answer_kind) == (0, 0, kind)
            assert await events(store) == [StudyCreated(plain)]

        run(studies, scenario)

    def test_a_failing_call_changes_nothing(self, studies: Stores) -> None:
        async def scenario(store: StudyStore) -> None:
            await filled(store)
            before = await dump(store)
            for call, (fail, error, reason) in FAILING.items():
                with pytest.raises(error) as caught:
                    await fail(store)
                assert getattr(caught.value, "reason", "") == reason, call
                assert await dump(store) == before, call

        run(studies, scenario)

    def test_a_study_that_is_gone_or_another_one_takes_nothing(self, studies: Stores) -> None:
        async def scenario(store: StudyStore) -> None:
            await filled(store)
            record = await store.get_study(STUDY)
            await store.delete_study(STUDY)
            for call in WITH_RECORD.values():
                with pytest.raises(NotFoundError):
                    await call(store, record)
            await create(store, incarnation="second")
            before = await dump(store)
            for named, call in WITH_RECORD.items():
                if named == "ask":
                    assert await call(store, record) == AskOutcome(AskStatus.STALE)
                else:
                    with pytest.raises(NotFoundError):
                        await call(store, record)
                assert not await store.report_design(record, owner="me", lease_ms=1, progress=PROGRESS)
                assert await dump(store) == before, named

        run(studies, scenario)

    def test_a_repeated_call_changes_nothing(self, studies: Stores) -> None:
        async def scenario(store: StudyStore) -> None:
            await filled(store)
            before = await dump(store)
            for call, repeat in REPEATABLE.items():
                await repeat(store)
                await repeat(store)
                assert await dump(store) == before, call

        run(studies, scenario)

    def test_every_event_is_in_the_log_as_it_was(self, studies: Stores) -> None:
        async def scenario(store: StudyStore) -> None:
            record = await create(store)
            failed = DesignFailed(1, "study.items", 'are "equal"\n')
            record = await store.end_design(record, failed)
            assert (record.state, record.failure) == (DesignState.FAILED, failed)
            record = await create(store)
            assert (record.state, record.attempt, record.failure) == (DesignState.DESIGNING, 2, None)
            record = await store.end_design(record, DesignCancelled(2))
            assert record.state is DesignState.CANCELLED
            record = await store.end_design(await create(store), replace(CHOSEN, attempt=3))
            assert (record.state, record.attempt) == (DesignState.READY, 3)
            assert record.progress == DesignProgress(12, 2.0**0.5, 1e-17, 0.02)
            await ask(store, 1, 0, 1)
            given = answers()
            assert await store.record_answers(record, list(enumerate(given, 1))) == [AnswerStatus.ACCEPTED] * 3
            assert await events(store) == [
                StudyCreated(study_settings()),
                failed,
                DesignRestarted(2),
                DesignCancelled(2),
                DesignRestarted(3),
                replace(CHOSEN, attempt=3),
                QuestionsAsked("req-1", (1, 0, 1)),
                *[QuestionAnswered(number, answer) for number, answer in enumerate(given, 1)],
            ]
            now = await store.get_study(STUDY)
            assert (now.asked, now.answered, now.log_position) == (3, 3, 10)

        run(studies, scenario)

    def test_answers_from_elsewhere_are_taken_part_by_part(self, studies: Stores) -> None:
        async def scenario(store: StudyStore) -> None:
            await create(store)  # before there is a design
            assert await store.find_import(STUDY, "old") == ImportProgress()
            parts = [imported(0, 2), imported(2, 3, fingerprint="cd"), imported(0, 1, import_id="new")]
            for position, (part, event) in enumerate(parts, 2):
                outcome = await store.record_import(await store.get_study(STUDY), part, event)
                assert outcome == ImportOutcome(RecordStatus.RECORDED, part.next_row, part.accepted, position)
            assert await events(store) == [StudyCreated(study_settings()), *(event for _, event in parts)]
            assert await store.find_import(STUDY, "old") == ImportProgress(5, 5)
            assert await store.find_import(STUDY, "new") == ImportProgress(1, 1)
            now = await store.get_study(STUDY)
            assert (now.imported, now.answered, now.asked) == (6, 0, 0)

        run(studies, scenario)

    def test_a_log_is_read_in_parts(self, studies: Stores) -> None:
        async def scenario(store: StudyStore) -> None:
            await filled(store)
            whole = await store.read_study(STUDY, start=1, limit=99)
            for start, limit, expected in ((1, 2, 2), (3, 9, 3), (4, 1, 1), (6, 9, 0), (0, 9, 0), (1, 0, 0)):
                part = await store.read_study(STUDY, start=start, limit=limit)
                assert part.record == whole.record
                assert len(part.events) == expected
                assert part.events == whole.events[max(start, 1) - 1 :][:expected]

        run(studies, scenario)

    def test_tenants_have_studies_and_quotas_of_their_own(self, studies: Stores) -> None:
        async def scenario(store: StudyStore) -> None:
            await create(store, quota=1)
            await create(store, StudyName("other", "taste"), quota=1)
            await store.delete_study(STUDY)
            await create(store, StudyName("shop", "next"), quota=1)
            with pytest.raises(ExhaustedError) as caught:
                await create(store, StudyName("shop", "third"), quota=1)
            assert (caught.value.retry_after, caught.value.reason) == (None, "STUDY_QUOTA")
            assert str(caught.value) == "the quota studies of tenants/shop is used up: 1 of 1"
            assert [made.name.study for made in await store.list_studies("shop", after="", limit=9)] == ["next"]

        run(studies, scenario)

    def test_studies_are_listed_in_order_and_in_pages(self, studies: Stores) -> None:
        async def scenario(store: StudyStore) -> None:
            for study in ("b-1", "a", "b", "B"):
                await create(store, StudyName("shop", study))
            paged: list[str] = []
            while page := await store.list_studies("shop", after=paged[-1] if paged else "", limit=3):
                paged.extend(made.name.study for made in page)
            assert paged == ["B", "a", "b", "b-1"]

        run(studies, scenario)

    def test_one_of_many_creations_and_one_of_many_ends_wins(self, studies: Stores) -> None:
        async def scenario(*connected: StudyStore) -> None:
            made = await asyncio.gather(*(create(connected[i % 3], incarnation=f"i{i}") for i in range(20)))
            assert len(set(made)) == 1
            ends = [DesignCancelled(1), CHOSEN, DesignFailed(1, "", "x")]
            await asyncio.gather(*(connected[i % 3].end_design(made[0], ends[i % 3]) for i in range(12)))
            assert (await events(connected[0]))[1] in ends
            assert (await connected[1].get_study(STUDY)).log_position == 2

        run(studies, scenario, connections=3)

    def test_a_lease_is_one_owners_until_it_lapses(self, studies: Stores) -> None:
        async def scenario(store: StudyStore) -> None:
            made = await create(store)
            assert await store.claim_design(STUDY, owner="one", lease_ms=LEASE_MS) == made
            assert await store.claim_design(STUDY, owner="one", lease_ms=LEASE_MS) == made
            assert await store.claim_design(STUDY, owner="two", lease_ms=LEASE_MS) is None
            assert not await store.report_design(made, owner="two", lease_ms=LEASE_MS, progress=PROGRESS)
            assert await store.report_design(made, owner="one", lease_ms=60, progress=PROGRESS)
            assert (await store.get_study(STUDY)).progress == PROGRESS
            assert await store.report_design(made, owner="one", lease_ms=60, progress=None)
            assert (await store.get_study(STUDY)).progress == PROGRESS
            await studies.pass_time(61)
            assert await store.claim_design(STUDY, owner="two", lease_ms=LEASE_MS) is not None
            assert not await store.report_design(made, owner="one", lease_ms=LEASE_MS, progress=None)
            # Whoever is first with an end has it, lease or not.
            assert (await store.end_design(made, CHOSEN)).state is DesignState.READY
            assert await store.claim_design(STUDY, owner="two", lease_ms=LEASE_MS) is None

        run(studies, scenario)

    def test_a_new_attempt_is_free_of_the_old_ones_lease_and_end(self, studies: Stores) -> None:
        async def scenario(store: StudyStore) -> None:
            old = await create(store)
            assert await store.claim_design(STUDY, owner="one", lease_ms=LEASE_MS)
            await store.end_design(old, DesignCancelled(1))
            new = await create(store)
            assert await store.claim_design(STUDY, owner="two", lease_ms=LEASE_MS) == new
            assert not await store.report_design(old, owner="one", lease_ms=LEASE_MS, progress=PROGRESS)
            assert await store.end_design(old, CHOSEN) == new

        run(studies, scenario)

    def test_attempts_are_counted(self, studies: Stores) -> None:
        async def scenario(store: StudyStore) -> None:
            for _ in range(MOST_ATTEMPTS):
                record = await create(store)
                record = await store.end_design(record, DesignCancelled(record.attempt))
            before = await dump(store)
            with pytest.raises(ExhaustedError) as caught:
                await create(store)
            assert (caught.value.reason, caught.value.retry_after) == ("STUDY_ATTEMPTS", None)
            assert await dump(store) == before

        run(studies, scenario)

    def test_unfinished_designs_are_found(self, studies: Stores) -> None:
        async def scenario(store: StudyStore) -> None:
            names = [StudyName(f"shop-{number % 2}", f"s{number}") for number in range(4)]
            records = []
            for name in names:
                records.append(await create(store, name))
                await studies.pass_time(2)
            await store.end_design(records[1], CHOSEN)
            await store.end_design(records[2], DesignCancelled(1))
            await store.delete_study(names[3])
            assert await store.unfinished_designs(limit=9) == (names[0],)
            await studies.pass_time(2)
            await create(store, names[2])
            assert await store.unfinished_designs(limit=9) == (names[0], names[2])
            assert await store.unfinished_designs(limit=1) == (names[0],)

        run(studies, scenario)

    def test_questions_wait_for_the_design(self, studies: Stores) -> None:
        async def scenario(store: StudyStore) -> None:
            await create(store)
            for end, reason in (
                (None, "DESIGN_UNFINISHED"),
                (DesignCancelled(1), "DESIGN_CANCELLED"),
                (DesignFailed(2, "", "broke"), "DESIGN_FAILED"),
            ):
                if end is not None:
                    await store.end_design(await create(store), end)
                before = await dump(store)
                with pytest.raises(NotReadyError) as caught:
                    await ask(store, 0)
                assert caught.value.reason == reason
                assert await dump(store) == before

        run(studies, scenario)

    def test_questions_are_asked_once_per_request_up_to_the_budget(self, studies: Stores) -> None:
        async def scenario(store: StudyStore) -> None:
            await designed(store)
            assert await ask(store, 0, 1) == AskOutcome(AskStatus.ASKED, 1, 2)
            assert await ask(store, 1, 1, asked=7) == AskOutcome(AskStatus.REPEATED, 1, 2)
            assert await ask(store, 1, asked=0, request_id="r2") == AskOutcome(AskStatus.STALE)
            # Lists were looked for before there was a design: the budget has questions left.
            assert await ask(store, count=2, asked=2, request_id="r2") == AskOutcome(AskStatus.STALE)
            # Fewer than it wanted, because the budget has no more.
            assert await ask(store, 1, 0, 1, count=10, asked=2, request_id="r2") == AskOutcome(AskStatus.ASKED, 3, 3)
            assert await ask(store, 1, count=10, asked=5, request_id="r2") == AskOutcome(AskStatus.REPEATED, 3, 3)
            assert (await store.get_study(STUDY)).asked == 5
            with pytest.raises(ExhaustedError) as caught:
                await ask(store, 1, asked=5, request_id="r3")
            assert (caught.value.reason, caught.value.retry_after) == ("STUDY_BUDGET", None)

        run(studies, scenario)

    def test_one_of_many_requests_at_once_gets_the_next_questions(self, studies: Stores) -> None:
        async def scenario(*connected: StudyStore) -> None:
            await designed(connected[0])
            results = await asyncio.gather(*(ask(connected[i % 3], 0, request_id=f"r{i}") for i in range(12)))
            assert sorted(result.status for result in results) == ["asked", *["stale"] * 11]

        run(studies, scenario, connections=3)

    def test_one_of_many_answers_counts(self, studies: Stores) -> None:
        async def scenario(*connected: StudyStore) -> None:
            record = await designed(connected[0])
            await ask(connected[0], 0, 1)
            batches = [[(1, (FIRST, OTHER)[i % 2]), (2, FIRST)] for i in range(12)]
            results = await asyncio.gather(
                *(connected[i % 3].record_answers(record, batch) for i, batch in enumerate(batches))
            )
            assert [statuses[0] for statuses in results].count(AnswerStatus.ACCEPTED) == 1
            assert [statuses[0] for statuses in results].count(AnswerStatus.DUPLICATE) == 5
            assert [statuses[0] for statuses in results].count(AnswerStatus.CONFLICT) == 6
            assert [statuses[1] for statuses in results].count(AnswerStatus.DUPLICATE) == 11
            now = await connected[1].get_study(STUDY)
            assert (now.answered, now.log_position) == (2, 5)

        run(studies, scenario, connections=3)

    def test_an_answer_by_a_link_is_a_question_too_unless_something_came_before(self, studies: Stores) -> None:
        async def scenario(*connected: StudyStore) -> None:
            store, record = connected[0], await designed(connected[0])

            async def answer(known: KnownLinks, request_id: str = "l1 a 1", at: StudyStore = store) -> AskStatus:
                return await at.record_link_answer(
                    record, request_id=request_id, list_number=1, answer=FIRST, known=known
                )

            assert await store.record_link(record, LINK, known=KnownLinks(0, 0))
            assert not await store.record_link(record, LINK, known=KnownLinks(0, 0)), "one came before"
            assert await answer(KnownLinks(0, 0)) is AskStatus.STALE, "a link came before"
            many = (answer(KnownLinks(0, 1), f"l1 {i} 1", connected[i % 3]) for i in range(12))
            assert sorted(await asyncio.gather(*many)) == ["asked", *["stale"] * 11]
            assert await answer(KnownLinks(1, 1)) is AskStatus.ASKED
            assert await answer(KnownLinks(2, 1)) is AskStatus.REPEATED
            now = await store.get_study(STUDY)
            assert (now.asked, now.answered, now.link_events) == (2, 2, 1)
            assert (await events(store))[2:] == [
                LINK,
                *(await events(store))[3:5],
                QuestionsAsked("l1 a 1", (1,)),
                QuestionAnswered(2, FIRST),
            ]
            assert await store.record_answers(record, [(2, OTHER)]) == [AnswerStatus.CONFLICT]
            assert await store.record_link(record, LinkRevoked("l1"), known=KnownLinks(2, 1))
            assert await answer(KnownLinks(2, 1), "l1 a 2") is AskStatus.STALE
            for n in (2, 3, 4):
                assert await answer(KnownLinks(n, 2), f"l1 b {n}") is AskStatus.ASKED
            with pytest.raises(ExhaustedError) as full:
                await answer(KnownLinks(5, 2), "l1 b 5")
            assert full.value.reason == "STUDY_BUDGET"
            with pytest.raises(NotFoundError):
                await store.record_link(replace(record, incarnation="other"), LINK, known=KnownLinks(5, 2))

        run(studies, scenario, connections=3)

    def test_equal_numbers_are_one_answer(self, studies: Stores) -> None:
        async def scenario(store: StudyStore) -> None:
            record = await designed(store)
            await ask(store, 0, 1)
            batch = [(1, RatingsAnswer((0.0, 1.0))), (1, RatingsAnswer((-0.0, 1.0))), (1, RatingsAnswer((1e-300, 1.0)))]
            assert await store.record_answers(record, batch) == [
                AnswerStatus.ACCEPTED,
                AnswerStatus.DUPLICATE,
                AnswerStatus.CONFLICT,
            ]

        run(studies, scenario)

    def test_a_design_with_many_lists_is_kept(self, studies: Stores) -> None:
        async def scenario(store: StudyStore) -> None:
            design = replace(DESIGN, lists=DESIGN.lists * 2000, weights=tuple([1 / 4000] * 4000))
            record = await create(store)
            await store.end_design(record, replace(CHOSEN, design=design))
            assert (await events(store))[1] == replace(CHOSEN, design=design)

        run(studies, scenario)

    @pytest.mark.parametrize("at_once", [1, 1000])
    def test_a_restored_study_is_the_one_that_was(self, studies: Stores, at_once: int) -> None:
        async def scenario(store: StudyStore) -> None:
            await filled_plainly(store)
            for number, event in enumerate((LINK, LinkRevoked("l1"))):
                known = KnownLinks(asked=2, link_events=number)
                assert await store.record_link(await store.get_study(STUDY), event, known=known)
            before, contents = await store.get_study(STUDY), await kept(store, STUDY)
            lines = await archived_study(store, STUDY)
            await store.delete_study(STUDY)
            receipt = await StudySender(store).send(STUDY, lines, at_once=at_once)
            assert (receipt.next_line, receipt.made) == (len(lines), before)
            assert await store.get_study(STUDY) == before
            assert await kept(store, STUDY) == contents
            assert await archived_study(store, STUDY) == lines
            assert await store.list_studies(STUDY.tenant, after="", limit=9) == (before,)
            assert (await ask(store, 0, 1, asked=2)).status is AskStatus.REPEATED
            assert await store.record_answers(before, [(1, FIRST), (1, OTHER), (2, FIRST)]) == [
                AnswerStatus.DUPLICATE,
                AnswerStatus.CONFLICT,
                AnswerStatus.ACCEPTED,
            ]
            assert (await take(store)).status is RecordStatus.REPEATED
            assert (await take(store, 2)).position == before.log_position + 2
            assert await StudySender(store).send(STUDY, lines[-1:], first=len(lines) - 1) != receipt, "it has grown"

        run(studies, scenario)

    def test_a_design_that_was_not_done_is_found_by_whoever_designs(self, studies: Stores) -> None:
        async def scenario(store: StudyStore) -> None:
            record = await create(store, having=plain_settings())
            await store.end_design(record, DesignFailed(1, "items", "no two differ"))
            failed, failed_lines = await store.get_study(STUDY), await archived_study(store, STUDY)
            await create(store, having=plain_settings())
            lines = await archived_study(store, STUDY)
            await store.delete_study(STUDY)
            assert (await StudySender(store).send(ABSENT, failed_lines)).made == replace(failed, name=ABSENT)
            made = (await StudySender(store).send(STUDY, lines)).made
            assert made is not None
            assert (made.state, made.attempt, made.failure) == (DesignState.DESIGNING, 2, None)
            assert await store.unfinished_designs(limit=9) == (STUDY,)
            claimed = await store.claim_design(STUDY, owner="me", lease_ms=LEASE_MS)
            assert claimed == made

        run(studies, scenario)

    def test_an_import_of_a_study_takes_no_place_that_is_not_its_own(self, studies: Stores) -> None:
        async def scenario(store: StudyStore) -> None:
            await filled_plainly(store)
            lines, sender = await archived_study(store, STUDY), StudySender(store)
            with pytest.raises(ConflictError) as refused:
                await sender.send(STUDY, lines)
            assert refused.value.reason == "STUDY_ARRIVED"
            await sender.send(ABSENT, lines[:3])
            with pytest.raises(NotFoundError):
                await store.get_study(ABSENT)
            with pytest.raises(NotReadyError) as gap:
                await sender.send(ABSENT, lines[4:], first=4)
            assert (gap.value.reason, gap.value.numbers) == ("IMPORT_GAP", {"next_row": 3})
            assert (await sender.send(ABSENT, lines[:3])).next_line == 3, "sent again"
            with pytest.raises(NotReadyError) as gap:
                await sender.send(ABSENT, lines[:2])
            assert gap.value.numbers == {"next_row": 3}, "the import has begun, in other parts"
            await sender.send(ABSENT, lines[:2], import_id="two")
            with pytest.raises(ConflictError) as replaced:
                await sender.send(ABSENT, lines[3:], first=3)
            assert replaced.value.reason == "ARRIVAL_REPLACED"
            with pytest.raises(ExhaustedError) as full:
                await StudySender(store, studies=1).send(ABSENT, lines)
            assert full.value.reason == "STUDY_QUOTA"
            with pytest.raises(NotFoundError):
                await store.get_study(ABSENT)
            assert (await StudySender(store, studies=2).send(ABSENT, [])).made is not None, "all lines are there"
            assert (await StudySender(store, studies=2).send(ABSENT, lines)).made is not None

        run(studies, scenario)

    @pytest.mark.parametrize(
        ("old", "new", "place"),
        [
            ('"type":"answered"', '"type":"unanswered"', 4),
            ('"position":4', '"position":5', 4),
            ('"question":1', '"question":9', -1),
            ('"lists":[0,1]', '"lists":[0,7]', -1),
            ('{"request"', '{"requests"', 6),
        ],
    )
    def test_lines_that_no_study_can_have_are_refused(self, studies: Stores, old: str, new: str, place: int) -> None:
        async def scenario(store: StudyStore) -> None:
            await filled_plainly(store)
            lines = (await archived_study(store, STUDY))[:-1]
            spoilt = [line.replace(old, new) for line in lines]
            assert spoilt != lines
            with pytest.raises(InvalidArgumentError) as refused:
                await StudySender(store).send(ABSENT, ended_study(spoilt))
            assert refused.value.field == f"lines[{place % (len(lines) + 1)}]"
            with pytest.raises(InvalidArgumentError, match="was changed or is missing"):
                await StudySender(store).send(ABSENT, [*lines[:-1], ended_study(lines)[-1]], import_id="two")
            with pytest.raises(NotFoundError):
                await store.get_study(ABSENT)

        run(studies, scenario)
