"""Links of studies over the wire: operators make them with keys, and people answer over HTTP without any."""

from __future__ import annotations

import http.client
import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from tests.rpc.harness import channel_to
from tests.rpc.keys import key, ring, shown
from tests.rpc.studies import FEATURES, START_MS, TASTE, study_server
from tests.rpc.wire import refusal_of, refused
from tests.waiting import PATIENCE, until

from topk_bandit.client import Client, InvalidArgument, LinkState, PermissionDenied
from topk_bandit.domain.access import Scope
from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.domain.quotas import Quota, Quotas
from topk_bandit.rpc.access import MOST_FROM_PEOPLE
from topk_bandit.rpc.link_converters import link_creation
from topk_bandit.v1 import preference_service_pb2 as pb
from topk_bandit.v1.preference_service_pb2_grpc import PreferenceServiceStub

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.rpc.harness import RunningServer

ENDS = datetime.fromtimestamp(START_MS / 1e3, UTC) + timedelta(days=1)
SERVICE = "/topk_bandit.v1.PreferenceService"
OTHER = "tenants/acme/studies/pairs"
KINDS = {
    "ratings": ("ratings", "ratings"),
    "ranking": ("taste", "ranking"),
    "choice": ("choices", "chosenItemId"),
    "pair": ("pairs", "chosenItemId"),
}
"""For each kind of answer a study, and the field of the answer."""
OPERATOR = key("second", scopes=[Scope.OPERATE])


class Shop(NamedTuple):
    server: RunningServer
    client: Client
    operator: Client

    def call(self, method: str, **fields: object) -> tuple[int, dict[str, Any]]:
        """Call over HTTP as a page does, without a key; return the status and the answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.server.http_port, timeout=PATIENCE)
        body = json.dumps({"study": TASTE, **fields})
        connection.request("POST", f"{SERVICE}/{method}", body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        status, answer = response.status, json.loads(response.read())
        connection.close()
        return status, answer

    def ask(self, token: str, **fields: object) -> dict[str, Any]:
        status, answer = self.call("GetLinkQuestions", token=token, **fields)
        assert status == 200, answer
        return answer

    def refusal(self, method: str, **fields: object) -> tuple[str, str]:
        _, answer = self.call(method, **fields)
        return answer["code"], "".join(one["debug"].get("reason", "") for one in answer.get("details", ()))


@pytest.fixture(scope="module")
def shop() -> Iterator[Shop]:
    with study_server(keys=ring(OPERATOR)) as server:
        server.open_http()
        about: dict[str, Any] = {"tenant": "acme", "timeout": PATIENCE}
        with (
            Client(server.target, key=shown("acme"), **about) as client,
            Client(server.target, key=shown("second"), **about) as operator,
        ):
            items = {f"i{number}": row.tolist() for number, row in enumerate(FEATURES)}
            for kind, (name, _) in KINDS.items():
                size = 2 if kind == "pair" else 3
                seen = {"titles": {"i1": "Tea <b>"}, "pictures": {"i1": "https://cdn.example/i1.png?w=9"}}
                client.create_study(name, items, answer_kind=kind, list_size=size, budget=40, **seen)
                client.wait_for_design(name)
            yield Shop(server, client, operator)


def link(shop: Shop, study_id: str = "taste", **settings: Any) -> str:  # noqa: ANN401, of many types
    made = shop.operator.create_study_link(study_id, most_answers=9, expire_time=ENDS, **settings)
    return made.token


def ranking(question: dict[str, Any], *, reverse: bool = False) -> dict[str, Any]:
    best = sorted((item["itemId"] for item in question["items"]), reverse=reverse)
    return {"questionId": question["questionId"], "ranking": {"itemIds": best}}


def filled(message: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in message.items() if value}


def test_from_a_link_to_an_answer(shop: Shop) -> None:
    texts = {"title": "Which tea?", "thanks": "Thank you!", "accent_color": "#AA0000"}
    made = shop.operator.create_study_link("taste", most_answers=7, answers_each=3, expire_time=ENDS, **texts)
    assert (made.answers_each, made.expire_time, made.accent_color, made.state) == (3, ENDS, "#aa0000", LinkState.OPEN)
    page = shop.ask(made.token, count=9)
    shown = {
        "state": "LINK_STATE_UNSPECIFIED",
        "answersEach": 3,
        "title": "Which tea?",
        "thanks": "Thank you!",
        "accentColor": "#aa0000",
    }
    assert filled(page["link"]) == shown
    assert (page["answerKind"], len(page["questions"])) == ("ANSWER_KIND_RANKING", 3)
    assert all(not item["features"] for one in page["questions"] for item in one["items"])
    items = {item["itemId"]: item for one in page["questions"] for item in one["items"]}
    if "i1" in items:
        assert filled(items["i1"]) == {
            "itemId": "i1",
            "title": "Tea <b>",
            "pictureUrl": "https://cdn.example/i1.png?w=9",
        }
    mine = {"token": made.token, "respondent": page["respondent"]}
    assert shop.ask(**mine, count=9) == page, "after a reload it is the same"
    assert shop.ask(made.token)["respondent"] != page["respondent"]
    before = shop.client.get_study("taste").answered_count
    for number, question in enumerate(page["questions"], 1):
        for outcome in ("ACCEPTED", "DUPLICATE"):
            answer = shop.call("SubmitLinkAnswer", **mine, answer=ranking(question))
            assert answer == (200, {"outcome": f"ANSWER_OUTCOME_{outcome}"})
        again = {**mine, "answer": ranking(question, reverse=True)}
        assert shop.refusal("SubmitLinkAnswer", **again) == ("already_exists", "ANSWER_EXISTS")
        assert shop.ask(**mine).get("answeredCount") == number
    assert shop.ask(**mine)["questions"] == [], "it has answered as many as it may"
    shop.operator.revoke_study_link("taste", made.id)
    assert shop.ask(**mine)["questions"] == [], "and that it is thanked for, whatever became of the link"
    [now] = [one for one in shop.operator.list_study_links("taste") if one.id == made.id]
    assert (now.answered_count, now.respondent_count, now.last_answer_time is not None) == (3, 1, True)
    assert (now.token, shop.client.get_study("taste").answered_count) == ("", before + 3)


@pytest.mark.parametrize("kind", KINDS)
def test_a_page_gives_every_kind_of_answer(shop: Shop, kind: str) -> None:
    study_id, field = KINDS[kind]
    token, study_name = link(shop, study_id), f"tenants/acme/studies/{study_id}"
    before = shop.client.get_study(study_id).answered_count
    page = shop.ask(token, study=study_name, count=3)
    ids = [[item["itemId"] for item in one["items"]] for one in page["questions"]]
    said: dict[str, Any] = {
        "ratings": {"ratings": [{"itemId": one, "value": number} for number, one in enumerate(ids[0])]},
        "ranking": {"itemIds": ids[0]},
        "chosenItemId": ids[0][0],
    }
    best = {"tiers": {"tiers": [{"itemIds": ids[1][:1]}]}}
    worst = {"bestWorst": {"bestItemId": ids[1][0], "worstItemId": ids[1][1]}}
    declined = {"declined": {"reason": "DECLINE_REASON_NONE_OF_THESE"}}
    second = {"ranking": best, "choice": worst}.get(kind, declined)
    answers: list[dict[str, Any]] = [{field: said[field]}, second, {"declined": {"reason": "DECLINE_REASON_SKIPPED"}}]
    for question, answer in zip(page["questions"], answers, strict=True):
        given = {"questionId": question["questionId"], **answer}
        sent = {"study": study_name, "token": token, "respondent": page["respondent"], "answer": given}
        assert shop.call("SubmitLinkAnswer", **sent) == (200, {"outcome": "ANSWER_OUTCOME_ACCEPTED"})
    found = shop.client.get_preferences(study_id)
    assert found.skipped_count + found.none_of_these_count + found.answered_count == 3 + before


def test_a_token_is_for_one_study_and_says_nothing_of_others(shop: Shop) -> None:
    token = link(shop)
    page = shop.ask(token)
    mine = {"respondent": page["respondent"], "answer": ranking(page["questions"][0])}
    link_id, _, secret = token.partition(".")
    wrong = [secret, "", f"{link_id}.{secret[:-1]}", f"{link_id}.{'A' * 43}", f"{'0' * 16}.{secret}", token + "A"]
    places = [(TASTE, one) for one in wrong] + [(name, token) for name in (OTHER, f"{TASTE}s", "tenants/x/studies/y")]
    answers = [
        shop.call(method, **more, study=name, token=one)
        for name, one in places
        for method, more in (("GetLinkQuestions", {}), ("SubmitLinkAnswer", mine))
    ]
    assert {status for status, _ in answers} == {403}
    assert {answer["message"] for _, answer in answers} == {"this is no link of the study"}
    strangers = {"respondent": "maria@shop.example", "token": token}
    status, answer = shop.call("GetLinkQuestions", **strangers)
    assert (status, "maria" in json.dumps(answer)) == (400, False)
    other = shop.ask(token)["respondent"]
    assert shop.refusal("SubmitLinkAnswer", **{**mine, "token": token, "respondent": other})[0] == "invalid_argument"
    status, answer = shop.call("SubmitLinkAnswer", **mine, token=token, study=TASTE)
    assert status == 200


def test_people_send_little(shop: Shop) -> None:
    for token in (link(shop), "wrong"):
        assert shop.refusal("GetLinkQuestions", token=token, respondent="a" * MOST_FROM_PEOPLE) == (
            "resource_exhausted",
            "MESSAGE_SIZE",
        )
    assert shop.refusal("GetLinkQuestions", token="wrong", respondent="a" * 60_000)[0] == "invalid_argument"


def test_a_link_opens_nothing_else(shop: Shop) -> None:
    token = link(shop)
    with channel_to(shop.server.target) as channel:
        stub = PreferenceServiceStub(channel)
        page = stub.GetLinkQuestions(pb.GetLinkQuestionsRequest(study=TASTE, token=token), timeout=PATIENCE)
        for shows in ((), (("authorization", f"Bearer {token}"),)):
            with pytest.raises(grpc.RpcError) as refusal:
                stub.GetStudy(pb.GetStudyRequest(name=TASTE), timeout=PATIENCE, metadata=shows)
            assert refusal_of(refusal.value).reason == "KEY_NEEDED"
    submitted = shop.client.submit_answers("taste", {page.questions[0].question_id: ["i1"]})
    assert list(submitted.errors), "its questions are asked by their answers alone"


def test_a_device_is_a_respondent_and_names_no_other(shop: Shop) -> None:
    token = link(shop)
    page = shop.ask(token)
    answer = ranking(page["questions"][0])
    mine = {"token": token, "respondent": page["respondent"]}
    assert shop.call("SubmitLinkAnswer", **mine, answer=answer | {"respondent": "ann"})[1]["code"] == "invalid_argument"
    assert shop.call("SubmitLinkAnswer", **mine, answer=answer)[0] == 200
    learned = shop.operator.get_preferences("taste")
    assert page["respondent"] in {one.name for one in learned.respondents}


def test_a_link_ends_by_its_number_and_by_its_operator(shop: Shop) -> None:
    made = shop.operator.create_study_link("taste", most_answers=1, expire_time=ENDS)
    first, second = shop.ask(made.token), shop.ask(made.token)
    mine = [
        {"token": made.token, "respondent": one["respondent"], "answer": ranking(one["questions"][0])}
        for one in (first, second)
    ]
    assert shop.call("SubmitLinkAnswer", **mine[0])[0] == 200
    for method, fields in (("SubmitLinkAnswer", mine[1]), ("GetLinkQuestions", {"token": made.token})):
        assert shop.refusal(method, **fields) == ("failed_precondition", "LINK_USED_UP")
    assert shop.call("SubmitLinkAnswer", **mine[0])[1] == {"outcome": "ANSWER_OUTCOME_DUPLICATE"}
    other = shop.operator.create_study_link("taste", most_answers=1, expire_time=ENDS)
    assert shop.operator.revoke_study_link("taste", other.id).state is LinkState.REVOKED
    assert shop.refusal("GetLinkQuestions", token=other.token) == ("failed_precondition", "LINK_REVOKED")
    with pytest.raises(PermissionDenied):
        Client(shop.server.target, tenant="globex", key=shown("acme"), timeout=PATIENCE).revoke_study_link(
            "taste", made.id
        )


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "no answers": ({"most_answers": 0}, "link.most_answers"),
    "too many for one": ({"answers_each": 101}, "link.answers_each"),
    "in the past": ({"expire_time": ENDS - timedelta(days=1)}, "link.expire_time"),
    "for ever": ({"expire_time": ENDS + timedelta(days=400)}, "link.expire_time"),
    "without a zone": ({"expire_time": ENDS.replace(tzinfo=None)}, "link.expire_time"),
    "a long title": ({"title": "t" * 201}, "link.title"),
    "lines in the thanks": ({"thanks": "a\nb"}, "link.thanks"),
    "a color by name": ({"accent_color": "red"}, "link.accent_color"),
    "a style": ({"background_color": "#000000;x", "text_color": "#ffffff"}, "link.background_color"),
    "half the colors": ({"text_color": "#000000"}, "link.text_color"),
    "grey on grey": ({"text_color": "#777777", "background_color": "#888888"}, "link.text_color"),
}


@pytest.mark.parametrize("what", BAD)
def test_a_bad_link_is_refused_by_its_field(shop: Shop, what: str) -> None:
    fields, named = BAD[what]
    before = shop.client.list_study_links("taste")
    with pytest.raises(InvalidArgument) as error:
        shop.client.create_study_link("taste", **{"most_answers": 5, "expire_time": ENDS, **fields})
    assert error.value.field == named
    assert shop.client.list_study_links("taste") == before


@pytest.mark.parametrize(
    ("seconds", "nanos"), [(-(2**63), 0), (2**63 - 1, 0), (10**10, 0), (2 * 10**9, -1), (2 * 10**9, 10**9)]
)
def test_a_link_that_ends_at_no_time_is_refused(seconds: int, nanos: int) -> None:
    link = pb.StudyLink(most_answers=1, expire_time=Timestamp(seconds=seconds, nanos=nanos))
    with pytest.raises(InvalidArgumentError, match=r"expected a time of 2000 to 2100") as error:
        link_creation(pb.CreateLinkRequest(study=TASTE, link=link))
    assert error.value.field == "link.expire_time"


@pytest.mark.parametrize(
    "url",
    [
        "http://a.example/x",
        "https://",
        "//a.example",
        "javascript:alert(1)",
        "https://u@a.example",
        "https://a b",
        "https:a",
    ],
)
def test_a_picture_is_of_https(shop: Shop, url: str) -> None:
    with pytest.raises(InvalidArgument) as error:
        shop.client.create_study("p", ["a", "b"], answer_kind="pair", budget=9, pictures={"b": url})
    assert error.value.field == "study.items[1].picture_url"


def test_a_text_is_of_an_item_that_is_there(shop: Shop) -> None:
    with pytest.raises(InvalidArgument) as error:
        shop.client.create_study("p", ["a", "b"], answer_kind="pair", budget=9, titles={"c": "tea"})
    assert error.value.field == 'titles["c"]'


def test_people_take_the_quota_of_the_links_tenant() -> None:
    quotas = Quotas({Quota.STUDIES: 4}, {})
    with study_server(quotas=quotas, clock=lambda: 0.0) as server:
        server.open_http()
        with Client(server.target, tenant="acme", timeout=PATIENCE) as client:
            client.create_study("taste", list("abcd"), answer_kind="pair", budget=9)
            client.wait_for_design("taste")
            token = client.create_study_link("taste", most_answers=5, expire_time=ENDS).token
            quotas.of_tenants = {"acme": {Quota.CALLS_PER_SECOND: 2}}
            shop = Shop(server, client, client)
            statuses = [shop.call("GetLinkQuestions", token=one)[0] for one in ("wrong", token, token, token)]
            assert statuses == [403, 200, 200, 429]


def test_without_the_setting_nobody_answers() -> None:
    with study_server(serves_links=False) as server, channel_to(server.target) as channel:
        server.open_http()
        stub = PreferenceServiceStub(channel)
        refusal = refused(stub.GetLinkQuestions, pb.GetLinkQuestionsRequest(study=TASTE, token="t"))
        assert (refusal.code, refusal.reason) == ("PERMISSION_DENIED", "LINKS_OFF")
        shop = Shop(server, None, None)  # type: ignore[arg-type]  # nobody makes a link
        assert shop.refusal("SubmitLinkAnswer", token="t") == ("permission_denied", "LINKS_OFF")
        until(lambda: len(server.ledger.handled) == 2, what="both are counted")
