"""Personalizer's calls over a socket before a real service: accepted, answered in its shapes, and learned."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest
from tests.compat.personalizer.listeners import KEY, PersonalizerListener, opened, rank_body, slots_body
from yarl import URL

from topk_bandit.client import Aggregation, numeric
from topk_bandit.compat.personalizer.server import KEY_HEADER

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

OF_QUERY = "2022-09-01-preview"
VERSIONS = ["v1.0", "v1.1-preview", "v1.1-preview.1", "v1.1-preview.2", "v1.1-preview.3", OF_QUERY]
EVENT = rank_body()["eventId"]


def path_of(version: str, path: str) -> str:
    return f"{path}?api-version={version}" if version == OF_QUERY else f"{version}/{path}"


def run(scenario: Callable[[PersonalizerListener], Awaitable[None]], **options: object) -> None:
    async def session() -> None:
        async with opened(**options) as listener:  # type: ignore[arg-type]
            await scenario(listener)

    asyncio.run(session())


def test_a_rank_has_the_fields_and_types_of_its_answer() -> None:
    async def rank(listener: PersonalizerListener, version: str) -> None:
        answer = await listener.post(path_of(version, "rank"), rank_body())
        assert answer.status == 201
        assert answer.headers["Content-Type"] == "application/json; charset=utf-8"
        assert sorted(answer.body) == ["eventId", "ranking", "rewardActionId"]
        assert answer.body["eventId"] == EVENT
        assert answer.body["rewardActionId"] in {"tea pot", "sieve"}
        ranked = {one["id"]: one["probability"] for one in answer.body["ranking"]}
        assert sorted(ranked) == ["cup", "sieve", "tea pot"]
        assert all(isinstance(probability, float) for probability in ranked.values())
        assert ranked["cup"] == 0.0
        assert sum(ranked.values()) == pytest.approx(1.0)
        assert answer.body["ranking"][0]["id"] == answer.body["rewardActionId"]
        await listener.done(path_of(version, f"events/{EVENT}/reward"), {"value": 0.5})
        await listener.done(path_of(version, f"events/{EVENT}/activate"))

    async def scenario(listener: PersonalizerListener) -> None:
        for version in VERSIONS:
            await rank(listener, version)

    run(scenario)


def test_a_multi_slot_rank_has_the_fields_and_types_of_its_answer() -> None:
    async def rank(listener: PersonalizerListener, version: str) -> None:
        answer = await listener.post(path_of(version, "multislot/rank"), slots_body())
        assert answer.status == 201
        assert sorted(answer.body) == ["eventId", "slots"]
        assert answer.body["eventId"] == EVENT
        assert [slot["id"] for slot in answer.body["slots"]] == ["Main Article", "Side Bar"]
        main, side = (slot["rewardActionId"] for slot in answer.body["slots"])
        assert main in {"news", "films"}
        assert side in {"news", "films", "sports"} - {main}
        path = f"multislot/events/{EVENT}"
        await listener.done(path_of(version, f"{path}/reward"), {"reward": [{"slotId": "Main Article", "value": 1}]})
        await listener.done(path_of(version, f"{path}/activate"))

    async def scenario(listener: PersonalizerListener) -> None:
        for version in VERSIONS[1:]:
            await rank(listener, version)

    run(scenario)


def test_a_path_without_a_version_needs_the_one_of_its_query() -> None:
    async def scenario(listener: PersonalizerListener) -> None:
        for path in ("rank", "rank?api-version=2019-01-01", "multislot/rank?api-version="):
            refused = await listener.post(path, rank_body())
            assert (refused.status, refused.body["error"]["code"]) == (400, "BadRequest"), path
            assert "api-version" in refused.body["error"]["message"], path

    run(scenario)


@pytest.mark.parametrize(
    "body",
    [
        {"actions": [{"id": "only", "features": []}]},
        {"actions": [{"id": "only", "features": []}], "contextFeatures": [], "eventId": None, "excludedActions": None},
        {"actions": [{"id": "a", "features": [{"x": {"y": [{"z": 1}, {"w": []}]}}]}, {"id": "b", "features": None}]},
        rank_body(contextFeatures=[{f"f{n}": "text" for n in range(200)}]),
        rank_body(contextFeatures=[{"n" * 300: 1, "größe": 2, "_ignored": 3, "mixed": [1, "a"], "long": "x" * 5000}]),
    ],
)
def test_whatever_has_the_form_of_a_rank_is_answered(body: dict[str, Any]) -> None:
    async def scenario(listener: PersonalizerListener) -> None:
        answered = await listener.rank(body)
        assert answered["eventId"] == (body.get("eventId") or "made-0")
        await listener.done(f"v1.0/events/{answered['eventId']}/reward", {"value": -1})

    run(scenario)


def test_the_bandit_is_made_with_what_the_call_tells() -> None:
    async def scenario(listener: PersonalizerListener) -> None:
        await listener.rank(rank_body())
        bandit = await listener.client.get_bandit("home")
        assert bandit.slate_size == 1
        assert (bandit.default_reward, bandit.reward_wait) == (0.25, timedelta(minutes=10))
        assert bandit.requires_activation
        kinds = {one.name: type(one.kind).__name__ for one in bandit.context_schema or ()}
        assert kinds == {
            "page.from.campaign-name-35358815": "Categorical",
            "page.tags": "LabelSet",
            "page.taste": "Vector",
            "timeOfDay": "Categorical",
            "user.kind": "Categorical",
            "user.member": "Boolean",
            "user.visits": "Numeric",
        }
        items = {item.item_id: item.features async for item in listener.client.items("home")}
        assert items == {
            "cup": {"kind": "cup", "price": 4.0},
            "sieve": {},
            "tea pot": {"colour.main": "blue", "kind": "pot", "price": 12.5},
        }
        await listener.rank_slots(slots_body())
        slots = await listener.client.get_bandit("home-2-slots")
        assert (slots.slate_size, slots.default_reward) == (2, 0.5)
        assert slots.reward_aggregation is Aggregation.SUM

    run(scenario)


def test_new_features_and_actions_are_taken_in_and_new_prices_a_minute_later() -> None:
    async def scenario(listener: PersonalizerListener) -> None:
        await listener.rank({"actions": [{"id": "a", "features": [{"price": 1}]}]})
        later = [{"id": "a", "features": [{"price": 2}]}, {"id": "b", "features": [{"price": 3, "new": True}]}]
        await listener.rank({"actions": later, "contextFeatures": [{"member": True}]})
        bandit = await listener.client.get_bandit("home")
        assert "member" in {one.name for one in bandit.context_schema or ()}
        assert [one.name for one in bandit.item_schema or ()] == ["price", "new"]

        async def price() -> float:
            return {item.item_id: item.features["price"] async for item in listener.client.items("home")}["a"]

        assert await price() == 1.0
        listener.clock.seconds += 61.0
        await listener.rank({"actions": later})
        assert await price() == 2.0

    run(scenario)


def test_a_bandit_that_was_deleted_is_made_anew() -> None:
    async def scenario(listener: PersonalizerListener) -> None:
        await listener.rank(rank_body())
        await listener.client.delete_bandit("home")
        refused = await listener.post("v1.0/rank", rank_body(eventId="next"))
        assert (refused.status, refused.error["code"]) == (404, "ResourceNotFound")
        await listener.rank(rank_body(eventId="next"))

    run(scenario)


def test_more_actions_than_the_capacity_raise_it() -> None:
    async def scenario(listener: PersonalizerListener) -> None:
        for first in (0, 50, 100):
            actions = [{"id": f"a{n}", "features": []} for n in range(first, first + 50)]
            assert (await listener.rank({"actions": actions}))["rewardActionId"] in {one["id"] for one in actions}
        assert (await listener.client.get_bandit("home")).item_capacity == 200

    run(scenario)


def test_a_retired_action_is_not_shown_any_more() -> None:
    async def scenario(listener: PersonalizerListener) -> None:
        actions = [{"id": one, "features": []} for one in ("a", "b")]
        await listener.rank({"actions": actions})
        await listener.client.retire_items("home", ["a"])
        for changed in ([{"n": 1}], [{"n": 2}]):
            sent = [{"id": "a", "features": changed}, {"id": "b", "features": []}]
            assert (await listener.rank({"actions": sent}))["rewardActionId"] == "b"

    run(scenario)


def test_a_bandit_of_ones_own_keeps_its_schema_and_reads_what_fits() -> None:
    async def scenario(listener: PersonalizerListener) -> None:
        settings = {"context_schema": [numeric("user.visits", log=True)], "requires_activation": True}
        await listener.client.create_bandit("home", slate_size=1, item_capacity=9, **settings)  # type: ignore[arg-type]
        await listener.rank(rank_body())
        assert [one.name for one in (await listener.client.get_bandit("home")).context_schema or ()] == ["user.visits"]
        await listener.client.create_bandit("home-2-slots", slate_size=1, item_capacity=9)
        refused = await listener.post("v1.1-preview.1/multislot/rank", slots_body())
        assert (refused.status, refused.error["message"]) == (409, "the bandit home-2-slots needs slate_size 2")

    run(scenario, keep_schema=True)


def test_the_same_call_gets_the_same_answer_and_an_event_id_may_come_again() -> None:
    async def scenario(listener: PersonalizerListener) -> None:
        first = await listener.rank(rank_body())
        assert await listener.rank(rank_body()) == first
        assert (await listener.client.stats("home")).recommendation_count == 1
        await listener.rank(rank_body(excludedActions=[]))
        assert (await listener.client.stats("home")).recommendation_count == 2

    run(scenario)


async def learned(listener: PersonalizerListener, bandit: str) -> tuple[int, float]:
    """Return how many rewards a bandit has learned, and their mean; the call has it learn all that there are."""
    stats = await listener.client.stats(bandit)
    return stats.observation_count, stats.mean_reward


def test_event_ids_may_have_any_characters() -> None:
    async def scenario(listener: PersonalizerListener) -> None:
        for event_id in ("{0c9a}", "a/b c", "größe", "50%25", "x" * 256):
            assert (await listener.rank(rank_body(eventId=event_id)))["eventId"] == event_id
            url = URL(f"{listener.base}/v1.0/events/{quote(event_id, safe='')}/reward", encoded=True)
            async with listener.session.post(url, json={"value": 1}, headers={KEY_HEADER: KEY}) as answer:
                assert answer.status == 204, (event_id, await answer.text())

    run(scenario)


def test_the_earliest_reward_counts() -> None:
    async def scenario(listener: PersonalizerListener) -> None:
        await listener.rank(rank_body())
        for value in (0.5, 0.5, 1.0):
            await listener.done(f"v1.0/events/{EVENT}/reward", {"value": value})
        assert await learned(listener, "home") == (1, 0.5)

    run(scenario)


def test_rewards_of_a_bandit_that_sums_are_added_up() -> None:
    async def scenario(listener: PersonalizerListener) -> None:
        await listener.rank(rank_body(eventId="another"))
        await listener.client.update_bandit("home", reward_aggregation=Aggregation.SUM)
        await listener.rank(rank_body())
        for _ in range(2):
            await listener.done(f"v1.0/events/{EVENT}/reward", {"value": 0.5})
        assert (await listener.client.stats("home")).observation_count == 0

    run(scenario)


def test_slots_earn_by_themselves_and_their_sum_is_learned_when_all_are_posted() -> None:
    async def scenario(listener: PersonalizerListener) -> None:
        path = f"v1.1-preview.3/multislot/events/{EVENT}/reward"
        await listener.rank_slots(slots_body())
        await listener.done(path, {"reward": [{"slotId": "Side Bar", "value": 0.25}]})
        assert (await listener.client.stats("home-2-slots")).observation_count == 0
        both = [{"slotId": "Main Article", "value": 1}, {"slotId": "Side Bar", "value": 0.75}]
        await listener.done(path, {"reward": both})
        await listener.rank_slots(slots_body(eventId="second"))
        await listener.done(path.replace(EVENT, "second"), {"reward": both})
        assert await learned(listener, "home-2-slots") == (1, 1.75)

    run(scenario)


def test_what_is_deferred_counts_once_it_is_activated() -> None:
    async def scenario(listener: PersonalizerListener) -> None:
        await listener.rank(rank_body(deferActivation=True))
        assert (await listener.client.stats("home")).inactive_count == 1
        await listener.done(f"v1.0/events/{EVENT}/activate")
        assert (await listener.client.stats("home")).inactive_count == 0
        await listener.rank_slots(slots_body(deferActivation=True))
        assert (await listener.client.stats("home-2-slots")).inactive_count == 1
        await listener.done(f"v1.1-preview.1/multislot/events/{EVENT}/activate")
        assert (await listener.client.stats("home-2-slots")).inactive_count == 0

    run(scenario)


def test_exclusions_of_slots_hold_and_what_was_shown_is_learned() -> None:
    async def scenario(listener: PersonalizerListener) -> None:
        for number in range(30):
            shown = await listener.rank_slots(slots_body(eventId=f"e{number}"))
            assert shown["Main Article"] != "sports"
        # Some slate of thirty would have had it there: it was shown otherwise, and is learned so.
        stats = await listener.client.stats("home-2-slots")
        assert stats.recommendation_count == 30
        assert stats.shown_otherwise_count > 0

    run(scenario)


def test_an_apprentice_shows_the_shops_own_choice() -> None:
    async def scenario(listener: PersonalizerListener) -> None:
        answered = await listener.rank(rank_body(excludedActions=["tea pot"]))
        assert answered["rewardActionId"] == "cup"
        assert answered["ranking"] == [
            {"id": "cup", "probability": 1.0},
            {"id": "tea pot", "probability": 0.0},
            {"id": "sieve", "probability": 0.0},
        ]
        assert await listener.rank_slots(slots_body()) == {"Main Article": "films", "Side Bar": "news"}

    run(scenario, apprentice=True)


def test_events_are_found_after_a_restart(tmp_path: Path) -> None:
    async def scenario(listener: PersonalizerListener) -> None:
        answer = await listener.post(f"v1.0/events/{EVENT}/reward", {"value": 1})
        # The service is another one, which has no such slate: the event itself was found.
        assert (
            answer.error["message"] != f"no event {EVENT!r} is known; it is too old, or its Rank could not be recorded"
        )

    async def first(listener: PersonalizerListener) -> None:
        await listener.rank(rank_body())

    run(first, file=tmp_path / "events.db")
    run(scenario, file=tmp_path / "events.db")


BAD: list[tuple[str, Any, str]] = [
    ("v1.0/rank", [], "body"),
    ("v1.0/rank", {}, "actions"),
    ("v1.0/rank", {"actions": []}, "actions"),
    ("v1.0/rank", {"actions": [{"features": []}]}, "actions[0].id"),
    ("v1.0/rank", {"actions": [{"id": "a", "features": 7}]}, "actions[0].features"),
    ("v1.0/rank", rank_body(actions=[{"id": "a", "features": []}] * 2), "actions"),
    ("v1.0/rank", rank_body(contextFeatures=[7]), "contextFeatures"),
    ("v1.0/rank", rank_body(excludedActions="cup"), "excludedActions"),
    ("v1.0/rank", rank_body(excludedActions=["tea pot", "cup", "sieve"]), "actions"),
    ("v1.0/rank", rank_body(eventId="x" * 257), "eventId"),
    ("v1.0/rank", rank_body(eventId=7), "eventId"),
    ("v1.0/rank", rank_body(deferActivation="no"), "deferActivation"),
    ("v1.0/rank", {"actions": [{"id": "x" * 200, "features": []}]}, "items[0].item_id"),
    ("v1.0/events/e/reward", {}, "value"),
    ("v1.0/events/e/reward", {"value": "1,5"}, "value"),
    ("v1.0/events/e/reward", {"Value": 1}, "Value"),
    ("v1.0/rank", {"actions": [{"id": "a"}], "context_features": [{"age": 3}]}, "context_features"),
    ("v1.0/rank", {"actions": [{"id": "a"}], "features": [{"age": 3}]}, "features"),
    ("v1.0/rank", {"actions": [{"id": "a"}], "excludedAction": ["a"]}, "excludedAction"),
    ("v1.0/rank", {"actions": [{"id": "a", "feature": []}]}, "actions[0].feature"),
    ("v1.0/rank", {"actions": [{"id": 7}]}, "actions[0].id"),
    ("v1.0/events/e/reward", {"value": True}, "value"),
    ("v1.1-preview.1/multislot/rank", rank_body(), "slots"),
    ("v1.1-preview.1/multislot/rank", slots_body(slots=[{"id": f"s{n}"} for n in range(31)]), "slots"),
    ("v1.1-preview.1/multislot/rank", slots_body(slots=[{"id": "s"}, {"id": "s"}]), "slots"),
    ("v1.1-preview.1/multislot/rank", slots_body(slots=[{"id": f"s{n}"} for n in range(4)]), "actions"),
    (
        "v1.1-preview.1/multislot/rank",
        slots_body(slots=[{"id": one, "excludedActions": ["news", "films"]} for one in "ab"]),
        "actions",
    ),
    (
        "v1.1-preview.1/multislot/rank",
        slots_body(slots=[{"id": one, "excludedActions": ["news", "films"]} for one in "ab"] + [{"id": "c"}]),
        "slots",
    ),
    ("v1.1-preview.1/multislot/events/e/reward", {"reward": []}, "reward"),
    ("v1.1-preview.1/multislot/events/e/reward", {"reward": [{"slotId": "s"}]}, "reward[0].value"),
]


def test_what_can_not_be_read_is_refused_in_personalizers_shape() -> None:
    async def scenario(listener: PersonalizerListener) -> None:
        for path, body, target in BAD:
            answer = await listener.post(path, body)
            assert answer.status == 400, (path, body, answer)
            assert answer.error["target"] == target, (path, body, answer)
            said = re.search(
                "got|is missing|is no field: is it|twice|at most|can be shown|exclude so much|has 200",
                answer.error["message"],
            )
            assert said, answer.error["message"]

    run(scenario)


def test_what_is_no_json_is_refused() -> None:
    paths = ("v1.0/rank", "v1.0/events/e/reward", "v1.1-preview.1/multislot/rank")
    bodies = (b"", b"{", b"\xff", b'{"a":' * 100_000, b'{"actions": NaN}')

    async def scenario(listener: PersonalizerListener) -> None:
        for path, raw in itertools.product(paths, bodies):
            answer = await listener.post(path, raw=raw)
            assert (answer.status, answer.error["target"]) == (400, "body"), (path, raw[:20])

    run(scenario)


def test_other_refusals_have_the_shape_too() -> None:
    async def scenario(listener: PersonalizerListener) -> None:
        for path, options, status, code in (
            ("v1.0/rank", {"key": None}, 401, "401"),
            ("v1.0/rank", {"key": "shop.other"}, 401, "401"),
            ("v2.0/rank", {}, 404, "ResourceNotFound"),
            ("v1.0/events/unknown/reward", {"body": {"value": 1}}, 404, "ResourceNotFound"),
            ("v1.0/events/unknown/activate", {}, 404, "ResourceNotFound"),
            ("v1.1-preview.1/multislot/events/unknown/activate", {}, 404, "ResourceNotFound"),
            ("v1.0/rank", {"raw": b"x" * (2**20 + 1)}, 413, "PayloadSizeExceeded"),
        ):
            answer = await listener.post(path, **options)
            assert (answer.status, answer.error["code"]) == (status, code), path
        async with listener.session.get(
            f"{listener.base}/v1.0/rank", headers={"Ocp-Apim-Subscription-Key": "shop.secret"}
        ) as got:
            assert (got.status, (await got.json())["error"]["code"]) == (405, "BadRequest")

    run(scenario)


HEAD = "POST /personalizer/v1.0/rank HTTP/1.1\r\nHost: x\r\n"
UNREADABLE = {
    "header": f"{HEAD}{KEY_HEADER} : {KEY}\r\n\r\n",
    "line": f"{KEY} \x00\r\n\r\n",
    "unknown packing": f"{HEAD}{KEY_HEADER}: {KEY}\r\nContent-Encoding: br\r\nContent-Length: 2\r\n\r\n{{}}",
    "not packed": f"{HEAD}{KEY_HEADER}: {KEY}\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{{}}",
}


def test_what_can_not_be_read_is_refused_and_repeated_nowhere(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(listener: PersonalizerListener) -> None:
        port = URL(listener.base).port
        for problem, sent in UNREADABLE.items():
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(sent.encode())
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.split()[1] == b"400", problem
            [length] = re.findall(rb"Content-Length: (\d+)", head)
            answer = await reader.readexactly(int(length))
            assert json.loads(answer)["error"]["message"], problem
            assert KEY.encode() not in head + answer, problem
            writer.close()

    run(scenario)
    records = [record for record in caplog.records if record.name.startswith(("aiohttp", "topk_bandit.compat"))]
    assert records == []


def test_a_feature_of_another_kind_is_left_out_and_said_once(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(listener: PersonalizerListener) -> None:
        for visits in (3, "4", "many", "more", [5], None):
            await listener.rank(rank_body(contextFeatures=[{"visits": visits}], eventId=None))
        await listener.rank(
            rank_body(actions=[{"id": "cup", "features": [{"price": "four"}]}], eventId=None, excludedActions=[])
        )
        stats = {one.name: one.missing_count for one in (await listener.client.stats("home")).context_features}
        assert stats["visits"] == 5, "a text that is a number is read"

    run(scenario)
    assert [record.getMessage() for record in caplog.records if record.name.endswith("left_out")] == [
        "contexts of home: the feature visits is left out: expected a finite number, got 'many'; said once",
        "actions of home: the feature price is left out: expected a finite number, got 'four'; said once",
    ]


def test_a_reward_that_is_no_number_is_refused() -> None:
    async def scenario(listener: PersonalizerListener) -> None:
        for value in (b"9" * 400, b"-1e999", b"true", b'"1,5"', b"null"):
            refused = await listener.post(f"v1.0/events/{EVENT}/reward", raw=b'{"value": %s}' % value)
            assert (refused.status, refused.error["target"]) == (400, "value"), value

    run(scenario)


def test_an_unknown_slot_is_named() -> None:
    async def scenario(listener: PersonalizerListener) -> None:
        await listener.rank_slots(slots_body())
        path = f"v1.1-preview.1/multislot/events/{EVENT}/reward"
        answer = await listener.post(path, {"reward": [{"slotId": "Footer", "value": 1}]})
        assert (answer.status, answer.error["code"]) == (400, "InvalidRewardRequest")
        assert "'Footer'" in answer.error["message"]

    run(scenario)
