"""Both clients' calls about studies, over the real use cases."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import grpc
import numpy as np
import pytest
from tests.client.conftest import Blocking
from tests.rpc.studies import FEATURES, HeldExecutor, study_server, utilities
from tests.waiting import PATIENCE

from topk_bandit.client import (
    AlreadyExists,
    AnswerKind,
    AnswerOutcome,
    BestWorst,
    Cancelled,
    Client,
    DeadlineExceeded,
    Declined,
    DesignState,
    FailedPrecondition,
    ImportedAnswers,
    InvalidArgument,
    NotFound,
    PastAnswer,
    ResourceExhausted,
    StudyList,
    Tiers,
    boolean,
    categorical,
    numeric,
    vector,
)
from topk_bandit.client.errors import error_of_status
from topk_bandit.domain.features import Features
from topk_bandit.learning.item_features import ItemFeatures
from topk_bandit.rpc.failures import Failure, status

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.client.conftest import EitherClient
    from tests.rpc.harness import RunningServer

    from topk_bandit.client import Feature, Questions

ITEMS = {f"i{number}": row.tolist() for number, row in enumerate(FEATURES)}


@pytest.fixture
def server(request: pytest.FixtureRequest) -> Iterator[RunningServer]:
    with ExitStack() as stack:
        # What computes designs, if a test has its own.
        designs = stack.enter_context(request.param(1)) if hasattr(request, "param") else None
        yield stack.enter_context(study_server(designs=designs))


@pytest.fixture(params=[(Client, "grpc"), (Blocking, "http")], ids=["Client-grpc", "AsyncClient-http"])
def client(request: pytest.FixtureRequest, server: RunningServer) -> Iterator[EitherClient]:
    """Each client, and each way to call: test_client.py has each client by each way."""
    kind, way = request.param
    with kind(server.target if way == "grpc" else server.open_http(), tenant="acme", timeout=PATIENCE) as made:
        yield made


def created(client: EitherClient, **how: Any) -> None:  # noqa: ANN401
    settings = {"answer_kind": AnswerKind.RANKING, "list_size": 3, "budget": 30, **how}
    client.create_study("taste", ITEMS, **settings)


def ranked(questions: Questions) -> dict[str, tuple[str, ...]]:
    liked = utilities()
    return {one.id: tuple(sorted(one.items, key=lambda item: -liked[item])) for one in questions.questions}


@pytest.mark.slow
def test_items_may_be_ids_alone_and_more_than_the_features_that_one_has(client: EitherClient) -> None:
    liked = [f"i{number}" for number in range(100)]
    client.create_study("taste", liked, answer_kind=AnswerKind.RANKING, list_size=4, budget=200)
    assert client.wait_for_design("taste").state is DesignState.READY
    asked = client.next_questions("taste", 200)
    client.submit_answers("taste", {one.id: tuple(sorted(one.items, key=liked.index)) for one in asked.questions})
    [query] = client.get_preferences("taste").queries
    learned = {one.id: one.utility for one in query.items}
    places = [learned[one] for one in liked]
    assert np.corrcoef(places, range(100))[0, 1] < -0.7
    assert client.get_study("taste").items == dict.fromkeys(liked, ())


def test_a_design_may_be_of_features_alone(client: EitherClient) -> None:
    created(client, features_alone=True)
    client.wait_for_design("taste")
    alone = client.get_study("taste")
    assert alone.features_alone
    assert alone.designed_item_count < len(ITEMS)


def test_lists_may_be_given_to_choose_among(client: EitherClient) -> None:
    given = [StudyList(("i0", "i1")), StudyList(["i2", "i3"]), StudyList(("i1", "i4"))]
    created(client, lists=given, list_size=0)
    client.wait_for_design("taste")
    study = client.get_study("taste")
    assert (study.given_list_count, study.list_size) == (3, 2)
    asked = {frozenset(one.items) for one in client.next_questions("taste", 30).questions}
    assert asked == {frozenset(one.items) for one in given}
    with pytest.raises(InvalidArgument) as refused:
        client.create_study("other", ITEMS, answer_kind="ranking", budget=3, lists=[StudyList(("i0", 1))])  # type: ignore[list-item]
    assert refused.value.field == "lists[0].items[1]"
    for wrong, field in (([], "lists"), ([("i0", "i1")], "lists[0]")):
        with pytest.raises(InvalidArgument) as refused:
            client.create_study("other", ITEMS, answer_kind="ranking", budget=3, lists=wrong)  # type: ignore[arg-type]
        assert refused.value.field == field


def test_a_study_from_start_to_end(client: EitherClient) -> None:
    created(client)
    seen = []
    study = client.wait_for_design("taste", watch=seen.append)
    assert seen[-1].result == study
    assert (study.name, study.state, study.item_count, study.items) == ("taste", DesignState.READY, 9, {})
    assert client.design("taste").done
    questions = client.next_questions("taste", 30, "r1")
    assert client.next_questions("taste", 30, "r1") == questions
    assert (len(questions.questions), questions.asked_count, questions.budget) == (30, 30, 30)
    answers = ranked(questions)
    outcome = client.submit_answers("taste", answers)
    assert outcome.outcomes == dict.fromkeys(answers, AnswerOutcome.ACCEPTED)
    learned = client.get_preferences("taste")
    assert ([of_query.query for of_query in learned.queries], learned.answered_count) == ([""], 30)
    assert learned.gathered == pytest.approx(1.0, abs=0.1)
    assert [item.rank for item in learned.items] == list(range(1, 10))
    whole = client.get_study("taste")
    assert (whole.items, whole.queries) == ({one: tuple(row) for one, row in ITEMS.items()}, {})
    assert (whole.designed_item_count, whole.features_alone) == (len(ITEMS), False)
    assert (whole.asked_count, whole.answered_count, whole.budget, whole.list_size) == (30, 30, 30, 3)
    assert [one.name for one in client.list_studies()] == ["taste"]
    client.delete_study("taste")
    with pytest.raises(NotFound):
        client.get_study("taste")


@pytest.mark.parametrize("kind", ["ranking", "ratings"])
def test_who_answers_at_random_is_named_and_hardly_counts(client: EitherClient, kind: str) -> None:
    created(client, answer_kind=kind, budget=80)
    client.wait_for_design("taste")
    liked, rng = utilities(), np.random.default_rng(0)

    def said(items: Sequence[str], *, at_random: bool) -> Sequence[str] | dict[str, float]:
        felt = {one: rng.normal() if at_random else liked[one] for one in items}
        return felt if kind == "ratings" else tuple(sorted(items, key=lambda one: -felt[one]))

    for name in ("ann", "bob", "cal", "rnd"):
        asked = client.next_questions("taste", 20).questions
        answers = {one.id: said(one.items, at_random=name == "rnd") for one in asked}
        assert set(client.submit_answers("taste", answers, respondent=name).outcomes.values()) == {"accepted"}
    past = [PastAnswer(said(list(liked)[:3], at_random=False), respondent="dee") for _ in range(3)]
    client.import_answers("taste", past, import_id="last-year")
    client.import_answers("taste", [PastAnswer(said(list(liked)[:3], at_random=False))], import_id="nobody")
    learned = client.get_preferences("taste")
    counts = {one.name: one.answered_count for one in learned.respondents}
    assert counts == {"ann": 20, "bob": 20, "cal": 20, "rnd": 20, "dee": 3}
    assert (learned.respondent_count, learned.answered_count) == (5, 84)
    assert learned.respondents[0].name == "rnd"
    assert learned.respondents[0].careless_probability > 0.9
    assert learned.respondents[1].careless_probability < 0.2
    with pytest.raises(InvalidArgument):
        client.submit_answers("taste", {"nobody": tuple(liked)[:3]}, respondent=3)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [AnswerKind.CHOICE, AnswerKind.RATINGS])
def test_answers_of_each_kind(client: EitherClient, kind: AnswerKind) -> None:
    created(client, answer_kind=kind, queries={"now": [1.0, 0.0], "then": [0.0, 1.0]})
    client.wait_for_design("taste")
    questions = client.next_questions("taste", 3).questions
    assert {one.query for one in questions} <= {"now", "then"}
    choices = {one.id: one.items[0] for one in questions}
    ratings = {one.id: dict.fromkeys(one.items, 2) for one in questions}
    good, bad = (choices, ratings) if kind is AnswerKind.CHOICE else (ratings, choices)
    refused = client.submit_answers("taste", {**bad, "nobody": "i1"})
    assert (refused.outcomes, set(refused.errors)) == ({}, {*bad, "nobody"})
    first = refused.errors[questions[0].id]
    field = "chosen_item_id" if kind is AnswerKind.CHOICE else "ratings"
    assert isinstance(first, InvalidArgument)
    assert first.field == f"answers[0].{field}"
    assert isinstance(refused.errors["nobody"], NotFound)
    assert set(client.submit_answers("taste", good).outcomes.values()) == {AnswerOutcome.ACCEPTED}
    assert [one.query for one in client.get_preferences("taste").queries] == ["now", "then"]


def test_many_answers_go_in_several_calls(client: EitherClient) -> None:
    created(client, budget=2500)
    client.wait_for_design("taste")
    answers: dict[str, tuple[str, ...]] = {}
    for _ in range(3):
        answers |= ranked(client.next_questions("taste", 1000))
    assert len(answers) == 2500
    assert set(client.submit_answers("taste", answers).outcomes) == set(answers)
    changed = {one: tuple(reversed(answer)) for one, answer in list(answers.items())[:1100]}
    errors = client.submit_answers("taste", changed).errors
    assert len(errors) == 1100
    reasons = {error.reason for error in errors.values() if isinstance(error, AlreadyExists)}
    assert reasons == {"ANSWER_EXISTS"}


@pytest.mark.parametrize("server", [HeldExecutor], indirect=True)
def test_a_design_that_is_not_there(client: EitherClient) -> None:
    created(client)
    with pytest.raises(FailedPrecondition) as early:
        client.next_questions("taste")
    assert early.value.reason == "DESIGN_UNFINISHED"
    with pytest.raises(DeadlineExceeded):
        client.wait_for_design("taste", timeout=0.2)
    client.cancel_design("taste")
    with pytest.raises(Cancelled):
        client.wait_for_design("taste")
    design = client.design("taste")
    assert (design.study, design.attempt, design.done, design.result) == ("taste", 1, True, None)
    assert isinstance(design.error, Cancelled)


class Crowded(grpc.GenericRpcHandler):  # type: ignore[type-arg]  # not subscriptable at run time
    """A service that has no time for anybody."""

    def service(self, _: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        def refuse(_: bytes, context: grpc.ServicerContext) -> None:
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "others were before it, and its time is all but up")

        return grpc.unary_unary_rpc_method_handler(refuse)


def test_a_wait_that_is_refused_until_its_end_has_taken_too_long() -> None:
    server = grpc.server(ThreadPoolExecutor(1))
    server.add_generic_rpc_handlers((Crowded(),))
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        with Client(address, tenant="acme") as client, pytest.raises(DeadlineExceeded):
            client.wait_for_design("slow", timeout=0.3)
    finally:
        server.stop(None).wait()


def test_a_budget_that_is_used_up_is_reported_at_once(client: EitherClient) -> None:
    created(client, budget=1, answer_kind=AnswerKind.PAIR, list_size=0)
    client.wait_for_design("taste")
    client.next_questions("taste")
    with pytest.raises(ResourceExhausted) as spent:
        client.next_questions("taste")
    assert (spent.value.reason, spent.value.retry_after) == ("STUDY_BUDGET", None)


@pytest.mark.parametrize("timeout", [0.0, -1.0, float("inf"), float("nan")])
def test_a_wait_needs_a_timeout(client: EitherClient, timeout: float) -> None:
    with pytest.raises(ValueError, match="timeout"):
        client.wait_for_design("taste", timeout=timeout)


def test_a_status_in_a_message_is_an_error_like_any_other() -> None:
    invalid = error_of_status(status(Failure(grpc.StatusCode.INVALID_ARGUMENT, "is bad", field="answers[1]")))
    assert isinstance(invalid, InvalidArgument)
    assert (invalid.field, str(invalid)) == ("answers[1]", "INVALID_ARGUMENT: answers[1]: is bad")


def test_answers_from_elsewhere_are_taken_once(client: EitherClient) -> None:
    created(client)
    client.wait_for_design("taste")
    order = sorted(ITEMS, key=lambda item: -utilities()[item])
    answers = [PastAnswer((order[n % 8], order[n % 8 + 1])) for n in range(1500)]
    taken = client.import_answers("taste", answers, import_id="old")
    assert taken == ImportedAnswers(next_row=1500, accepted=1500, duplicates=0)
    assert client.import_answers("taste", answers, import_id="old") == ImportedAnswers(1500, 0, 1500)
    assert client.get_answer_import("taste", "old") == 1500
    assert client.get_answer_import("taste", "other") == 0
    more = [PastAnswer((order[0], order[1], order[2]), shown=order[:3])]
    assert client.import_answers("taste", more, import_id="old", first_row=1500) == ImportedAnswers(1501, 1, 0)
    study = client.get_study("taste")
    assert (study.imported_count, study.answered_count) == (1501, 0)
    learned = client.get_preferences("taste")
    assert learned.answered_count == 1501
    assert [item.id for item in learned.items] == order
    with pytest.raises(AlreadyExists):
        client.import_answers("taste", [PastAnswer(order[:2][::-1])], import_id="old", first_row=1500)
    with pytest.raises(FailedPrecondition) as early:
        client.import_answers("taste", more, import_id="old", first_row=1502)
    assert early.value.reason == "IMPORT_GAP"
    with pytest.raises(InvalidArgument) as bad:
        client.import_answers("taste", [*more, PastAnswer("i1", shown=("i1", "i2"))], import_id="new")
    assert bad.value.field == "rows[1].ranking"
    assert client.get_study("taste") == study


def utility_of(client: EitherClient, item: str) -> float:
    return next(one.utility for one in client.get_preferences("taste").items if one.id == item)


def test_choices_and_ratings_from_elsewhere(client: EitherClient) -> None:
    created(client, answer_kind=AnswerKind.PAIR, list_size=2)
    client.import_answers("taste", [PastAnswer("i2", shown=("i1", "i2"))], import_id="old")
    assert utility_of(client, "i2") > utility_of(client, "i1")
    client.delete_study("taste")
    queries = {"now": [1.0, 0.0], "then": [0.0, 1.0]}
    created(client, answer_kind=AnswerKind.RATINGS, queries=queries)
    rated = [PastAnswer({"i1": 4.0, "i2": 1.0}, query=query) for query in queries for _ in range(5)]
    client.import_answers("taste", rated, import_id="old")
    for of_query in client.get_preferences("taste").queries:
        expected = {item.id: item.utility for item in of_query.items}
        assert expected["i1"] > expected["i2"] + 1.0


def test_answers_as_people_give_them(client: EitherClient) -> None:
    created(client)
    client.wait_for_design("taste")
    questions = client.next_questions("taste", 6).questions
    said = [
        Tiers([[questions[0].items[0]]]),
        Tiers([questions[1].items[:2], questions[1].items[2:]]),
        BestWorst(questions[2].items[1], questions[2].items[0]),
        Declined(),
        Declined("none_of_these"),
        questions[5].items,
    ]
    answers = {one.id: answer for one, answer in zip(questions, said, strict=True)}
    assert client.submit_answers("taste", answers).outcomes == dict.fromkeys(answers, AnswerOutcome.ACCEPTED)
    same = {questions[2].id: (questions[2].items[1], questions[2].items[2], questions[2].items[0])}
    assert client.submit_answers("taste", same).outcomes == {questions[2].id: AnswerOutcome.DUPLICATE}
    bad = {
        questions[0].id: BestWorst("nothing", questions[0].items[0]),
        questions[1].id: Tiers([questions[1].items, [questions[1].items[0]]]),
    }
    refused = client.submit_answers("taste", bad).errors
    assert [error.field for error in refused.values()] == [
        "answers[0].best_worst.best_item_id",
        "answers[1].tiers.tiers[1].item_ids[0]",
    ]
    past = [
        PastAnswer(Tiers([["i1"], ["i2", "i3"]])),
        PastAnswer(BestWorst("i1", "i3"), shown=("i1", "i2", "i3", "i4")),
        PastAnswer(Declined("skipped"), shown=("i1", "i2")),
    ]
    assert client.import_answers("taste", past, import_id="old").accepted == 3
    learned = client.get_preferences("taste")
    assert (learned.answered_count, learned.skipped_count, learned.none_of_these_count) == (6, 2, 1)
    assert client.get_study("taste").answered_count == 6
    with pytest.raises(InvalidArgument, match="reason"):
        client.submit_answers("taste", {questions[3].id: Declined("later")})


DESCRIBED: dict[str, dict[str, object]] = {
    f"i{n}": {"price": 2.0**n, "kind": "green" if n % 2 else "black", "fresh": n < 5, "text": [float(n), 1.0]}
    for n in range(12)
} | {"bare": {}}
ITEM_SCHEMA = (
    numeric("price", log=True),
    categorical("kind", values=["green", "black"]),
    boolean("fresh"),
    vector("text", dimension=2),
)


def test_items_of_a_study_are_described_as_those_of_a_bandit(client: EitherClient) -> None:
    asked = {"answer_kind": "ranking", "list_size": 3, "budget": 40, "item_schema": ITEM_SCHEMA}
    client.create_study("named", DESCRIBED, **asked)
    assert client.wait_for_design("named").state is DesignState.READY
    items = ItemFeatures.initial(ITEM_SCHEMA, n_places=len(DESCRIBED))
    given = [
        Features.of({name: tuple(one) if isinstance(one, list) else one for name, one in features.items()})
        for features in DESCRIBED.values()
    ]
    rows = items.change(np.arange(len(DESCRIBED), dtype=np.int32), given, free=np.zeros(0, dtype=np.int32)).rows
    found = client.get_study("named").items
    assert list(found) == list(DESCRIBED)
    np.testing.assert_allclose(list(found.values()), rows, atol=1e-9)
    assert set(found["bare"]) == {0.0}, "an average item"
    assert client.create_study("named", DESCRIBED, **asked).result is not None, "the same study again"
    questions = client.next_questions("named", 40).questions
    order = [*(f"i{n}" for n in range(11, 5, -1)), "bare", *(f"i{n}" for n in range(5, -1, -1))]
    client.submit_answers("named", {one.id: sorted(one.items, key=order.index) for one in questions})
    [query] = client.get_preferences("named").queries
    utilities = {one.id: one.utility for one in query.items}
    assert utilities["i11"] > utilities["i6"] > utilities["i0"]


@pytest.mark.parametrize(
    ("items", "schema", "field"),
    [
        ({"a": {"price": "x"}, "b": {}}, ITEM_SCHEMA, 'study.items[0].named_features["price"]'),
        ({"a": {}, "b": {"prise": 1.0}}, ITEM_SCHEMA, 'study.items[1].named_features["prise"]'),
        ({"a": {}, "b": {"price": math.nan}}, ITEM_SCHEMA, 'study.items[1].named_features["price"]'),
        ({"a": {}, "b": {}}, [vector("text", dimension=65)], "study.item_schema"),
        ({"a": {}, "b": {}}, [boolean("x"), boolean("x")], "study.item_schema.features[1].name"),
        ({"a": {"price": 10**400}, "b": {}}, ITEM_SCHEMA, 'items["a"].named_features["price"]'),
    ],
)
def test_bad_features_of_a_studys_items_are_refused_by_name(
    client: EitherClient, items: dict[str, object], schema: list[Feature], field: str
) -> None:
    with pytest.raises(InvalidArgument) as refused:
        client.create_study("named", items, answer_kind="ranking", list_size=2, budget=5, item_schema=schema)
    assert refused.value.field == field
    assert list(client.list_studies()) == []
