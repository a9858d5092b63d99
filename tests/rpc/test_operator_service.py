"""What operators ask, over a socket and the real use cases."""

from __future__ import annotations

import asyncio
import json
import re
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from tests.bandits.harness import NAME, SETTINGS, running_worker
from tests.contracts.harness import RedisStores
from tests.contracts.harness import run as run_on
from tests.rpc.whole import served
from tests.servers import running_server, valkey_binary

from topk_bandit.bandits.overviews import Overviews
from topk_bandit.bandits.tenant_quotas import TenantQuotas
from topk_bandit.client import (
    AbsenceReason,
    Count,
    Exclude,
    FailedPrecondition,
    Filter,
    InvalidArgument,
    Item,
    ModelSource,
    NotFound,
    Pin,
    categorical,
    numeric,
)
from topk_bandit.domain.bandits import BanditName
from topk_bandit.domain.durability import FSYNC
from topk_bandit.domain.operators import HistoryPoint
from topk_bandit.domain.quotas import Quota, Quotas
from topk_bandit.rpc.fields import page_token, to_page_token
from topk_bandit.rpc.operator_converters import history_to_proto
from topk_bandit.store.memory.bandits import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from topk_bandit.client import AsyncClient, Recommendation
    from topk_bandit.store.log import Store


def run(scenario: Callable[[AsyncClient], Awaitable[None]]) -> None:
    async def main() -> None:
        async with served(MemoryStore(clock_ms=lambda: time.time_ns() // 1_000_000)) as client:
            await scenario(client)

    asyncio.run(main())


async def trade(client: AsyncClient, count: int) -> list[str]:
    """Make a bandit, and reward slates with the place of their first item; return the recommendations."""
    await client.create_bandit("home", slate_size=2, item_capacity=9, context_dimension=2)
    ids = [f"i{number}" for number in range(6)]
    await client.upsert_items("home", ids)
    given, position = [], 0
    for number in range(count):
        slate = await client.recommend("home", [1.0, number / count], ids[:5], f"r{number}", min_model_version=position)
        receipt = await client.reward("home", slate.id, float(ids.index(slate.items[0])))
        position = receipt.log_position
        given.append(slate.id)
    return given


def test_an_explanation_has_the_request_and_parts_that_add_up() -> None:
    async def scenario(client: AsyncClient) -> None:
        given = await trade(client, 20)
        await client.top_slates("home", [1.0, 0.5])  # has the model learn all of it
        explained = await client.explain("home", given[14])
        assert explained.recommendation.id == given[14]
        assert (explained.context, explained.features, explained.candidates) == (
            (1.0, 0.7),
            {},
            ("i0", "i1", "i2", "i3", "i4"),
        )
        assert explained.model_source is ModelSource.REPLAYED
        assert explained.log_position > explained.recommendation.model_version
        reasons = explained.reasons
        assert reasons is not None
        assert reasons.chosen_again
        assert [one.item_id for one in reasons.items] == list(explained.recommendation.items)
        assert [one.position for one in reasons.items] == [1, 2]
        parts = reasons.offset + reasons.context + sum(one.own for one in reasons.items) + reasons.pairs[0].value
        assert abs(parts - explained.recommendation.mean) < 1e-9
        assert reasons.shown.upper_bound > reasons.shown.mean
        assert len(reasons.next_best) == 10
        assert all(set(one.slate) <= set(explained.candidates or ()) for one in reasons.next_best)
        scores = [one.score for one in reasons.next_best]
        assert scores == sorted(scores, reverse=True)
        with pytest.raises(NotFound):
            await client.explain("home", "f" * 32)
        with pytest.raises(InvalidArgument, match="recommendation_id: is required"):
            await client.explain("home", "")

    run(scenario)


def test_features_have_the_names_of_the_shop() -> None:
    async def scenario(client: AsyncClient) -> None:
        schema = [categorical("country", values=["DE", "FR"]), numeric("basket")]
        await client.create_bandit("cart", slate_size=2, item_capacity=5, context_schema=schema)
        await client.upsert_items("cart", ["a", "b", "c"])
        slate = await client.recommend("cart", features={"country": "FR", "basket": 34.5})
        explained = await client.explain("cart", slate.id)
        assert (explained.context, explained.features) == ((), {"country": "FR", "basket": 34.5})
        top = await client.top_slates("cart", features={"country": "FR"}, limit=4)
        assert (len(top.slates), len({one.slate for one in top.slates})) == (4, 4)
        assert (await client.top_slates("cart")).model_version == top.model_version

    run(scenario)


def test_top_slates_follow_the_rewards() -> None:
    async def scenario(client: AsyncClient) -> None:
        await trade(client, 60)
        top = await client.top_slates("home", [1.0, 0.5], limit=3)
        assert len(top.slates) == 3
        means = [one.mean for one in top.slates]
        assert means == sorted(means, reverse=True)
        assert top.slates[0].slate[0] in {"i4", "i5"}
        for bad in (-1, 101):
            with pytest.raises(InvalidArgument, match="limit"):
                await client.top_slates("home", [1.0, 0.5], limit=bad)
        with pytest.raises(InvalidArgument, match="context"):
            await client.top_slates("home", [1.0])
        await client.retire_items("home", [f"i{number}" for number in range(5)])
        with pytest.raises(FailedPrecondition) as raised:
            await client.top_slates("home", [1.0, 0.5])
        assert raised.value.reason == "TOO_FEW_ITEMS"

    run(scenario)


SOUPS = Count("category", "soup", at_most=1)


async def make_menu(client: AsyncClient) -> None:
    schema = [numeric("price"), categorical("category", values=["soup", "cake"])]
    await client.create_bandit("menu", slate_size=2, item_capacity=9, item_schema=schema, rules=[SOUPS])
    await client.upsert_items(
        "menu",
        [Item(f"i{n}", features={"price": n, "category": "soup" if n < 3 else "cake"}) for n in range(6)],
    )


def test_rules_are_tried_before_they_are_a_bandits() -> None:
    async def scenario(client: AsyncClient) -> None:
        await make_menu(client)
        own = await client.top_slates("menu", limit=100)
        assert (own.rules, own.relaxed_rules, own.item_count) == (("at most 1 of category soup",), (), 6)
        assert all(len({"i0", "i1", "i2"} & {*one.slate}) <= 1 for one in own.slates)
        tried = await client.top_slates("menu", rules=["price < 3"], limit=100)
        assert (tried.rules, tried.item_count) == (("filter price < 3",), 3)
        assert {item for one in tried.slates for item in one.slate} == {"i0", "i1", "i2"}
        free = await client.top_slates("menu", rules=[], limit=100)
        assert (free.rules, free.item_count) == ((), 6)
        given_up = await client.top_slates("menu", rules=[Pin(1, ["i1"]), Filter("price < 1", may_relax=True)])
        assert given_up.relaxed_rules == ("filter price < 1",)
        assert given_up.rules == ("pin i1 at position 1", "filter price < 1 (may be relaxed)")
        with pytest.raises(FailedPrecondition, match=r"no slate keeps rules\[0\]: filter price < 1") as raised:
            await client.top_slates("menu", rules=["price < 1"])
        assert (raised.value.reason, raised.value.details.field) == ("RULES_CLASH", "rules[0]")
        for bad, field in ((Pin(3, ["i1"]), "pin.position"), (Filter("prize < 3"), "filter")):
            with pytest.raises(InvalidArgument) as wrong:
                await client.top_slates("menu", rules=[bad])
            assert wrong.value.details.field == f"proposed.rules[0].{field}"
        assert (await client.top_slates("menu", limit=100)) == own
        assert (await client.get_bandit("menu")).rules == (SOUPS,)
        assert (await client.stats("menu")).rules == ("at most 1 of category soup",)

    run(scenario)


def test_an_explanation_says_why_items_are_absent() -> None:
    async def scenario(client: AsyncClient) -> None:
        await make_menu(client)
        await client.set_available("menu", ["i5"], available=False)
        slate = await client.recommend("menu", rules=[Exclude(["i4"])], candidates=["i0", "i1", "i3", "i4"])
        asked = ["i4", "i5", "i2", "nowhere", *slate.items, *({"i0", "i1"} - {*slate.items})]
        explained = await client.explain("menu", slate.id, absent=asked)
        found = {one.item_id: (one.reason, one.rule) for one in explained.absent_items}
        assert found.pop("i4") == (AbsenceReason.EXCLUDED, "exclude i4")
        assert found.pop("i5") == (AbsenceReason.UNAVAILABLE, "")
        assert found.pop("i2") == (AbsenceReason.NO_CANDIDATE, "")
        assert found.pop("nowhere") == (AbsenceReason.UNKNOWN, "")
        assert {*found.values()} == {(AbsenceReason.NOT_CHOSEN, "")}
        assert not {*found} & {*slate.items}
        assert (await client.explain("menu", slate.id)).absent_items == ()
        with pytest.raises(InvalidArgument, match=r"explain_item_ids\[1\]: repeats"):
            await client.explain("menu", slate.id, absent=["i4", "i4"])

    run(scenario)


def test_a_worker_says_how_it_and_the_store_are() -> None:
    async def scenario(client: AsyncClient) -> None:
        status = await client.service_status()
        assert (status.version, status.worker, status.window) == ("0.0", "here/1", timedelta(seconds=12.5))
        assert status.start_time == datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
        [call] = status.calls
        assert (call.method.rpartition("/")[2], call.call_count, call.failed_count) == ("Recommend", 2, 1)
        assert (call.median_seconds, call.p90_seconds, call.p99_seconds) == (0.004, 0.008, 0.008)
        assert status.store is not None
        assert (status.store.server, status.store.durability, status.store.mode) == ("memory", "memory", "standalone")

    run(scenario)


@pytest.mark.parametrize("policy", ["noeviction", "allkeys-lru"])
def test_a_worker_says_what_is_wrong_with_the_store_or_that_it_is_away(policy: str) -> None:
    with running_server(valkey_binary(), "--maxmemory", "64mb") as server:

        async def scenario(store: Store) -> None:
            async with served(store) as client:
                with server.client() as admin:
                    admin.config_set("maxmemory-policy", policy)
                status = (await client.service_status()).store
                assert status is not None
                assert (status.server, status.durability, status.memory_limit_bytes) == ("valkey", "fsync", 64 * 2**20)
                problems = " ".join(status.problems)
                assert (f"maxmemory-policy is {policy}" in problems) == (policy != "noeviction")
                assert "clock is not this machine's" in problems  # where the worker's clock says 1970
                server.kill()
                assert (await client.service_status()).store is None

        run_on(RedisStores(server.url, durability=FSYNC), scenario)


def test_tenants_and_their_bandits_are_listed_in_pages() -> None:
    store = MemoryStore(clock_ms=lambda: time.time_ns() // 1_000_000)

    async def scenario(client: AsyncClient) -> None:
        await trade(client, 12)
        for tenant, bandits in (("b-2", 3), ("b", 2), ("Z", 1)):
            for number in range(bandits):
                await store.create_bandit(
                    BanditName(tenant, f"n{number}"), SETTINGS, incarnation=f"{tenant}{number}", quota=9
                )
        assert [one async for one in client.list_tenants()] == ["Z", "acme", "b", "b-2"]
        stats = await client.stats("home")
        found = [one async for one in client.list_bandit_overviews(every_tenant=True)]
        names = [(one.tenant, one.bandit) for one in found]
        pairs = [("b", "n0"), ("b", "n1"), ("b-2", "n0"), ("b-2", "n1"), ("b-2", "n2")]
        assert names == [("Z", "n0"), ("acme", "home"), *pairs]
        [own] = [one async for one in client.list_bandit_overviews()]
        assert (own.tenant, own.pending_count, own.late_reward_count) == ("acme", 0, 0)
        glance = own.glance
        assert glance is not None
        assert (own.log_position, glance.recommendation_count, glance.item_count) == (26, 12, 6)
        for name in ("observation_count", "mean_reward", "regret_bound_sum", "estimated_regret_sum"):
            assert getattr(stats, name) == getattr(glance, name)
        assert [one.glance for one in found if one.tenant != "acme"] == [None] * 6
        assert [one.bandit async for one in client.list_bandit_overviews(every_tenant=True, containing="2/N1")] == [
            "n1"
        ]
        stats = await client.tenant_stats()
        assert (stats.bandit_count, stats.log_event_count, stats.model_count) == (1, 26, 1)
        assert (stats.recommendation_count, stats.observation_count) == (12, 12)
        quotas = {one.quota: (one.used, one.limit) for one in stats.quotas}
        assert list(quotas) == list(Quota)
        assert (quotas["bandits"], quotas["items"]) == ((1, 2), (6, None))
        assert (quotas["open_slates"], quotas["calls_per_second"]) == ((0, None), (None, None))
        assert (quotas["log_bytes"][0] or 0) > 0

    async def main() -> None:
        async with served(store) as client:
            await scenario(client)

    asyncio.run(main())


def test_a_model_of_the_bandit_that_had_the_name_before_is_not_returned() -> None:
    store = MemoryStore(clock_ms=lambda: 1)

    async def scenario() -> None:
        await store.create_bandit(NAME, SETTINGS, incarnation="old", quota=9)
        async with running_worker(store) as worker:
            await worker.models.follow(NAME)
            looks = Overviews(store, worker.models, TenantQuotas(store, Quotas()))
            assert (await looks.of_tenant(NAME.tenant)).models == 1
            await store.delete_bandit(NAME)
            await store.create_bandit(NAME, SETTINGS, incarnation="new", quota=9)
            [found], _ = await looks.of_bandits(NAME.tenant, after=None, limit=9, containing="")
            assert ((await looks.of_tenant(NAME.tenant)).models, found.glance) == (0, None)

    asyncio.run(scenario())


def test_pages_of_any_size_have_every_bandit_once() -> None:
    store = MemoryStore(clock_ms=lambda: 1)

    async def scenario() -> None:
        names = [BanditName(tenant, f"n{number}") for tenant in ("a", "b", "c") for number in range(3)]
        for name in names:
            await store.create_bandit(name, SETTINGS, incarnation=f"{name}", quota=9)
        async with running_worker(store) as worker:
            looks = Overviews(store, worker.models, TenantQuotas(store, Quotas()))
            for limit in range(1, 11):
                found, after, pages = [], None, 0
                while pages == 0 or after is not None:
                    pages += 1
                    part, after = await looks.of_bandits(None, after=after, limit=limit, containing="")
                    assert len(part) <= limit
                    found.extend(one.name for one in part)
                assert found == names
                assert pages <= 1 + 9 // limit
            part, after = await looks.of_bandits(None, after=None, limit=4, containing="c/")
            assert (part, after) == ([], names[3])
            part, after = await looks.of_bandits("b", after=names[3], limit=4, containing="")
            assert ([one.name for one in part], after) == (names[4:6], None)

    asyncio.run(scenario())


@pytest.mark.parametrize("token", ["Yg", "Yi9jL2Q", "!"])
def test_a_token_of_another_list_is_refused(token: str) -> None:
    async def scenario(client: AsyncClient) -> None:
        operation = client._operators.overviews(token, every_tenant=False, containing="")
        with pytest.raises(InvalidArgument, match=re.escape(f"gave out, got {token!r}: leave it out")):
            await client._run(operation, None)

    run(scenario)


def test_a_history_ends_with_what_the_statistics_tell() -> None:
    async def scenario(client: AsyncClient) -> None:
        await trade(client, 20)
        slate = await client.recommend("home", [1.0, 0.0])
        stats, points = await client.stats("home"), await client.history("home")
        last = points[-1]
        assert last.recommendation_count == stats.recommendation_count == 21
        assert (last.rewarded_count, last.expired_count, last.observation_count) == (20, 0, 20)
        assert (last.estimated_regret_sum, last.regret_bound_sum) == (
            stats.estimated_regret_sum,
            stats.regret_bound_sum,
        )
        assert last.explored_count == stats.explored_count
        assert last.reward_sum == pytest.approx(20 * stats.mean_reward)
        assert points[0].start_time <= points[0].end_time <= last.end_time
        assert {point.join_rate for point in points} <= {None, 1.0}
        before = points[-2] if len(points) > 1 else None
        learned = last.observation_count - (before.observation_count if before else 0)
        assert (last.mean_reward is None) == (learned == 0)
        assert slate.id

    run(scenario)


def test_means_and_shares_of_an_interval_are_its_own() -> None:
    points = [
        HistoryPoint(0, 1000, 10, 1, 4, 0, 4, 8.0, 5.0, 2.0),
        HistoryPoint(1000, 2000, 10, 1, 6, 2, 7, 6.5, 5.0, 2.0),
        HistoryPoint(2000, 3000, 14, 4, 6, 2, 7, 6.5, 6.0, 2.5),
    ]
    messages = history_to_proto(points).points
    assert [(one.mean_reward, one.explored_share, one.join_rate) for one in messages] == [
        (2.0, 0.1, 1.0),
        (-0.5, 0.0, 0.5),
        (0.0, 0.75, 0.0),
    ]
    unset = [
        [name for name in ("mean_reward", "explored_share", "join_rate") if not one.HasField(name)] for one in messages
    ]
    assert unset == [[], ["explored_share"], ["mean_reward", "join_rate"]]


def test_a_log_is_exported_with_its_propensities_and_verified() -> None:
    async def scenario(client: AsyncClient) -> None:
        given = await trade(client, 20)
        page = await client.export_events("home", limit=7)
        events = list(page.events)
        while page.events:
            page = await client.export_events("home", page.next_cursor, limit=7)
            events.extend(page.events)
        assert [one.position for one in events] == list(range(1, 43))
        written = [json.loads(one.event_json) for one in events]
        slates = [one["recommendation"] for one in written if one["type"] == "recommended"]
        assert [one["recommendation_id"] for one in slates] == given
        assert all(0.0 < one["propensity"] <= 1.0 for one in slates)
        await client.recommend("home", [1.0, 0.0])
        [later] = (await client.export_events("home", page.next_cursor)).events
        assert later.position == 43
        assert (await client.export_events("home", start=40, limit=1)).events[0] == events[39]
        for wrong in ({"cursor": page.next_cursor, "start": 3}, {"cursor": "Yg"}, {"start": -1}, {"limit": -1}):
            with pytest.raises(InvalidArgument):
                await client.export_events("home", **wrong)
        incarnation = page_token("cursor", page.next_cursor).partition("/")[2]
        for place in ("0", str(1 << 63), str(1 << 64), "9" * 60):
            with pytest.raises(InvalidArgument, match="cursor: is nothing that this service gave out, got '"):
                await client.export_events("home", to_page_token(f"{place}/{incarnation}"))
        beyond = await client.export_events("home", to_page_token(f"{(1 << 63) - 1}/{incarnation}"))
        assert beyond.events == ()
        found = await client.verify("home")
        assert (found.agrees, found.difference, found.replayed_from, found.model_version) == (True, "", 0, 43)
        assert found.log_digest == found.replayed_log_digest == (await client.stats("home")).log_digest

    run(scenario)


def test_a_bandit_that_was_created_anew_is_not_explained_by_the_one_before() -> None:
    store = MemoryStore(clock_ms=lambda: time.time_ns() // 1_000_000)

    async def main() -> None:
        async with served(store, follows=False) as old, served(store, follows=False, worker="two") as new:
            await sell(old, ["a", "b", "c"])
            await new.delete_bandit("home")  # of which the other worker does not hear
            slate = await sell(new, ["x", "y", "z"])
            explained = await old.explain("home", slate.id)
            assert explained.reasons is not None
            assert {part.item_id for part in explained.reasons.items} == set(slate.items)
            assert explained.reasons.chosen_again
            assert explained.model_source is ModelSource.REPLAYED

    async def sell(client: AsyncClient, ids: list[str]) -> Recommendation:
        await client.create_bandit("home", slate_size=2, item_capacity=9)
        await client.upsert_items("home", ids)
        return await client.recommend("home", min_model_version=2)

    asyncio.run(main())


def test_lines_and_cursors_that_nobody_gave_out_are_refused() -> None:
    async def scenario(client: AsyncClient) -> None:
        await trade(client, 3)
        lines = [line async for line in client.export_state("home")]
        assert json.loads(lines[0])["bandit"]["first_position"] == 1
        for cursor in (
            "x",
            to_page_token("1/nothing/0/id"),
            to_page_token("a/items/0/id"),
            to_page_token("1/items/0/"),
        ):
            with pytest.raises(InvalidArgument, match="cursor"):
                await client._run(client._operators.state("home", cursor), None)
        with pytest.raises(FailedPrecondition) as raised:
            await client._run(client._operators.state("home", to_page_token("1/items/0/another")), None)
        assert raised.value.reason == "LOG_REPLACED"
        incarnation = json.loads(lines[0])["bandit"]["incarnation"]
        for place in ("items/99", f"slates/{10**17}", f"imports/{10**17}"):
            await client._run(client._operators.state("home", to_page_token(f"1/{place}/{incarnation}")), None)
        for given in ({"import_id": ""}, {"import_id": "one", "first_line": -1}):
            with pytest.raises(InvalidArgument, match=r"import_id|first_line"):
                await client.import_events("new", lines, **{"first_line": 0, **given})
        with pytest.raises(InvalidArgument, match="lines: has 1001 entries"):
            await client.import_events("new", lines[:1] * 1001, import_id="one", first_line=0)
        with pytest.raises(InvalidArgument) as refused:
            await client.import_events("new", [lines[0], "{}"], import_id="one", first_line=0)
        assert refused.value.field == "lines[1]"
        with pytest.raises(FailedPrecondition) as early:
            await client.import_events("new", lines, import_id="one", first_line=5)
        assert (early.value.reason, early.value.details.numbers) == ("IMPORT_GAP", {"next_row": 0})
        assert (await client.import_events("new", (), import_id="one", first_line=0)).next_line == 0

    run(scenario)


def test_an_event_is_passed_over_where_the_learner_stands_alone() -> None:
    async def scenario(client: AsyncClient) -> None:
        await trade(client, 4)
        with pytest.raises(FailedPrecondition, match="follows the log to its end") as raised:
            await client.skip_event("home", 5, reason="why not")
        assert raised.value.reason == "LEARNER_NOT_STUCK"
        with pytest.raises(NotFound):
            await client.skip_event("nowhere", 5, reason="why not")
        for position, reason, field in ((0, "why", "position"), (-1, "why", "position"), (5, "", "reason")):
            with pytest.raises(InvalidArgument, match=field):
                await client.skip_event("home", position, reason=reason)
        for bad in ("x" * 513, "a\nb"):
            with pytest.raises(InvalidArgument, match="reason"):
                await client.skip_event("home", 5, reason=bad)

    run(scenario)
