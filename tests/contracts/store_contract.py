"""What every store must do; see the docstrings of `topk_bandit.store.log` for the promises that are checked here."""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.contracts.archives import archived, ended, restore_lines
from tests.contracts.frequency_contract import FrequencyContract
from tests.contracts.harness import dump, listening, run, whole_log
from tests.contracts.item_values_contract import ItemValuesContract
from tests.contracts.provisional_contract import ProvisionalContract
from tests.contracts.samples import (
    HOUR_MS,
    ITEMS,
    NAME,
    NAMED,
    PAST,
    PRIOR,
    SETTINGS,
    import_part,
    recommendation,
    request,
    settings,
)
from tests.waiting import until_async

from topk_bandit.bandits.contents import read_contents
from topk_bandit.domain.bandits import Aggregation, BanditName, BanditSettings, Item, ItemMask, RewardRange
from topk_bandit.domain.errors import (
    ConflictError,
    ExhaustedError,
    InvalidArgumentError,
    NotFoundError,
    NotReadyError,
    QuotaError,
    TopkBanditError,
)
from topk_bandit.domain.features import Features
from topk_bandit.domain.quotas import Quota, TenantUse
from topk_bandit.domain.slates import (
    ActivationOutcome,
    ActivationReceipt,
    Reward,
    RewardOutcome,
    RewardReceipt,
)
from topk_bandit.store.archive_lines import ArchivedImport
from topk_bandit.store.archives import write_line
from topk_bandit.store.events import (
    Activated,
    BanditCreated,
    BanditReset,
    EventSkipped,
    Expired,
    Imported,
    ItemsChanged,
    Lapsed,
    LoggedEvent,
    Recommended,
    RewardAmended,
    RewardCollected,
    Rewarded,
    SettingsChanged,
    Shown,
)
from topk_bandit.store.log import (
    MOST_REWARDS,
    Correctable,
    Expiry,
    ImportOutcome,
    ImportPart,
    ImportProgress,
    LostEvents,
    NewSlate,
    RecordOutcome,
    RecordStatus,
    Skip,
    Snapshot,
    Written,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.contracts.harness import Stores

    from topk_bandit.domain.slates import Recommendation, RecommendationRequest
    from topk_bandit.store.log import BanditRecord, Store

ABSENT = BanditName(tenant="shop", bandit="absent")
OTHER = BanditName(tenant="shop", bandit="other")
OVERDUE = settings(reward_wait_ms=0, default_reward=-0.5)


# What the rewards 0.1, 1e16, -0.2 and 0.3, in this order, come to.
SEVERAL = (0.1, 1e16, -0.2, 0.3)
COME_TO = {
    Aggregation.LAST: 0.3,
    Aggregation.SUM: 0.1 + 1e16 - 0.2 + 0.3,
    Aggregation.MEAN: (0.1 + 1e16 - 0.2 + 0.3) / 4,
    Aggregation.MAX: 1e16,
}


def skip_of(record: BanditRecord, position: int) -> Skip:
    return Skip(
        position,
        EventSkipped("a bit flipped", 1_764_000_000_000),
        at_ms=record.created_ms,
        incarnation=record.incarnation,
        revision=record.revision,
        items_position=record.items_position,
    )


async def create(
    store: Store,
    name: BanditName = NAME,
    *,
    having: BanditSettings = SETTINGS,
    incarnation: str = "first",
    quota: int = 100,
) -> BanditRecord:
    return await store.create_bandit(name, having, incarnation=incarnation, quota=quota)


async def record(store: Store, recommendation_id: str = "rec-1", *, name: BanditName = NAME) -> RecordOutcome:
    """Record a recommendation that was decided just now; return the answer."""
    return (await write_record(store, recommendation_id, name=name)).answer


async def write_record(store: Store, recommendation_id: str, *, name: BanditName = NAME) -> Written[RecordOutcome]:
    """Record a recommendation that was decided just now."""
    now = await store.get_bandit(name)
    return await store.record_recommendation(
        name,
        request(f"for-{recommendation_id}"),
        recommendation(recommendation_id),
        incarnation=now.incarnation,
        items_position=now.items_position,
    )


async def read_again(store: Store, written: Written[object], *, name: BanditName = NAME) -> list[type]:
    """Hold what a call appended to be what reading returns; return the kinds of its events."""
    [appended] = written.appended
    assert appended is not None
    first = appended.events[0].position
    part = await store.read_log(name, start=first, limit=len(appended.events))
    assert repr(part.events) == repr(appended.events)
    assert (part.incarnation, part.revision) == (appended.incarnation, appended.revision)
    assert (await store.read_log(name, start=first - 1, limit=1)).checksum == appended.before
    assert (part.checksum, appended.n_bytes > 0) == (appended.checksum, True)
    return [type(logged.event) for logged in part.events]


async def shown(store: Store, recommendation_id: str = "rec-1", *, name: BanditName = NAME) -> Shown:
    """Return what a recommendation showed, as the log said when it was recorded."""
    recorded = [logged for logged in await whole_log(store, name) if isinstance(logged.event, Recommended)]
    [found] = [one for one in recorded if one.event.recommendation.recommendation_id == recommendation_id]
    return Shown(found.event.request.context, found.event.recommendation.slate, found.at_ms)


async def import_rows(store: Store, part: ImportPart, name: BanditName = NAME) -> ImportOutcome:
    """Record a part with the rows of `PAST`, or without any, by one who looked at the bandit just now."""
    now = await store.get_bandit(name)
    event = Imported(part.import_id, part.first_row, PAST) if part.accepted else None
    return await store.record_import(name, part, event, incarnation=now.incarnation, items_position=now.items_position)


async def correct(
    store: Store, value: float | None, key: str = "rec-1", *, reward_id: str = "", exact: int = 9, behind: int = 0
) -> RewardReceipt | None:
    """Correct a reward as one who looked at the log just now, or `behind`, whose model is exact for so many events."""
    now = await store.get_bandit(NAME)
    version = now.log_position - behind
    known = Correctable(now.incarnation, now.revision, version, version + exact if exact else 0)
    return await store.correct_reward(NAME, key, value, reward_id=reward_id, known=known)


async def expired(store: Store, name: BanditName = NAME, *, limit: int = 5) -> int:
    """Close what is overdue, and return how many that were."""
    return (await store.expire_due(name, limit=limit)).count


async def is_known(store: Store, key: str) -> bool:
    return await store.find_recommendation(NAME, request(), key) is not None


async def remembered(store: Store) -> list[str]:
    return [key for key in ("rec-1", "rec-2", "rec-3", "expired", "open") if await is_known(store, key)]


async def filled(store: Store) -> None:
    """Create a bandit in which each kind of thing is there, so that each kind of call can fail."""
    await create(store, having=settings(item_capacity=4))
    await store.change_items(NAME, upserted=[*ITEMS, Item("fig")], retired=["fig"])
    await record(store, "pending")
    await record(store, "rewarded")
    await store.record_reward(NAME, "rewarded", 1.5)
    await store.update_settings(NAME, replace(OVERDUE, item_capacity=4), revision=1)
    await record(store, "expired")
    await record(store, "late")
    await store.expire_due(NAME, limit=10)
    await store.record_reward(NAME, "late", 2.5)
    await import_rows(store, import_part())
    await store.save_snapshot(NAME, Snapshot(position=3, payload=b"older"), incarnation="first")
    await store.save_snapshot(NAME, Snapshot(position=5, payload=b"newer"), incarnation="first", behind=3)


async def record_at(store: Store, *, incarnation: str, items_position: int) -> RecordOutcome:
    written = await store.record_recommendation(
        NAME, request(), recommendation(), incarnation=incarnation, items_position=items_position
    )
    return written.answer


FAILING: dict[str, tuple[Callable[[Store], Awaitable[object]], type[TopkBanditError], str]] = {
    "create with other settings": (
        lambda store: create(store, having=settings(uniform_share=0.9)),
        ConflictError,
        "BANDIT_EXISTS",
    ),
    "create beyond the quota": (lambda store: create(store, ABSENT, quota=1), ExhaustedError, "BANDIT_QUOTA"),
    "get an absent bandit": (lambda store: store.get_bandit(ABSENT), NotFoundError, ""),
    "update an absent bandit": (
        lambda store: store.update_settings(ABSENT, SETTINGS, revision=1),
        NotFoundError,
        "",
    ),
    "update an old revision": (
        lambda store: store.update_settings(NAME, settings(uniform_share=0.9), revision=1),
        ConflictError,
        "REVISION_CHANGED",
    ),
    "delete an absent bandit": (lambda store: store.delete_bandit(ABSENT), NotFoundError, ""),
    "change an absent bandit's items": (
        lambda store: store.change_items(ABSENT, upserted=[Item("apple")], retired=[]),
        NotFoundError,
        "",
    ),
    "retire an absent item": (
        lambda store: store.change_items(NAME, upserted=[Item("apple", available=False)], retired=["pear", "kiwi"]),
        NotFoundError,
        "",
    ),
    "upsert a retired item": (
        lambda store: store.change_items(NAME, upserted=[Item("apple", available=False), Item("fig")], retired=[]),
        ConflictError,
        "ITEM_RETIRED",
    ),
    "upsert too many items": (
        lambda store: store.change_items(
            NAME, upserted=[Item("pear", available=False), Item("kiwi"), Item("lime")], retired=["apple"]
        ),
        ExhaustedError,
        "ITEM_CAPACITY",
    ),
    "change an absent item by a mask": (
        lambda store: store.change_items(
            NAME, upserted=[Item("apple", available=False), Item("kiwi")], retired=[], mask=ItemMask(creates=False)
        ),
        NotFoundError,
        "",
    ),
    "list an absent bandit's items": (lambda store: store.list_items(ABSENT), NotFoundError, ""),
    "record for an absent bandit": (lambda store: record(store, name=ABSENT), NotFoundError, ""),
    "record another context": (
        lambda store: store.record_recommendation(
            NAME, request(context=(0.0,)), recommendation("rewarded"), incarnation="first", items_position=2
        ),
        ConflictError,
        "REQUEST_ID_REUSED",
    ),
    "record features instead": (
        lambda store: store.record_recommendation(
            NAME, request(context=NAMED), recommendation("rewarded"), incarnation="first", items_position=2
        ),
        ConflictError,
        "REQUEST_ID_REUSED",
    ),
    "record other candidates": (
        lambda store: store.record_recommendation(
            NAME, request(candidates=("apple",)), recommendation("late"), incarnation="first", items_position=2
        ),
        ConflictError,
        "REQUEST_ID_REUSED",
    ),
    "find for an absent bandit": (
        lambda store: store.find_recommendation(ABSENT, request(), "pending"),
        NotFoundError,
        "",
    ),
    "find another context": (
        lambda store: store.find_recommendation(NAME, request(context=()), "pending"),
        ConflictError,
        "REQUEST_ID_REUSED",
    ),
    "reward an absent bandit": (lambda store: store.record_reward(ABSENT, "pending", 1.0), NotFoundError, ""),
    "reward an absent recommendation": (lambda store: store.record_reward(NAME, "nil", 1.0), NotFoundError, ""),
    "reward with another value": (
        lambda store: store.record_reward(NAME, "rewarded", math.nextafter(1.5, 2)),
        ConflictError,
        "REWARD_EXISTS",
    ),
    "reward late with another value": (
        lambda store: store.record_reward(NAME, "late", -2.5),
        ConflictError,
        "REWARD_EXISTS",
    ),
    "reward with no number": (lambda store: store.record_reward(NAME, "pending", math.nan), InvalidArgumentError, ""),
    "reward with infinity": (lambda store: store.record_reward(NAME, "pending", -math.inf), InvalidArgumentError, ""),
    "import into an absent bandit": (lambda store: import_rows(store, import_part(), ABSENT), NotFoundError, ""),
    "find an import of an absent bandit": (lambda store: store.find_import(ABSENT, "year"), NotFoundError, ""),
    "find a part of an absent bandit": (
        lambda store: store.find_import_part(ABSENT, import_part()),
        NotFoundError,
        "",
    ),
    "import other rows": (
        lambda store: import_rows(store, import_part(fingerprint="0b")),
        ConflictError,
        "IMPORT_REUSED",
    ),
    "import in other parts": (lambda store: import_rows(store, import_part(1)), ConflictError, "IMPORT_REUSED"),
    "find other rows": (
        lambda store: store.find_import_part(NAME, import_part(fingerprint="0b")),
        ConflictError,
        "IMPORT_REUSED",
    ),
    "import with a gap": (lambda store: import_rows(store, import_part(4)), NotReadyError, "IMPORT_GAP"),
    "reset an absent bandit": (lambda store: store.reset_bandit(ABSENT, request_id="one"), NotFoundError, ""),
    "read an absent log": (lambda store: store.read_log(ABSENT, start=1, limit=1), NotFoundError, ""),
}

REPEATABLE: dict[str, Callable[[Store], Awaitable[object]]] = {
    "create": lambda store: create(store, having=replace(OVERDUE, item_capacity=4), incarnation="second", quota=0),
    "update": lambda store: store.update_settings(NAME, replace(OVERDUE, item_capacity=4), revision=1),
    "upsert": lambda store: store.change_items(NAME, upserted=ITEMS, retired=["fig"]),
    "record": lambda store: store.record_recommendation(
        NAME, request("for-pending"), recommendation("pending", mean=9.0), incarnation="gone", items_position=99
    ),
    "reward": lambda store: store.record_reward(NAME, "rewarded", 1.5),
    "late reward": lambda store: store.record_reward(NAME, "late", 2.5),
    "import": lambda store: store.record_import(
        NAME, import_part(), Imported("year", 0, PAST), incarnation="gone", items_position=99
    ),
    "snapshot": lambda store: store.save_snapshot(NAME, Snapshot(5, b"newer"), incarnation="first"),
}


class StoreContract(FrequencyContract, ProvisionalContract, ItemValuesContract):
    """A test class inherits this and gives the fixtures `stores` and `forgetful_stores`."""

    @pytest.fixture
    def stores(self) -> Stores:
        """Return an empty store's connections."""
        raise NotImplementedError

    @pytest.fixture
    def forgetful_stores(self) -> Stores:
        """Return the same, with closed records kept for 500 ms only."""
        raise NotImplementedError

    def test_a_created_bandit_is_as_described(self, stores: Stores) -> None:
        async def scenario(store: Store) -> None:
            made = await create(store)
            assert made == await store.get_bandit(NAME)
            assert (made.name, made.incarnation, made.settings, made.revision) == (NAME, "first", SETTINGS, 1)
            assert (made.items_position, made.log_position, made.snapshot_position) == (0, 1, 0)
            assert (made.pending, made.late_rewards) == (0, 0)
            [event] = await whole_log(store, NAME)
            assert event.event == BanditCreated(SETTINGS)
            assert event.at_ms == made.created_ms
            assert made.created_ms == (await store.check()).clock_ms

        run(stores, scenario)

    def test_a_failing_call_changes_nothing(self, stores: Stores) -> None:
        async def scenario(store: Store) -> None:
            await filled(store)
            before = await dump(store, NAME)
            for call, (fail, error, reason) in FAILING.items():
                with pytest.raises(error) as caught:
                    await fail(store)
                assert getattr(caught.value, "reason", "") == reason, call
                assert await dump(store, NAME) == before, call
                with pytest.raises(NotFoundError):
                    await store.get_bandit(ABSENT)

        run(stores, scenario)

    def test_a_repeated_call_changes_nothing(self, stores: Stores) -> None:
        async def scenario(store: Store) -> None:
            await filled(store)
            before = await dump(store, NAME)
            for call, repeat in REPEATABLE.items():
                await repeat(store)
                await repeat(store)
                assert await dump(store, NAME) == before, call

        run(stores, scenario)

    def test_creating_again_returns_what_is_there(self, stores: Stores) -> None:
        async def scenario(store: Store) -> None:
            made = await create(store)
            assert await create(store, incarnation="second") == made

        run(stores, scenario)

    def test_tenants_have_bandits_and_quotas_of_their_own(self, stores: Stores) -> None:
        async def scenario(store: Store) -> None:
            await create(store, BanditName("shop", "home"), quota=1)
            await create(store, BanditName("other", "home"), quota=1)
            await store.delete_bandit(BanditName("shop", "home"))
            await create(store, BanditName("shop", "next"), quota=1)
            await create(store, BanditName("shop", "more"), quota=2)
            with pytest.raises(QuotaError) as full:
                await create(store, BanditName("shop", "third"), quota=1)
            assert (full.value.quota, full.value.tenant) == (Quota.BANDITS, "shop")
            assert (full.value.used, full.value.limit, full.value.retry_after) == (2, 1, None)
            await store.delete_bandit(BanditName("shop", "more"))
            assert [made.name.bandit for made in await store.list_bandits("shop", after="", limit=9)] == ["next"]

        run(stores, scenario)

    def test_what_a_tenant_has_is_measured(self, stores: Stores) -> None:
        async def scenario(store: Store) -> None:
            assert await store.measure("shop") == TenantUse()
            waits = settings(requires_activation=True)
            for name, having in ((NAME, SETTINGS), (BanditName("shop", "other"), waits)):
                await create(store, name, having=having)
                await store.change_items(name, upserted=ITEMS, retired=[])
                await record(store, "rec-1", name=name)
                await record(store, "rec-2", name=name)
            await create(store, BanditName("another", "home"))
            overdue = BanditName("shop", "overdue")
            await create(store, overdue, having=settings(reward_wait_ms=1))
            await store.change_items(overdue, upserted=ITEMS, retired=[])
            await record(store, name=overdue)
            await stores.pass_time(1)
            assert (await store.measure("shop")).open_slates == 4  # that one ends as soon as somebody looks
            await store.delete_bandit(overdue)
            use = await store.measure("shop")
            assert (use.items, use.open_slates) == (2 * len(ITEMS), 4)
            await store.record_reward(NAME, "rec-1", 1.0)
            await store.change_items(NAME, upserted=[Item("fig")], retired=[ITEMS[0].item_id, ITEMS[1].item_id])
            after = await store.measure("shop")
            assert (after.items, after.open_slates) == (use.items - 1, 3)
            for number in range(3, 200):
                await record(store, f"rec-{number}")
            all_of_them = await store.measure("shop")
            assert all_of_them.log_bytes > use.log_bytes + 197 * 50
            each = [await store.measure_bandit(name) for name in (NAME, BanditName("shop", "other"), ABSENT)]
            assert tuple(map(sum, zip(*each, strict=True))) == all_of_them
            assert each[0].log_bytes > each[1].log_bytes > 0
            assert each[2] == TenantUse()
            await store.delete_bandit(NAME)
            await store.delete_bandit(BanditName("shop", "other"))
            assert await store.measure("shop") == TenantUse()

        run(stores, scenario)

    def test_tenants_are_listed_in_order_while_they_have_bandits(self, stores: Stores) -> None:
        async def scenario(store: Store) -> None:
            assert await store.list_tenants(after="", limit=5) == ()
            tenants = ["b-1", "a", "b", "B", "gone", "z9"]
            for tenant in tenants:
                await create(store, BanditName(tenant, "home"))
            await create(store, BanditName("a", "other"))
            await store.delete_bandit(BanditName("gone", "home"))
            known = sorted(set(tenants) - {"gone"}, key=str.encode)
            assert list(await store.list_tenants(after="", limit=99)) == known
            paged: list[str] = []
            while page := await store.list_tenants(after=paged[-1] if paged else "", limit=2):
                assert len(page) <= 2
                paged.extend(page)
            assert paged == known
            await create(store, BanditName("gone", "again"))
            assert "gone" in await store.list_tenants(after="", limit=99)

        run(stores, scenario)

    def test_a_tenant_that_creates_while_it_deletes_is_listed(self, stores: Stores) -> None:
        async def scenario(*connected: Store) -> None:
            for turn in range(20):
                old, new = BanditName("shop", f"b{turn}"), BanditName("shop", f"b{turn + 1}")
                await create(connected[0], old)
                await asyncio.gather(connected[0].delete_bandit(old), create(connected[1], new))
                assert await connected[2].list_tenants(after="", limit=9) == ("shop",)
                await connected[2].delete_bandit(new)
                assert await connected[2].list_tenants(after="", limit=9) == ()

        run(stores, scenario, connections=3)

    def test_a_quota_holds_against_many_at_once(self, stores: Stores) -> None:
        async def scenario(*connected: Store) -> None:
            names = [BanditName("shop", f"b{number}") for number in range(30)]
            attempts = [create(connected[i % 3], name, quota=5) for i, name in enumerate(names)]
            results = await asyncio.gather(*attempts, return_exceptions=True)
            refused = [result for result in results if isinstance(result, ExhaustedError)]
            assert len(refused) == 25
            assert len(await connected[0].list_bandits("shop", after="", limit=99)) == 5

        run(stores, scenario, connections=3)

    def test_one_of_many_creations_wins(self, stores: Stores) -> None:
        async def scenario(*connected: Store) -> None:
            made = await asyncio.gather(*(create(connected[i % 3], incarnation=f"i{i}") for i in range(30)))
            assert len(set(made)) == 1
            assert await whole_log(connected[0], NAME) != []
            assert [one.name for one in await connected[1].list_bandits("shop", after="", limit=9)] == [NAME]

        run(stores, scenario, connections=3)

    def test_bandits_are_listed_in_order_and_in_pages(self, stores: Stores) -> None:
        async def scenario(store: Store) -> None:
            ids = ["b-1", "a", "b", "b_1", "z9", "b-10", "B"]
            for bandit in ids:
                await create(store, BanditName("shop", bandit))
            await create(store, BanditName("shop-2", "other"))
            paged: list[str] = []
            while page := await store.list_bandits("shop", after=paged[-1] if paged else "", limit=2):
                assert len(page) <= 2
                assert list(page) == [await store.get_bandit(made.name) for made in page]
                paged.extend(made.name.bandit for made in page)
            assert paged == sorted(ids, key=str.encode)
            assert await store.list_bandits("nobody", after="", limit=5) == ()

        run(stores, scenario)

    def test_settings_change_with_the_revision(self, stores: Stores) -> None:
        async def scenario(store: Store) -> None:
            await create(store)
            changed = await store.update_settings(NAME, OVERDUE, revision=1)
            assert (changed.settings, changed.revision, changed.log_position) == (OVERDUE, 2, 2)
            assert changed == await store.get_bandit(NAME)
            assert (await whole_log(store, NAME))[-1].event == SettingsChanged(OVERDUE)
            back = await store.update_settings(NAME, SETTINGS, revision=2)
            assert (back.settings, back.revision) == (SETTINGS, 3)

        run(stores, scenario)

    def test_a_reset_happens_once_for_its_request_id(self, stores: Stores) -> None:
        async def scenario(store: Store) -> None:
            await create(store)
            before = await store.get_bandit(NAME)
            reset = await store.reset_bandit(NAME, request_id="one")
            assert reset == replace(before, log_position=2, revision=2) == await store.get_bandit(NAME)
            assert (await whole_log(store, NAME))[-1].event == BanditReset("one")
            assert await store.reset_bandit(NAME, request_id="one") == reset
            with pytest.raises(ConflictError, match="changed"):
                await store.update_settings(NAME, OVERDUE, revision=1)
            await store.reset_bandit(NAME, request_id="two")
            again = await store.reset_bandit(NAME, request_id="one")
            assert (again.log_position, again.revision) == (4, 4)
            lines, other = await archived(store, NAME), BanditName(NAME.tenant, "other")
            made = await store.finish_restore(other, await restore_lines(store, other, lines, at_once=100), quota=9)
            assert (made.log_position, made.revision) == (4, 4)

        run(stores, scenario)

    def test_an_event_is_passed_over_and_what_it_could_have_told_is_told_anew(self, stores: Stores) -> None:
        async def scenario(store: Store) -> None:
            await create(store)
            await store.change_items(NAME, upserted=ITEMS, retired=[])
            for one in ("one", "two"):
                await record(store, one)
            skip = skip_of(await store.get_bandit(NAME), 3)
            before = await whole_log(store, NAME)
            for stale in (
                replace(skip, revision=9),
                replace(skip, items_position=9),
                replace(skip, incarnation="another"),
            ):
                assert not await store.skip_event(NAME, stale)
            for position in (0, 1, 5):
                with pytest.raises(NotReadyError, match=f"no event {position} that can be passed over"):
                    await store.skip_event(NAME, replace(skip, position=position))
            with pytest.raises(NotFoundError):
                await store.skip_event(ABSENT, skip)
            assert await whole_log(store, NAME) == before
            stated = ItemsChanged(upserted=ITEMS, retired=("fig",)), SettingsChanged(SETTINGS)
            assert await store.skip_event(NAME, replace(skip, items=stated[0], settings=stated[1]))
            after = await store.get_bandit(NAME)
            assert (after.log_position, after.items_position, after.revision) == (6, 6, 2)
            passed_over = LoggedEvent(3, skip.at_ms, skip.event)
            log = await whole_log(store, NAME)
            assert log[:4] == [*before[:2], passed_over, before[3]]
            assert [logged.event for logged in log[4:]] == [stated[1], stated[0]]
            assert await store.skip_event(NAME, skip), "what was passed over stays so"
            assert await store.get_bandit(NAME) == after
            for start, limit in ((1, 9), (3, 1), (2, 2), (4, 9)):
                part = await store.read_log(NAME, start=start, limit=limit)
                assert part.events == tuple(log[start - 1 : start - 1 + limit])
                assert part.skipped == {3}
            assert await store.skip_event(NAME, skip_of(after, 4))
            assert (await store.read_log(NAME, start=1, limit=1)).skipped == {3, 4}

        run(stores, scenario)

    def test_a_bandit_that_is_brought_back_has_what_was_passed_over_in_its_log(self, stores: Stores) -> None:
        async def scenario(store: Store) -> None:
            await create(store)
            await store.change_items(NAME, upserted=ITEMS, retired=[])
            await record(store, "one")
            await store.skip_event(NAME, skip_of(await store.get_bandit(NAME), 3))
            lines, other = await archived(store, NAME), BanditName(NAME.tenant, "other")
            await store.finish_restore(other, await restore_lines(store, other, lines, at_once=100), quota=9)
            assert await whole_log(store, other) == await whole_log(store, NAME)
            assert (await store.read_log(other, start=1, limit=1)).skipped == frozenset()

        run(stores, scenario)

    def test_a_prior_is_in_the_event_that_its_settings_come_with(self, stores: Stores) -> None:
        async def scenario(store: Store) -> None:
            believed = replace(SETTINGS, prior_study="tastes", prior_digest="d1")
            made = await store.create_bandit(NAME, believed, incarnation="birth", quota=9, prior=PRIOR)
            assert (await whole_log(store, NAME))[-1].event == BanditCreated(believed, PRIOR)
            again = await store.create_bandit(NAME, believed, incarnation="other", quota=9, prior=PRIOR)
            assert again == made == await store.get_bandit(NAME)
            newer = replace(PRIOR, answers=61)
            changed = await store.update_settings(NAME, replace(believed, prior_digest="d2"), revision=1, prior=newer)
            assert (changed.settings.prior_study, changed.settings.prior_digest) == ("tastes", "d2")
            log = await whole_log(store, NAME)
            assert log[-1].event == SettingsChanged(changed.settings, newer)
            assert await store.update_settings(NAME, changed.settings, revision=1, prior=newer) == changed
            await store.update_settings(NAME, SETTINGS, revision=2)
            assert (await whole_log(store, NAME))[-1].event == SettingsChanged(SETTINGS)

        run(stores, scenario)

    def test_one_of_many_updates_wins(self, stores: Stores) -> None:
        async def scenario(*connected: Store) -> None:
            await create(connected[0])
            wanted = [settings(uniform_share=share / 100) for share in range(20, 50)]
            results = await asyncio.gather(
                *(connected[i % 3].update_settings(NAME, one, revision=1) for i, one in enumerate(wanted)),
                return_exceptions=True,
            )
            assert sum(isinstance(result, ConflictError) for result in results) == len(wanted) - 1
            kept = await connected[0].get_bandit(NAME)
            assert (kept.revision, kept.log_position) == (2, 2)
            assert kept in results

        run(stores, scenario, connections=3)

    def test_items_are_listed_by_id_without_retired_ones(self, stores: Stores) -> None:
        async def scenario(store: Store) -> None:
            await create(store)
            assert await store.list_items(NAME) == ()
            changed = await store.change_items(NAME, upserted=ITEMS, retired=[])
            assert (changed.items_position, changed.log_position) == (2, 2)
            await store.change_items(NAME, upserted=[], retired=["apple"])
            await store.change_items(NAME, upserted=[Item("fig"), Item("plum")], retired=["pear"])
            assert await store.list_items(NAME) == (Item("fig"), Item("plum"))

        run(stores, scenario)

    def test_the_log_has_only_what_differs_between_items(self, stores: Stores) -> None:
        async def scenario(store: Store) -> None:
            await create(store)
            await store.change_items(NAME, upserted=ITEMS, retired=[])
            plum = Item("plum", available=True)
            await store.change_items(NAME, upserted=[Item("apple"), plum, Item("fig")], retired=["pear"])
            unchanged = await store.change_items(NAME, upserted=[Item("apple")], retired=["pear"])
            assert unchanged.log_position == unchanged.items_position == 3
            assert [logged.event for logged in await whole_log(store, NAME)][1:] == [
                ItemsChanged(upserted=ITEMS),
                ItemsChanged(upserted=(plum, Item("fig")), retired=("pear",)),
            ]

        run(stores, scenario)

    def test_features_of_items_are_kept_as_they_were_sent(self, stores: Stores) -> None:
        values = {
            "price": 2.5,
            "new": True,
            "kind": 'a "b\n” \\é',
            "tags": ("x", "y z"),
            "none": (),
            "look": (0.0, -1e300),
        }
        priced = Item("fig", available=False, features=Features.of(values))
        dearer = replace(priced, features=Features.of(values | {"price": 3.0}))

        async def scenario(store: Store) -> None:
            await create(store)
            for item in (priced, priced, dearer, Item("fig", available=False)):
                await store.change_items(NAME, upserted=[item], retired=[])
                assert await store.list_items(NAME) == (item,)
            assert [logged.event for logged in await whole_log(store, NAME)][1:] == [
                ItemsChanged(upserted=(item,)) for item in (priced, dearer, Item("fig", available=False))
            ]

        run(stores, scenario)

    def test_a_mask_changes_what_it_names_and_the_log_has_whole_items(self, stores: Stores) -> None:
        priced = Item("fig", features=Features.of({"price": 2.5, "kind": "fruit"}))
        stock = ItemMask(features=frozenset(), creates=False)
        price = ItemMask(availability=False, features=frozenset({"price"}), creates=True)
        dearer = Features.of({"price": 3.0, "kind": "dried"})

        async def scenario(store: Store) -> None:
            await create(store)
            await store.change_items(NAME, upserted=[priced, Item("pear")], retired=[])
            await store.change_items(
                NAME, upserted=[Item("fig", available=False), Item("pear")], retired=[], mask=stock
            )
            given = Item("fig", features=dearer), Item("kiwi", available=False, features=dearer)
            await store.change_items(NAME, upserted=given, retired=[], mask=price)
            both = Item("fig", available=False, features=Features.of({"price": 3.0, "kind": "fruit"}))
            assert await store.list_items(NAME) == (both, given[1], Item("pear"))
            assert [logged.event for logged in await whole_log(store, NAME)][2:] == [
                ItemsChanged(upserted=(replace(priced, available=False),)),
                ItemsChanged(upserted=(both, given[1])),
            ]
            await store.change_items(NAME, upserted=[Item("fig")], retired=[], mask=price)
            assert (await store.list_items(NAME))[0] == replace(both, features=Features.of({"kind": "fruit"}))

        run(stores, scenario)

    def test_masks_that_name_other_parts_at_once_undo_nothing_of_each_other(self, stores: Stores) -> None:
        names = [f"f{number}" for number in range(6)]

        async def scenario(*connected: Store) -> None:
            await create(connected[0])
            await connected[0].change_items(NAME, upserted=[Item("fig")], retired=[])
            await asyncio.gather(
                *(
                    connected[number % 3].change_items(
                        NAME,
                        upserted=[Item("fig", available=False, features=Features.of({name: 1.0}))],
                        retired=[],
                        mask=ItemMask(availability=number == 0, features=frozenset({name}), creates=False),
                    )
                    for number, name in enumerate(names)
                )
            )
            [item] = await connected[0].list_items(NAME)
            assert item == Item("fig", available=False, features=Features.of(dict.fromkeys(names, 1.0)))

        run(stores, scenario, connections=3)

    def test_items_named_twice_change_in_the_order_given(self, stores: Stores) -> None:
        async def scenario(store: Store) -> None:
            await create(store)
            shown, hidden = Item("fig"), Item("fig", available=False)
            await store.change_items(NAME, upserted=[shown, hidden, hidden, Item("kiwi")], retired=["kiwi", "kiwi"])
            assert await store.list_items(NAME) == (Item("fig", available=False),)
            assert (await whole_log(store, NAME))[-1].event == ItemsChanged(
                upserted=(shown, hidden, Item("kiwi")), retired=("kiwi",)
            )

        run(stores, scenario)

    def test_retired_items_leave_their_capacity_to_others(self, stores: Stores) -> None:
        async def scenario(store: Store) -> None:
            await create(store, having=settings(item_capacity=2))
            await store.change_items(NAME, upserted=[Item("a"), Item("b")], retired=[])
            with pytest.raises(ExhaustedError, match="room for 2 items"):
                await store.change_items(NAME, upserted=[Item("c")], retired=["a"])
            await store.change_items(NAME, upserted=[], retired=["a"])
            await store.change_items(NAME, upserted=[Item("c", available=False)], retired=[])
            with pytest.raises(ExhaustedError, match="room for 2 items"):
                await store.change_items(NAME, upserted=[Item("d")], retired=[])
            raised = replace((await store.get_bandit(NAME)).settings, item_capacity=3)
            await store.update_settings(NAME, raised, revision=1)
            await store.change_items(NAME, upserted=[Item("d")], retired=[])
            assert await store.list_items(NAME) == (Item("b"), Item("c", available=False), Item("d"))

        run(stores, scenario)

    def test_items_change_where_there_are_more_than_new_settings_have_capacity_for(self, stores: Stores) -> None:
        async def scenario(store: Store) -> None:
            await create(store, having=settings(item_capacity=3))
            await store.change_items(NAME, upserted=[Item("a"), Item("b"), Item("c")], retired=[])
            await store.update_settings(NAME, settings(item_capacity=2), revision=1)
            await store.change_items(NAME, upserted=[Item("a", available=False)], retired=[])
            with pytest.raises(ExhaustedError, match="room for 2 items"):
                await store.change_items(NAME, upserted=[Item("d")], retired=[])
            assert await store.list_items(NAME) == (Item("a", available=False), Item("b"), Item("c"))

        run(stores, scenario)

    def test_ids_of_many_retired_items_are_never_used_again(self, stores: Stores) -> None:
        """Also when all of them have long been without any other record, and none that is new is taken for one."""
        gone = [f"gone-{n}-é" for n in range(3000)]

        async def scenario(store: Store) -> None:
            await create(store, having=settings(item_capacity=1000))
            for start in range(0, len(gone), 1000):
                part = gone[start : start + 1000]
                await store.change_items(NAME, upserted=[Item(one) for one in part], retired=[])
                await store.change_items(NAME, upserted=[], retired=part)
            before = await dump(store, NAME)
            for one in (*gone[::97], gone[-1]):
                with pytest.raises(ConflictError) as caught:
                    await store.change_items(NAME, upserted=[Item("new"), Item(one)], retired=[])
                assert caught.value.reason == "ITEM_RETIRED"
            await store.change_items(NAME, upserted=[], retired=gone)
            assert await dump(store, NAME) == before
            await store.change_items(NAME, upserted=[Item(f"new-{n}") for n in range(1000)], retired=[])

        run(stores, scenario)

    def test_ids_are_opaque_text(self, stores: Stores) -> None:
        odd = 'a/"b"\\ {c} é 漢 \u007f %s'

        async def scenario(store: Store) -> None:
            name = BanditName(tenant="sh{o}p/x", bandit="h}o:m%e")
            made = await create(store, name)
            assert made.name == name
            await store.change_items(name, upserted=[Item(odd)], retired=[odd])
            await record(store, odd, name=name)
            await store.update_settings(name, OVERDUE, revision=1)
            await record(store, f"{odd}2", name=name)
            assert (await store.record_reward(name, odd, 1.0)).answer.outcome == RewardOutcome.ACCEPTED
            assert await expired(store, name) == 1
            events = [logged.event for logged in await whole_log(store, name)]
            assert events[1] == ItemsChanged(upserted=(Item(odd),), retired=(odd,))
            assert events[-2:] == [
                Rewarded(odd, 1.0, await shown(store, odd, name=name)),
                Expired(f"{odd}2", -0.5, await shown(store, f"{odd}2", name=name)),
            ]
            assert [one.name for one in await store.list_bandits(name.tenant, after="", limit=5)] == [name]

        run(stores, scenario)

    def test_a_recommendation_is_recorded_with_its_deadline(self, stores: Stores) -> None:
        async def scenario(store: Store) -> None:
            await create(store)
            given = replace(recommendation(), deadline_ms=17, degraded=False)
            asked = request(candidates=("apple", "pear"))
            written = await store.record_recommendation(NAME, asked, given, incarnation="first", items_position=0)
            outcome = written.answer
            logged = (await whole_log(store, NAME))[-1]
            dated = replace(given, deadline_ms=logged.at_ms + HOUR_MS)
            assert (outcome.status, outcome.recommendation, outcome.position) == (RecordStatus.RECORDED, dated, 2)
            assert logged.event == Recommended(request=asked, recommendation=dated)
            assert (await store.get_bandit(NAME)).pending == 1

        run(stores, scenario)

    def test_a_recorded_request_is_answered_as_before(self, stores: Stores) -> None:
        async def scenario(store: Store) -> None:
            await create(store)
            asked, first = request(context=(0.0, 1.0)), recommendation()
            assert await store.find_recommendation(NAME, asked, "rec-1") is None
            given = (
                (await store.record_recommendation(NAME, asked, first, incarnation="first", items_position=0)).answer
            ).recommendation
            await store.record_reward(NAME, "rec-1", 1.0)
            await store.change_items(NAME, upserted=ITEMS, retired=[])
            same = replace(asked, request_id="another id", context=(-0.0, 1.0))
            written = await store.record_recommendation(
                NAME, same, recommendation(mean=5.0), incarnation="other", items_position=0
            )
            again = written.answer
            assert (again.status, again.recommendation, again.position) == (RecordStatus.REPEATED, given, 0)
            assert await store.find_recommendation(NAME, same, "rec-1") == given

        run(stores, scenario)

    def test_slates_that_come_together_are_recorded_each_by_itself(self, stores: Stores) -> None:
        async def scenario(store: Store) -> None:
            await create(store)
            known = (await store.change_items(NAME, upserted=ITEMS, retired=[])).items_position
            await store.record_recommendation(
                NAME, request("b"), recommendation("rec-b"), incarnation="first", items_position=known
            )
            first, again = (
                NewSlate(request("a"), recommendation("rec-a")),
                NewSlate(request("b"), recommendation("rec-b")),
            )
            other = NewSlate(request("b", context=(9.0,)), recommendation("rec-b"))
            twice, last = (
                NewSlate(request("a"), recommendation("rec-a")),
                NewSlate(request("c"), recommendation("rec-c")),
            )
            for alone in (again, other):  # a store that presumes finds out by itself
                await store.find_recommendation(NAME, request("b"), alone.recommendation.recommendation_id)
            written = await store.record_recommendations(
                NAME, [first, again, other, twice, last], incarnation="first", items_position=known
            )
            made, same, wrong, doubled, end = written.answer
            assert isinstance(made, RecordOutcome)
            assert isinstance(end, RecordOutcome)
            assert (made.status, made.position) == (RecordStatus.RECORDED, known + 2)
            assert (end.status, end.position) == (RecordStatus.RECORDED, known + 3)
            assert [one.events[0].position for one in written.appended if one] == [known + 2, known + 3]
            for one in (same, wrong, doubled):  # none of them is recorded: what it is is found out by itself
                assert isinstance(one, ConflictError) or one.status is not RecordStatus.RECORDED
            record = await store.get_bandit(NAME)
            assert (record.log_position, record.pending) == (known + 3, 3)
            assert await store.find_recommendation(NAME, request("a"), "rec-a") == made.recommendation
            before = await dump(store, NAME)
            for incarnation, position in (("other", known), ("first", known - 1)):
                stale = await store.record_recommendations(
                    NAME,
                    [NewSlate(request("d"), recommendation("rec-d"))],
                    incarnation=incarnation,
                    items_position=position,
                )
                assert stale.answer == [RecordOutcome(RecordStatus.STALE)]
                assert stale.appended == ()
            assert await dump(store, NAME) == before
            with pytest.raises(NotFoundError):
                await store.record_recommendations(ABSENT, [first], incarnation="first", items_position=known)

        run(stores, scenario)

    def test_a_request_whose_slate_has_ended_is_answered_as_before_while_the_log_has_it(self, stores: Stores) -> None:
        async def again(store: Store, asked: RecommendationRequest | None = None) -> Recommendation | None:
            asked = asked or request()
            written = await store.record_recommendation(
                NAME, asked, recommendation(mean=5.0), incarnation="first", items_position=0
            )
            outcome = written.answer
            found = await store.find_recommendation(NAME, asked, "rec-1")
            assert found == outcome.recommendation
            return found

        async def scenario(store: Store) -> None:
            await create(store)
            await record(store, "other")
            given = (await record(store)).recommendation
            await store.record_reward(NAME, "rec-1", 1.0)
            await store.save_snapshot(NAME, Snapshot(2, b"x"), incarnation="first")
            await store.save_snapshot(NAME, Snapshot(4, b"x"), incarnation="first", behind=2)
            assert await again(store) == given, "its event is the first one that is left"
            await record(store, "more")
            await store.save_snapshot(NAME, Snapshot(5, b"x"), incarnation="first", behind=4)
            before = await dump(store, NAME)
            with pytest.raises(NotReadyError) as gone:
                await again(store)
            assert gone.value.reason == "SLATE_GONE"
            for call in (again, lambda store, asked: store.find_recommendation(NAME, asked, "rec-1")):
                with pytest.raises(ConflictError) as reused:
                    await call(store, request(context=(7.0, 7.0)))
                assert reused.value.reason == "REQUEST_ID_REUSED"
            assert await dump(store, NAME) == before
            assert (await store.record_reward(NAME, "rec-1", 1.0)).answer.outcome == RewardOutcome.DUPLICATE

        run(stores, scenario)

    def test_no_candidates_are_not_the_same_as_empty_ones(self, stores: Stores) -> None:
        async def scenario(store: Store) -> None:
            await create(store)
            await store.record_recommendation(NAME, request(), recommendation(), incarnation="first", items_position=0)
            with pytest.raises(ConflictError):
                await store.find_recommendation(NAME, request(candidates=()), "rec-1")

        run(stores, scenario)

    @pytest.mark.parametrize(("incarnation", "items_position"), [("first", 0), ("other", 2), ("first", 3)])
    def test_a_decision_that_was_overtaken_is_stale(
        self, stores: Stores, incarnation: str, items_position: int
    ) -> None:
        async def scenario(store: Store) -> None:
            await create(store)
            await store.change_items(NAME, upserted=ITEMS, retired=[])
            before = await dump(store, NAME)
            outcome = await record_at(store, incarnation=incarnation, items_position=items_position)
            assert (outcome.status, outcome.recommendation, outcome.position) == (RecordStatus.STALE, None, 0)
            assert await dump(store, NAME) == before
            assert await store.find_recommendation(NAME, request(), "rec-1") is None
            fresh = await record_at(store, incarnation="first", items_position=2)
            assert fresh.status == RecordStatus.RECORDED

        run(stores, scenario)

    def test_no_recommendation_comes_after_items_it_did_not_know(self, stores: Stores) -> None:
        decided: list[tuple[int, RecordOutcome]] = []
        changed = asyncio.Event()

        async def record_knowing(store: Store, number: int, known: int) -> RecordOutcome:
            written = await store.record_recommendation(
                NAME, request(), recommendation(f"rec-{number}"), incarnation="first", items_position=known
            )
            return written.answer

        async def decide(store: Store, number: int) -> None:
            """Decide, and again when overtaken, as a caller does; each other one is overtaken at first."""
            known = (await store.get_bandit(NAME)).items_position
            if number % 2:
                await changed.wait()
            while (outcome := await record_knowing(store, number, known)).status == RecordStatus.STALE:
                decided.append((known, outcome))
                known = (await store.get_bandit(NAME)).items_position
            decided.append((known, outcome))

        async def churn(store: Store) -> None:
            """Change an item again and again, as decisions are made."""
            for turn in range(15):
                await until_async(lambda turn=turn: len(decided) >= turn, what="more was decided")
                await store.change_items(NAME, upserted=[Item("apple", available=turn % 2 == 0)], retired=[])
                changed.set()

        async def scenario(*connected: Store) -> None:
            await create(connected[0])
            deciding = [decide(connected[i % 2], i) for i in range(40)]
            await asyncio.gather(*deciding, churn(connected[2]))
            changes = [e.position for e in await whole_log(connected[0], NAME) if isinstance(e.event, ItemsChanged)]
            recorded = [(known, one.position) for known, one in decided if one.status == RecordStatus.RECORDED]
            assert len(recorded) == 40
            assert len(decided) > 40
            for known, position in recorded:
                assert max((change for change in changes if change < position), default=0) == known

        run(stores, scenario, connections=3)

    def test_a_reward_in_time_is_learned_once(self, stores: Stores) -> None:
        async def scenario(store: Store) -> None:
            await create(store)
            await record(store)
            assert (await store.record_reward(NAME, "rec-1", 0.1 + 0.2)).answer.outcome == RewardOutcome.ACCEPTED
            written = await store.record_reward(NAME, "rec-1", 0.30000000000000004)
            assert written.answer.outcome == RewardOutcome.DUPLICATE
            assert (await whole_log(store, NAME))[-1].event == Rewarded(
                "rec-1", 0.30000000000000004, await shown(store)
            )
            now = await store.get_bandit(NAME)
            assert (now.log_position, now.pending, now.late_rewards) == (3, 0, 0)

        run(stores, scenario)

    def test_a_receipt_has_the_place_of_the_reward_in_the_log(self, stores: Stores) -> None:
        async def scenario(store: Store) -> None:
            await create(store)
            for key in ("rec-1", "rec-2"):
                await record(store, key)
            for key in ("rec-2", "rec-1"):
                receipt = (await store.record_reward(NAME, key, 1.0)).answer
                assert receipt == RewardReceipt(RewardOutcome.ACCEPTED, (await store.get_bandit(NAME)).log_position)
                [logged] = (await store.read_log(NAME, start=receipt.log_position, limit=9)).events
                assert logged.event == Rewarded(key, 1.0, await shown(store, key))
            await record(store, "rec-3")
            assert (await store.record_reward(NAME, "rec-2", 1.0)).answer == RewardReceipt(RewardOutcome.DUPLICATE, 4)
            await store.update_settings(NAME, OVERDUE, revision=1)
            await record(store, "late")
            for outcome in (RewardOutcome.LATE, RewardOutcome.LATE):
                assert (await store.record_reward(NAME, "late", 1.0)).answer == RewardReceipt(outcome, 0)

        run(stores, scenario)

    @pytest.mark.parametrize(
        ("value", "equal"),
        [(0.0, -0.0), (-0.0, 0.0), (1.0, 1), (5e-324, 5e-324), (1.7976931348623157e308, 1.7976931348623157e308)],
    )
    def test_equal_rewards_are_duplicates_however_written(self, stores: Stores, value: float, equal: float) -> None:
        async def scenario(store: Store) -> None:
            await create(store)
            await record(store)
            assert (await store.record_reward(NAME, "rec-1", value)).answer.outcome == RewardOutcome.ACCEPTED
            assert (await store.record_reward(NAME, "rec-1", equal)).answer.outcome == RewardOutcome.DUPLICATE
            assert (await whole_log(store, NAME))[-1].event == Rewarded("rec-1", value, await shown(store))

        run(stores, scenario)

    @pytest.mark.parametrize("clamp", [True, False])
    @pytest.mark.parametrize(("value", "end"), [(-1.0 / 3, 0.0), (5.0 + 1e-9, 5.0), (1e300, 5.0)])
    def test_a_reward_outside_the_range_is_refused_or_clamped(
        self, stores: Stores, value: float, end: float, *, clamp: bool
    ) -> None:
        taken = RewardRange(-0.0, 5.0, clamp=clamp)

        async def scenario(store: Store) -> None:
            await create(store, having=settings(reward_range=taken))
            for key, inside in (("low", 0.0), ("high", 5.0), ("outside", value)):
                await record(store, key)
                before = await dump(store, NAME)
                if key == "outside" and not clamp:
                    with pytest.raises(InvalidArgumentError, match=r"from 0\.0 to 5\.0") as refused:
                        await store.record_reward(NAME, key, value)
                    assert refused.value.field == "value"
                    assert await dump(store, NAME) == before
                    continue
                posted = value if key == "outside" else inside
                assert (await store.record_reward(NAME, key, posted)).answer.outcome == RewardOutcome.ACCEPTED
                learned = end if key == "outside" else inside
                assert (await whole_log(store, NAME))[-1].event == Rewarded(key, learned, await shown(store, key))
            assert (await store.get_bandit(NAME)).clamped_rewards == clamp
            if clamp:
                assert (await store.record_reward(NAME, "outside", value)).answer.outcome == RewardOutcome.DUPLICATE
                with pytest.raises(ConflictError):
                    await store.record_reward(NAME, "outside", 2 * value)
            assert (await store.get_bandit(NAME)).clamped_rewards == clamp

        run(stores, scenario)

    def test_a_range_changes_what_is_taken_from_then_on(self, stores: Stores) -> None:
        async def scenario(store: Store) -> None:
            await create(store)
            for key in ("before", "after"):
                await record(store, key)
            await store.record_reward(NAME, "before", 7.0)
            await store.update_settings(NAME, settings(reward_range=RewardRange(0.0, 1.0)), revision=1)
            assert (await store.record_reward(NAME, "before", 7.0)).answer.outcome == RewardOutcome.DUPLICATE
            with pytest.raises(InvalidArgumentError):
                await store.record_reward(NAME, "after", 7.0)
            await store.update_settings(NAME, SETTINGS, revision=2)
            assert (await store.record_reward(NAME, "after", 7.0)).answer.outcome == RewardOutcome.ACCEPTED

        run(stores, scenario)

    @pytest.mark.parametrize("noticed", [True, False])
    def test_a_reward_after_its_deadline_is_late(self, stores: Stores, *, noticed: bool) -> None:
        async def scenario(store: Store) -> None:
            await create(store, having=OVERDUE)
            await record(store)
            if noticed:
                assert await expired(store) == 1
            for _ in range(2):
                assert (await store.record_reward(NAME, "rec-1", 3.0)).answer == RewardReceipt(RewardOutcome.LATE)
            assert await expired(store) == 0
            assert (await store.get_bandit(NAME)).late_rewards == 1
            assert [e.event for e in await whole_log(store, NAME)][2:] == [Expired("rec-1", -0.5, await shown(store))]
            now = await store.get_bandit(NAME)
            assert (now.log_position, now.pending, now.late_rewards) == (3, 0, 1)

        run(stores, scenario)

    def test_a_reward_is_in_time_until_the_deadline(self, stores: Stores) -> None:
        async def scenario(store: Store) -> None:
            await create(store, having=settings(reward_wait_ms=400))
            await record(store, "early")
            await record(store, "tardy")
            await stores.pass_time(399)
            assert (await store.record_reward(NAME, "early", 1.0)).answer.outcome == RewardOutcome.ACCEPTED
            assert await expired(store) == 0
            await stores.pass_time(1)
            assert (await store.record_reward(NAME, "tardy", 1.0)).answer.outcome == RewardOutcome.LATE

        run(stores, scenario)

    @pytest.mark.parametrize("final", [True, False])
    @pytest.mark.parametrize("kind", COME_TO)
    def test_several_rewards_are_learned_together(self, stores: Stores, kind: Aggregation, *, final: bool) -> None:
        async def scenario(store: Store) -> None:
            having = settings(reward_wait_ms=HOUR_MS if final else 500, default_reward=7.0, reward_aggregation=kind)
            await create(store, having=having)
            await record(store)
            await record(store, "z-other")
            then = await shown(store)
            for number, value in enumerate(SEVERAL):
                last = final and number == len(SEVERAL) - 1
                receipt = (await store.record_reward(NAME, "rec-1", value, reward_id=f"r {number}", final=last)).answer
                assert receipt == RewardReceipt(RewardOutcome.ACCEPTED, 4 + number)
            assert (await store.get_bandit(NAME)).pending == (1 if final else 2)
            if not final:
                await stores.pass_time(500)
                assert await expired(store) == 2
            collected = [RewardCollected("rec-1", f"r {number}", value) for number, value in enumerate(SEVERAL)]
            events = [logged.event for logged in await whole_log(store, NAME)][3:]
            assert events[: len(collected) - final] == collected[: len(collected) - final]
            assert events[len(collected) - final] == Rewarded("rec-1", COME_TO[kind], then)
            assert (await store.record_reward(NAME, "rec-1", 0.1, reward_id="r 0")).answer.log_position == 4
            again = (await store.record_reward(NAME, "rec-1", 0.3, reward_id="r 3", final=final)).answer
            assert again == RewardReceipt(RewardOutcome.DUPLICATE, 7)

        run(stores, scenario)

    def test_a_correction_needs_a_model_that_knows_the_one_before(self, stores: Stores) -> None:
        async def scenario(store: Store) -> None:
            await create(store)
            await record(store)
            position = (await store.record_reward(NAME, "rec-1", 1.0)).answer.log_position
            known = Correctable("first", 1, position, position + 9)
            assert await store.correct_reward(NAME, "rec-1", 2.0, known=known) is not None
            assert await store.correct_reward(NAME, "rec-1", 3.0, known=known) is None
            newer = replace(known, version=position + 1)
            assert await store.correct_reward(NAME, "rec-1", 3.0, known=newer) is not None

        run(stores, scenario)

    def test_several_rewards_have_ids_and_an_end(self, stores: Stores) -> None:
        async def scenario(store: Store) -> None:
            await create(
                store, having=settings(reward_aggregation=Aggregation.SUM, reward_range=RewardRange(-1.0, 1.0))
            )
            await record(store)
            await store.record_reward(NAME, "rec-1", 0.25, reward_id="click")
            before = await dump(store, NAME)
            failing = {
                "reward_id": (InvalidArgumentError, lambda: store.record_reward(NAME, "rec-1", 0.5)),
                "value": (InvalidArgumentError, lambda: store.record_reward(NAME, "rec-1", 1.5, reward_id="order")),
                "REWARD_EXISTS": (ConflictError, lambda: store.record_reward(NAME, "rec-1", 0.5, reward_id="click")),
            }
            for named, (kind, call) in failing.items():
                with pytest.raises(kind) as refused:
                    await call()
                assert named in {getattr(refused.value, "field", ""), getattr(refused.value, "reason", "")}
            assert await dump(store, NAME) == before
            ended = (await store.record_reward(NAME, "rec-1", 0.25, reward_id="click", final=True)).answer
            assert ended == RewardReceipt(RewardOutcome.ACCEPTED, 4)
            assert (await whole_log(store, NAME))[-1].event == Rewarded("rec-1", 0.25, await shown(store))
            with pytest.raises(ConflictError) as final:
                await store.record_reward(NAME, "rec-1", 0.5, reward_id="order")
            assert final.value.reason == "REWARD_FINAL"

        run(stores, scenario)

    def test_each_of_many_rewards_has_its_outcome(self, stores: Stores) -> None:
        async def scenario(store: Store) -> None:
            await create(
                store, having=settings(reward_aggregation=Aggregation.SUM, reward_range=RewardRange(-1.0, 1.0))
            )
            await record(store)
            await record(store, "z-other")
            posted = [
                (Reward("rec-1", 0.5, "click"), RewardReceipt(RewardOutcome.ACCEPTED, 4)),
                (Reward("nil", 0.5, "click"), NotFoundError),
                (Reward("rec-1", 0.25, "click"), ConflictError),
                (Reward("rec-1", 1.5, "order"), InvalidArgumentError),
                (Reward("z-other", 0.25, "click", final=True), RewardReceipt(RewardOutcome.ACCEPTED, 5)),
                (Reward("rec-1", 0.5, "click", final=True), RewardReceipt(RewardOutcome.ACCEPTED, 6)),
                (Reward("rec-1", 0.5, "click"), RewardReceipt(RewardOutcome.DUPLICATE, 6)),
                (Reward("z-other", 0.0, "order"), ConflictError),
            ]
            answers = (await store.record_rewards(NAME, [reward for reward, _ in posted])).answer
            assert [type(one) if isinstance(one, Exception) else one for one in answers] == [
                outcome for _, outcome in posted
            ]
            assert [type(one) for one in (await store.record_rewards(ABSENT, [Reward("rec-1", 1.0)])).answer] == [
                NotFoundError
            ]
            assert (await store.record_rewards(NAME, [])).answer == []
            events = [logged.event for logged in await whole_log(store, NAME)][3:]
            assert events == [
                RewardCollected("rec-1", "click", 0.5),
                Rewarded("z-other", 0.25, await shown(store, "z-other")),
                Rewarded("rec-1", 0.5, await shown(store)),
            ]
            before = await dump(store, NAME)
            with pytest.raises(InvalidArgumentError):
                await store.record_rewards(NAME, [Reward("rec-1", 1.0, "order"), Reward("rec-1", math.nan, "sale")])
            assert await dump(store, NAME) == before

        run(stores, scenario)

    def test_a_recommendation_has_a_bound_on_its_rewards(self, stores: Stores) -> None:
        async def scenario(store: Store) -> None:
            await create(store, having=settings(reward_aggregation=Aggregation.MAX))
            await record(store)
            for number in range(MOST_REWARDS):
                await store.record_reward(NAME, "rec-1", 1.0, reward_id=f"{number}")
            before = await dump(store, NAME)
            with pytest.raises(ExhaustedError) as full:
                await store.record_reward(NAME, "rec-1", 1.0, reward_id="more", final=True)
            assert (full.value.reason, full.value.retry_after) == ("REWARD_COUNT", None)
            assert await dump(store, NAME) == before
            written = await store.record_reward(NAME, "rec-1", 1.0, reward_id="0")
            assert written.answer.outcome is RewardOutcome.DUPLICATE

        run(stores, scenario)

    @pytest.mark.parametrize("noticed", [True, False])
    def test_a_late_one_of_several_is_counted_and_not_learned(self, stores: Stores, *, noticed: bool) -> None:
        async def scenario(store: Store) -> None:
            await create(store, having=settings(reward_wait_ms=300, reward_aggregation=Aggregation.SUM))
            await record(store)
            await record(store, "z-none")
            await store.record_reward(NAME, "rec-1", 1.0, reward_id="click")
            await stores.pass_time(300)
            if noticed:
                assert await expired(store) == 2
            for key in ("rec-1", "z-none"):
                for outcome in (RewardOutcome.LATE, RewardOutcome.LATE):
                    receipt = (await store.record_reward(NAME, key, 5.0, reward_id="order", final=True)).answer
                    assert receipt == RewardReceipt(outcome, 0)
            assert await expired(store) == 0
            ends = [logged.event for logged in await whole_log(store, NAME)][4:]
            assert ends == [Rewarded("rec-1", 1.0, await shown(store)), Expired("z-none", None, None)]
            assert (await store.get_bandit(NAME)).late_rewards == 2

        run(stores, scenario)

    def test_an_aggregation_that_changes_holds_for_what_is_open(self, stores: Stores) -> None:
        async def scenario(store: Store) -> None:
            await create(store, having=settings(reward_aggregation=Aggregation.SUM))
            await record(store)
            for number, value in enumerate((1.0, 2.0)):
                await store.record_reward(NAME, "rec-1", value, reward_id=f"{number}")
            await store.update_settings(NAME, SETTINGS, revision=1)
            assert (await store.record_reward(NAME, "rec-1", 4.0)).answer.outcome is RewardOutcome.ACCEPTED
            assert (await whole_log(store, NAME))[-1].event == Rewarded("rec-1", 1.0, await shown(store))
            await record(store, "rec-2")
            await store.record_reward(NAME, "rec-2", 3.0, reward_id="not looked at")
            with pytest.raises(ConflictError):
                await store.record_reward(NAME, "rec-2", 4.0, reward_id="nor this")

        run(stores, scenario)

    def test_what_is_not_activated_is_not_pending_and_lapses(self, stores: Stores) -> None:
        async def scenario(store: Store) -> None:
            await create(store, having=settings(reward_wait_ms=300, default_reward=0.5, requires_activation=True))
            await record(store, "shown")
            await record(store, "unseen")
            assert (await store.get_bandit(NAME)).pending == 0
            for outcome, position in ((ActivationOutcome.ACTIVATED, 4), (ActivationOutcome.DUPLICATE, 0)):
                assert (await store.activate(NAME, "shown")).answer == ActivationReceipt(outcome, position)
                assert (await store.get_bandit(NAME)).pending == 1
            then = await shown(store, "shown")
            assert (await whole_log(store, NAME))[-1].event == Activated("shown", then, instead=False)
            await stores.pass_time(300)
            assert await expired(store) == 2
            assert (await store.activate(NAME, "unseen")).answer == ActivationReceipt(ActivationOutcome.LATE)
            assert (await store.activate(NAME, "shown", ("pear", "apple"))).answer == ActivationReceipt(
                ActivationOutcome.DUPLICATE
            )
            ends = [logged.event for logged in await whole_log(store, NAME)][4:]
            assert ends == [Expired("shown", 0.5, then), Lapsed("unseen")]
            assert (await store.get_bandit(NAME)).pending == 0
            for outcome in (RewardOutcome.LATE, RewardOutcome.LATE):
                assert (await store.record_reward(NAME, "unseen", 1.0)).answer.outcome is outcome
            assert (await store.get_bandit(NAME)).log_position == 6

        run(stores, scenario)

    def test_a_reward_activates(self, stores: Stores) -> None:
        async def scenario(store: Store) -> None:
            kind = Aggregation.SUM
            await create(store, having=settings(requires_activation=True, reward_aggregation=kind))
            await record(store)
            await store.record_reward(NAME, "rec-1", 1.0, reward_id="a")
            assert (await store.get_bandit(NAME)).pending == 1
            await store.record_reward(NAME, "rec-1", 2.0, reward_id="b", final=True)
            then = await shown(store)
            assert [logged.event for logged in await whole_log(store, NAME)][2:] == [
                Activated("rec-1", then, instead=False),
                RewardCollected("rec-1", "a", 1.0),
                Rewarded("rec-1", 3.0, then),
            ]
            assert (await store.activate(NAME, "rec-1")).answer == ActivationReceipt(ActivationOutcome.DUPLICATE)
            assert (await store.get_bandit(NAME)).pending == 0

        run(stores, scenario)

    def test_what_was_shown_instead_is_what_its_reward_is_for(self, stores: Stores) -> None:
        odd = 'a "b" \\ %d é'

        async def scenario(store: Store) -> None:
            await create(store, having=settings(requires_activation=True))
            await store.change_items(NAME, upserted=[*ITEMS, Item(odd), Item("gone")], retired=["gone"])
            await record(store)
            before = await dump(store, NAME)
            refusals: list[tuple[type[TopkBanditError], tuple[str, ...]]] = [
                (InvalidArgumentError, ("plum",)),
                (InvalidArgumentError, ("plum", odd, "apple")),
                (NotFoundError, ("plum", "nowhere")),
                (NotFoundError, ("gone", "plum")),
            ]
            for kind, slate in refusals:
                with pytest.raises(kind):
                    await store.activate(NAME, "rec-1", slate)
            with pytest.raises(NotFoundError):
                await store.activate(NAME, "rec-2")
            with pytest.raises(NotFoundError):
                await store.activate(ABSENT, "rec-1")
            assert await dump(store, NAME) == before
            receipt = (await store.activate(NAME, "rec-1", ("plum", odd))).answer
            assert receipt.outcome is ActivationOutcome.ACTIVATED
            for slate in ((), ("pear", "apple"), (odd, "plum")):
                with pytest.raises(ConflictError) as refused:
                    await store.activate(NAME, "rec-1", slate)
                assert refused.value.reason == "ACTIVATION_EXISTS"
            again = (await store.activate(NAME, "rec-1", ("plum", odd))).answer
            assert again == ActivationReceipt(ActivationOutcome.DUPLICATE)
            await store.record_reward(NAME, "rec-1", 1.0)
            then = replace(await shown(store), slate=("plum", odd))
            ends = [logged.event for logged in await whole_log(store, NAME)][3:]
            assert ends == [Activated("rec-1", then, instead=True), Rewarded("rec-1", 1.0, then)]
            repeated = await store.find_recommendation(NAME, request("for-rec-1"), "rec-1")
            assert repeated is not None
            assert repeated.slate == ("pear", "apple")

        run(stores, scenario)

    def test_where_activation_is_not_required_all_are_active(self, stores: Stores) -> None:
        async def scenario(store: Store) -> None:
            await create(store)
            await record(store)
            await store.update_settings(NAME, settings(requires_activation=True), revision=1)
            assert (await store.activate(NAME, "rec-1")).answer == ActivationReceipt(ActivationOutcome.DUPLICATE)
            with pytest.raises(ConflictError):
                await store.activate(NAME, "rec-1", ("apple", "pear"))
            await record(store, "rec-2")
            await store.update_settings(NAME, SETTINGS, revision=2)
            assert (await store.activate(NAME, "rec-2")).answer.outcome is ActivationOutcome.ACTIVATED

        run(stores, scenario)

    @pytest.mark.parametrize("calls", ["activate", "reward"])
    def test_what_lapsed_unnoticed_is_ended_by_who_comes_first(self, stores: Stores, calls: str) -> None:
        async def scenario(store: Store) -> None:
            await create(store, having=replace(OVERDUE, requires_activation=True))
            await record(store)
            if calls == "activate":
                assert (await store.activate(NAME, "rec-1")).answer == ActivationReceipt(ActivationOutcome.LATE)
            else:
                assert (await store.record_reward(NAME, "rec-1", 1.0)).answer.outcome is RewardOutcome.LATE
            assert await expired(store) == 0
            assert [logged.event for logged in await whole_log(store, NAME)][2:] == [Lapsed("rec-1")]

        run(stores, scenario)

    def test_a_reward_that_is_clamped_to_a_negative_zero_is_zero(self, stores: Stores) -> None:
        async def scenario(store: Store) -> None:
            await create(store, having=settings(reward_range=RewardRange(-0.0, 5.0, clamp=True)))
            await record(store)
            assert (await store.record_reward(NAME, "rec-1", -1.0)).answer.outcome is RewardOutcome.ACCEPTED
            rewarded = (await whole_log(store, NAME))[-1].event
            assert isinstance(rewarded, Rewarded)
            assert repr(rewarded.value) == "0.0"

        run(stores, scenario)

    def test_a_learned_reward_is_amended_and_voided(self, stores: Stores) -> None:
        async def scenario(store: Store) -> None:
            await create(store, having=settings(reward_range=RewardRange(-5.0, 5.0, clamp=True)))
            await record(store)
            await store.record_reward(NAME, "rec-1", 1.0)
            assert await correct(store, 2.5) == RewardReceipt(RewardOutcome.ACCEPTED, 4)
            assert await correct(store, 2.5) == RewardReceipt(RewardOutcome.DUPLICATE)
            assert await correct(store, 99.0) == RewardReceipt(RewardOutcome.ACCEPTED, 5)
            assert ((await store.record_reward(NAME, "rec-1", 1.0)).answer) == RewardReceipt(RewardOutcome.DUPLICATE, 3)
            with pytest.raises(ConflictError):
                await store.record_reward(NAME, "rec-1", 5.0)
            assert await correct(store, None) == RewardReceipt(RewardOutcome.ACCEPTED, 6)
            assert await correct(store, None) == RewardReceipt(RewardOutcome.DUPLICATE)
            with pytest.raises(NotReadyError) as void:
                await correct(store, 1.0)
            assert void.value.reason == "REWARD_VOIDED"
            assert ((await store.record_reward(NAME, "rec-1", 1.0)).answer) == RewardReceipt(RewardOutcome.DUPLICATE, 3)
            assert [logged.event for logged in await whole_log(store, NAME)][3:] == [
                RewardAmended("rec-1", 2.5),
                RewardAmended("rec-1", 5.0),
                RewardAmended("rec-1", None),
            ]
            now = await store.get_bandit(NAME)
            assert (now.pending, now.late_rewards) == (0, 0)

        run(stores, scenario)

    def test_a_learned_reward_is_corrected_only_where_that_is_exact(self, stores: Stores) -> None:
        async def scenario(store: Store) -> None:
            await create(store)
            await record(store)
            await store.record_reward(NAME, "rec-1", 1.0)
            before = await dump(store, NAME)
            assert await correct(store, 2.0, exact=0, behind=1) is None, "the model does not know the reward yet"
            with pytest.raises(NotReadyError) as folded:
                await correct(store, None, exact=0)
            assert folded.value.reason == "REWARD_FOLDED"
            for known in (
                Correctable("first", 1, 3, 3),
                Correctable("first", 2, 3, 9),
                Correctable("second", 1, 3, 9),
            ):
                assert await store.correct_reward(NAME, "rec-1", None, known=known) is None
            assert await dump(store, NAME) == before
            await record(store, "rec-2")
            assert await correct(store, None, exact=1, behind=1) is None, "the log has grown beyond"
            assert await correct(store, None, exact=2, behind=1) == RewardReceipt(RewardOutcome.ACCEPTED, 5)

        run(stores, scenario)

    @pytest.mark.parametrize("inactive", [True, False])
    def test_what_is_voided_before_its_reward_takes_none(self, stores: Stores, *, inactive: bool) -> None:
        async def scenario(store: Store) -> None:
            await create(store, having=settings(default_reward=1.0, requires_activation=inactive))
            await record(store)
            with pytest.raises(NotReadyError) as nothing:
                await correct(store, 2.0, exact=0)
            assert nothing.value.reason == "NO_REWARD"
            assert await correct(store, None, exact=0, behind=2) == RewardReceipt(RewardOutcome.ACCEPTED, 3)
            assert await correct(store, None, exact=0) == RewardReceipt(RewardOutcome.DUPLICATE)
            with pytest.raises(ConflictError) as ended:
                await store.record_reward(NAME, "rec-1", 1.0)
            assert ended.value.reason == "REWARD_FINAL"
            end = Lapsed("rec-1") if inactive else Expired("rec-1", None, None)
            assert [logged.event for logged in await whole_log(store, NAME)][2:] == [end]
            assert (await store.get_bandit(NAME)).pending == 0
            assert await store.expire_due(NAME, limit=5) == Expiry(0, None)

        run(stores, scenario)

    def test_one_of_several_is_corrected_before_and_after_they_are_learned(self, stores: Stores) -> None:
        async def scenario(store: Store) -> None:
            await create(store, having=settings(reward_aggregation=Aggregation.SUM))
            await record(store)
            for key, value in (("a", 1.0), ("b", 2.0), ("c", 4.0)):
                await store.record_reward(NAME, "rec-1", value, reward_id=key)
            assert await correct(store, 8.0, reward_id="b", exact=0) == RewardReceipt(RewardOutcome.ACCEPTED, 6)
            assert await correct(store, None, reward_id="a", exact=0) == RewardReceipt(RewardOutcome.ACCEPTED, 7)
            for value, reward_id, reason in ((1.0, "a", "REWARD_VOIDED"), (None, "nil", "NO_REWARD")):
                with pytest.raises(NotReadyError) as refused:
                    await correct(store, value, reward_id=reward_id)
                assert refused.value.reason == reason
            with pytest.raises(InvalidArgumentError) as unnamed:
                await correct(store, 1.0)
            assert unnamed.value.field == "reward_id"
            again = (await store.record_reward(NAME, "rec-1", 1.0, reward_id="a", final=True)).answer
            assert again == RewardReceipt(RewardOutcome.DUPLICATE, 3), "what was taken back ends nothing"
            await store.record_reward(NAME, "rec-1", 4.0, reward_id="c", final=True)
            assert await correct(store, 0.5, reward_id="c") == RewardReceipt(RewardOutcome.ACCEPTED, 9)
            assert await correct(store, None) == RewardReceipt(RewardOutcome.ACCEPTED, 10)
            assert await correct(store, None, reward_id="c") == RewardReceipt(RewardOutcome.DUPLICATE)
            assert [logged.event for logged in await whole_log(store, NAME)][5:] == [
                RewardCollected("rec-1", "b", 8.0),
                RewardCollected("rec-1", "a", None),
                Rewarded("rec-1", 12.0, await shown(store)),
                RewardAmended("rec-1", 8.5),
                RewardAmended("rec-1", None),
            ]

        run(stores, scenario)

    def test_what_had_no_reward_in_time_has_none_to_correct(self, stores: Stores) -> None:
        async def scenario(store: Store) -> None:
            await create(store, having=OVERDUE)
            await record(store)
            await store.record_reward(NAME, "rec-1", 1.0)
            before = await dump(store, NAME)
            for value in (None, 2.0):
                with pytest.raises(NotReadyError) as nothing:
                    await correct(store, value)
                assert nothing.value.reason == "NO_REWARD"
            for name, key in ((NAME, "nil"), (ABSENT, "rec-1")):
                with pytest.raises(NotFoundError):
                    await store.correct_reward(name, key, None, known=Correctable("first", 1, 9, 9))
            assert await dump(store, NAME) == before

        run(stores, scenario)

    def test_deadlines_expire_earliest_first_and_up_to_the_limit(self, stores: Stores) -> None:
        async def scenario(store: Store) -> None:
            await create(store, having=settings(reward_wait_ms=400, default_reward=0.25))
            await record(store, "later")
            await store.update_settings(NAME, settings(reward_wait_ms=0, default_reward=0.25), revision=1)
            for key in ("sooner", "soon"):
                await record(store, key)
                await stores.pass_time(2)
            await store.update_settings(NAME, SETTINGS, revision=2)
            await record(store, "open")
            await stores.pass_time(400)
            assert (await store.get_bandit(NAME)).pending == 4
            assert [await expired(store, limit=2) for _ in range(3)] == [2, 1, 0]
            ended = [e.event for e in await whole_log(store, NAME) if isinstance(e.event, Expired)]
            assert ended == [Expired(key, None, None) for key in ("sooner", "soon", "later")]
            assert (await store.get_bandit(NAME)).pending == 1

        run(stores, scenario)

    @pytest.mark.parametrize("default_reward", [None, -0.5])
    def test_what_was_shown_comes_with_whatever_is_learned(self, stores: Stores, default_reward: float | None) -> None:
        """Long after the log was trimmed and the items changed, with ids and numbers that are hard to keep."""
        slate = ('a "b" c', "], {0} \\ é 漢/\u007f %s")
        contexts = {
            "rewarded": (-0.0, 5e-324, 1e22),
            "expired": (0.1, -2.5, 1e-17),
            "late": (1.0, 1e6, 1.7976931348623157e308),
            "named": NAMED,
        }

        async def scenario(store: Store) -> None:
            await create(store, having=settings(reward_wait_ms=500, default_reward=default_reward))
            await store.change_items(NAME, upserted=[Item(one) for one in slate], retired=[])
            for key, context in contexts.items():
                given = replace(recommendation(key), slate=slate)
                await store.record_recommendation(
                    NAME, request(context=context), given, incarnation="first", items_position=2
                )
            then = {key: await shown(store, key) for key in contexts}
            await store.change_items(NAME, upserted=[], retired=slate)
            for new in ("one", "two"):
                position = (await store.change_items(NAME, upserted=[Item(new)], retired=[])).log_position
                behind = (await store.get_bandit(NAME)).snapshot_position
                await store.save_snapshot(NAME, Snapshot(position, b"all"), incarnation="first", behind=behind)
            assert len(await whole_log(store, NAME)) == 1
            assert (await store.record_reward(NAME, "rewarded", 1.0)).answer.outcome == RewardOutcome.ACCEPTED
            await stores.pass_time(500)
            assert (await store.record_reward(NAME, "late", 1.0)).answer.outcome == RewardOutcome.LATE
            assert await expired(store) == 2
            ends = [logged.event for logged in await whole_log(store, NAME)][1:]
            assert ends == [
                Rewarded("rewarded", 1.0, then["rewarded"]),
                Expired("late", default_reward, None if default_reward is None else then["late"]),
                Expired("expired", default_reward, None if default_reward is None else then["expired"]),
                Expired("named", default_reward, None if default_reward is None else then["named"]),
            ]
            assert [then[key].context for key in contexts] == list(contexts.values())
            assert str(ends[0]) == str(Rewarded("rewarded", 1.0, then["rewarded"])), "the sign of zero"
            asked = request(context=contexts["rewarded"])
            with pytest.raises(NotReadyError) as gone:
                await store.find_recommendation(NAME, asked, "rewarded")
            assert gone.value.reason == "SLATE_GONE", "only the log knew it after it had ended"

        run(stores, scenario)

    @pytest.mark.parametrize("after_ms", [None, 100])
    def test_slates_that_end_without_a_reward_are_counted_apart(self, stores: Stores, after_ms: int | None) -> None:
        async def scenario(store: Store) -> None:
            waits = replace(settings(reward_wait_ms=400), provisional_after_ms=after_ms, default_reward=0.5)
            await create(store, having=replace(waits, reward_aggregation=Aggregation.SUM))
            for key in ("rewarded", "taken back", "nothing"):
                await record(store, key)
            for key in ("rewarded", "taken back"):
                await store.record_reward(NAME, key, 1.0, reward_id="click")
            await correct(store, None, "taken back", reward_id="click")
            for wait_ms in (150, 300):
                await stores.pass_time(wait_ms)
                ended = await store.expire_due(NAME, limit=9)
            assert (ended.count, ended.without_reward) == (3, 2)

        run(stores, scenario)

    def test_the_next_deadline_is_the_earliest_that_is_open(self, stores: Stores) -> None:
        async def scenario(store: Store) -> None:
            await create(store, having=settings(reward_wait_ms=HOUR_MS))
            assert await store.expire_due(NAME, limit=5) == Expiry(0, None)
            deadlines = {}
            for number, wait_ms in enumerate((HOUR_MS, HOUR_MS // 2, 2 * HOUR_MS)):
                await store.update_settings(NAME, settings(reward_wait_ms=wait_ms), revision=max(1, number))
                outcome = await record(store, f"rec-{number}")
                assert outcome.recommendation is not None
                deadlines[number] = outcome.recommendation.deadline_ms
            assert await store.expire_due(NAME, limit=5) == Expiry(0, deadlines[1])
            await store.record_reward(NAME, "rec-1", 1.0)
            assert await store.expire_due(NAME, limit=5) == Expiry(0, deadlines[0])
            await store.update_settings(NAME, OVERDUE, revision=3)
            overdue = [await record(store, f"overdue-{number}") for number in range(2)]
            last = overdue[1].recommendation
            assert last is not None
            assert await store.expire_due(NAME, limit=1) == Expiry(1, last.deadline_ms, without_reward=1)
            assert await store.expire_due(NAME, limit=1) == Expiry(1, deadlines[0], without_reward=1)
            for key in ("rec-0", "rec-2"):
                await store.record_reward(NAME, key, 1.0)
            assert await store.expire_due(NAME, limit=1) == Expiry(0, None)

        run(stores, scenario)

    def test_the_default_reward_is_the_one_at_expiry(self, stores: Stores) -> None:
        async def scenario(store: Store) -> None:
            await create(store, having=OVERDUE)
            await record(store)
            await store.update_settings(NAME, replace(OVERDUE, default_reward=1 / 3), revision=1)
            await store.expire_due(NAME, limit=1)
            assert (await whole_log(store, NAME))[-1].event == Expired("rec-1", 1 / 3, await shown(store))

        run(stores, scenario)

    def test_a_bandit_that_does_not_exist_has_nothing_due_and_no_snapshots(self, stores: Stores) -> None:
        async def scenario(store: Store) -> None:
            assert await store.expire_due(ABSENT, limit=5) == Expiry(0, None)
            assert await store.load_snapshots(ABSENT) == ()
            assert await store.save_snapshot(ABSENT, Snapshot(1, b"x"), incarnation="first") is False

        run(stores, scenario)

    def test_bandits_with_something_due_are_found_among_all(self, forgetful_stores: Stores) -> None:
        async def scenario(store: Store) -> None:
            found = [BanditName(tenant, f"b{number:03}") for tenant in ("one", "two/}") for number in range(150)]
            for name in found:
                await store.create_bandit(name, settings(reward_wait_ms=1000), incarnation="first", quota=150)
            open_, closed = found[0], found[-1]
            for name in (open_, closed):
                await record(store, name=name)
            await store.record_reward(closed, "rec-1", 1.0)
            assert [name async for name in store.find_overdue()] == []
            await forgetful_stores.pass_time(1000 + 500)
            assert [name async for name in store.find_overdue()] == [open_, closed]
            for name in (open_, closed):
                await store.expire_due(name, limit=9)
            assert [name async for name in store.find_overdue()] == []

        run(forgetful_stores, scenario)

    def test_one_reward_sent_fifty_times_is_accepted_once(self, stores: Stores) -> None:
        async def scenario(*connected: Store) -> None:
            await create(connected[0])
            await record(connected[0])
            sent = (connected[i % 3].record_reward(NAME, "rec-1", 0.5) for i in range(50))
            receipts = [written.answer for written in await asyncio.gather(*sent)]
            assert receipts.count(RewardReceipt(RewardOutcome.ACCEPTED, 3)) == 1
            assert receipts.count(RewardReceipt(RewardOutcome.DUPLICATE, 3)) == 49
            rewards = [e.event for e in await whole_log(connected[0], NAME) if isinstance(e.event, Rewarded)]
            assert rewards == [Rewarded("rec-1", 0.5, await shown(connected[0]))]

        run(stores, scenario, connections=3)

    def test_exactly_one_of_reward_and_expiry_is_decided(self, stores: Stores) -> None:
        """Rewards come in any order while the clock goes from one deadline to the next, and others look for them."""
        groups, of_each, chance = 10, 20, random.Random(7)
        few_at_once, outcomes = asyncio.Semaphore(10), dict[str, RewardOutcome]()

        async def reward(store: Store, number: int) -> None:
            async with few_at_once:
                key = f"rec-{number}"
                await asyncio.sleep(0)  # for those who look for deadlines, where a store never waits
                outcomes[key] = (await store.record_reward(NAME, key, float(number))).answer.outcome
                if len(outcomes) % of_each == 0:
                    await stores.pass_time(1)

        async def expire(store: Store) -> None:
            while len(outcomes) < groups * of_each:
                await store.expire_due(NAME, limit=7)
                await asyncio.sleep(0.001)

        async def scenario(*connected: Store) -> None:
            await create(connected[0], having=settings(reward_wait_ms=groups + groups // 2, default_reward=-1.0))
            for number in range(groups * of_each):
                await record(connected[0], f"rec-{number}")
                if number % of_each == of_each - 1:
                    await stores.pass_time(1)
            numbers = list(range(groups * of_each))
            chance.shuffle(numbers)
            expiring = [expire(store) for store in connected[1:]]
            await asyncio.gather(*expiring, *(reward(connected[number % 2], number) for number in numbers))
            events = [e.event for e in await whole_log(connected[0], NAME)]
            rewarded = [e.recommendation_id for e in events if isinstance(e, Rewarded)]
            overdue = [e.recommendation_id for e in events if isinstance(e, Expired)]
            assert sorted(rewarded + overdue) == sorted(outcomes)
            assert {key for key in outcomes if outcomes[key] == RewardOutcome.ACCEPTED} == set(rewarded)
            assert {key for key in outcomes if outcomes[key] == RewardOutcome.LATE} == set(overdue)
            assert min(len(rewarded), len(overdue)) >= 20
            now = await connected[0].get_bandit(NAME)
            assert (now.pending, now.late_rewards) == (0, len(overdue))

        run(stores, scenario, connections=3)

    def test_positions_have_no_gaps_whoever_writes(self, stores: Stores) -> None:
        async def write(store: Store, writer: int) -> None:
            for turn in range(25):
                now = await store.get_bandit(NAME)
                changed = Item(f"item-{writer}", available=turn % 2 == 0)
                await store.change_items(NAME, upserted=[changed], retired=[])
                if (await record(store, f"{writer}-{turn}")).status == RecordStatus.RECORDED:
                    await store.record_reward(NAME, f"{writer}-{turn}", 1.0)
                other = settings(uniform_share=(writer * 25 + turn) / 100)
                with contextlib.suppress(ConflictError):
                    await store.update_settings(NAME, other, revision=now.revision)

        async def scenario(*connected: Store) -> None:
            await create(connected[0])
            await asyncio.gather(*(write(store, writer) for writer, store in enumerate(connected)))
            events = await whole_log(connected[0], NAME)
            now = await connected[0].get_bandit(NAME)
            assert [event.position for event in events] == list(range(1, now.log_position + 1))
            kinds = Counter(type(event.event) for event in events)
            assert kinds[ItemsChanged] == 75
            assert kinds[SettingsChanged] == now.revision - 1
            assert kinds[Recommended] == kinds[Rewarded] > 0
            assert now.pending == 0

        run(stores, scenario, connections=3)

    def test_a_log_is_read_in_parts(self, stores: Stores) -> None:
        async def scenario(store: Store) -> None:
            await create(store)
            for number in range(4):
                await record(store, f"rec-{number}")
            events = await whole_log(store, NAME)
            part = await store.read_log(NAME, start=2, limit=3)
            assert (part.incarnation, part.first_position, part.log_position) == ("first", 1, 5)
            assert list(part.events) == events[1:4]
            assert (await store.read_log(NAME, start=5, limit=3)).events == (events[-1],)
            beyond = await store.read_log(NAME, start=6, limit=3)
            assert (beyond.events, beyond.log_position) == ((), 5)

        run(stores, scenario)

    def test_two_snapshots_are_kept_and_the_log_below_the_older_one_goes(self, stores: Stores) -> None:
        first, second, third = (Snapshot(position, bytes([position]) * 1000) for position in (2, 4, 5))

        async def scenario(store: Store) -> None:
            await create(store)
            for number in range(5):
                await record(store, f"rec-{number}")
            events = await whole_log(store, NAME)
            for snapshot, kept, first_kept in (
                (first, (first,), 1),
                (second, (second, first), 3),
                (third, (third, second), 5),
            ):
                behind = first_kept - 1
                assert await store.save_snapshot(NAME, snapshot, incarnation="first", behind=behind) is True
                assert tuple(await store.load_snapshots(NAME)) == kept
                part = await store.read_log(NAME, start=first_kept, limit=99)
                assert (part.first_position, part.log_position) == (first_kept, 6)
                assert list(part.events) == events[first_kept - 1 :]
                assert (await store.read_log(NAME, start=first_kept - 1, limit=99)).events == ()
                assert (await store.get_bandit(NAME)).snapshot_position == snapshot.position
            await record(store, "after")
            assert (await whole_log(store, NAME))[-1].position == 7

        run(stores, scenario)

    def test_a_log_is_trimmed_behind_no_snapshot_but_the_one_that_was_read(self, stores: Stores) -> None:
        read, bad, worse, newest = (Snapshot(position, bytes([position])) for position in (2, 3, 4, 5))

        async def scenario(store: Store) -> None:
            await create(store)
            for number in range(5):
                await record(store, f"rec-{number}")
            for snapshot, behind, kept, first in (
                (read, 0, (read,), 1),
                (bad, 0, (bad, read), 1),
                (worse, 2, (worse, read), 3),  # not beside the one from which no model was read
                (newest, 3, (newest, worse), 3),  # that one is not there any more
            ):
                assert await store.save_snapshot(NAME, snapshot, incarnation="first", behind=behind) is True
                assert tuple(await store.load_snapshots(NAME)) == kept
                assert (await store.read_log(NAME, start=3, limit=1)).first_position == first

        run(stores, scenario)

    def test_events_behind_a_snapshot_stay_after_the_position_up_to_which_the_log_is_trimmed(
        self, stores: Stores
    ) -> None:
        async def scenario(store: Store) -> None:
            await create(store)
            for number in range(5):
                await record(store, f"rec-{number}")
            events = await whole_log(store, NAME)
            await store.save_snapshot(NAME, Snapshot(3, b"3"), incarnation="first")
            for position, behind, through, first in ((4, 3, 0, 1), (5, 4, 2, 3), (6, 5, 99, 6)):
                saved = Snapshot(position, bytes([position]))
                assert await store.save_snapshot(NAME, saved, incarnation="first", behind=behind, through=through)
                part = await store.read_log(NAME, start=first, limit=99)
                assert part.first_position == first
                assert list(part.events) == events[first - 1 :]

        run(stores, scenario)

    @pytest.mark.parametrize(("position", "incarnation"), [(1, "first"), (2, "first"), (4, "first"), (3, "second")])
    def test_a_snapshot_that_is_not_newer_or_not_of_this_log_is_refused(
        self, stores: Stores, position: int, incarnation: str
    ) -> None:
        async def scenario(store: Store) -> None:
            await create(store)
            await record(store, "rec-1")
            await record(store, "rec-2")
            await store.save_snapshot(NAME, Snapshot(2, b"two"), incarnation="first")
            before = await dump(store, NAME)
            assert await store.save_snapshot(NAME, Snapshot(position, b"no"), incarnation=incarnation) is False
            assert await dump(store, NAME) == before
            assert await store.save_snapshot(NAME, Snapshot(3, b"yes"), incarnation="first") is True

        run(stores, scenario)

    def test_one_of_many_snapshots_at_a_position_is_kept(self, stores: Stores) -> None:
        async def scenario(*connected: Store) -> None:
            await create(connected[0])
            mine = [Snapshot(1, bytes([number])) for number in range(12)]
            saved = await asyncio.gather(
                *(connected[i % 3].save_snapshot(NAME, one, incarnation="first") for i, one in enumerate(mine))
            )
            assert saved.count(True) == 1
            assert list(await connected[0].load_snapshots(NAME)) == [mine[saved.index(True)]]

        run(stores, scenario, connections=3)

    def test_a_snapshot_is_any_bytes(self, stores: Stores) -> None:
        payload = random.Random(3).randbytes(300_000)

        async def scenario(store: Store) -> None:
            await create(store)
            await store.save_snapshot(NAME, Snapshot(1, payload), incarnation="first")
            assert [one.payload for one in await store.load_snapshots(NAME)] == [payload]

        run(stores, scenario)

    def test_closed_records_are_forgotten_after_a_while(self, forgetful_stores: Stores) -> None:
        async def scenario(store: Store) -> None:
            await create(store)
            for key in ("rec-1", "rec-2", "rec-3"):
                await record(store, key)
                await store.record_reward(NAME, key, 1.0)
            await store.update_settings(NAME, OVERDUE, revision=1)
            await record(store, "expired")
            await store.expire_due(NAME, limit=9)
            await store.update_settings(NAME, SETTINGS, revision=2)
            await record(store, "open")
            before = await store.get_bandit(NAME)
            await forgetful_stores.pass_time(180)
            assert (await store.expire_due(NAME, limit=9)).count == 0
            assert await remembered(store) == ["rec-1", "rec-2", "rec-3", "expired", "open"]
            await forgetful_stores.pass_time(510)
            assert (await store.expire_due(NAME, limit=1)).count == 0
            assert await remembered(store) == ["open"]
            with pytest.raises(NotFoundError):
                await store.record_reward(NAME, "rec-1", 1.0)
            assert await store.get_bandit(NAME) == before
            # Nobody knows of its first use any more: a reward for that is taken for the second.
            assert (await record(store, "rec-1")).status is RecordStatus.RECORDED
            assert (await store.record_reward(NAME, "rec-1", 2.0)).answer.outcome == RewardOutcome.ACCEPTED
            assert (await store.record_reward(NAME, "open", 1.0)).answer.outcome == RewardOutcome.ACCEPTED

        run(forgetful_stores, scenario)

    def test_what_is_closed_all_the_time_is_forgotten_all_the_time(self, forgetful_stores: Stores) -> None:
        """Each is kept for as long as it has to be, and soon after no more, however long that goes on."""

        async def scenario(store: Store) -> None:
            await create(store)
            for number in range(24):
                await record(store, f"rec-{number}")
                await store.record_reward(NAME, f"rec-{number}", 1.0)
                await store.expire_due(NAME, limit=9)
                known = [await is_known(store, f"rec-{one}") for one in range(number + 1)]
                assert known == sorted(known), "the oldest ones go first"
                assert known[-1]
                assert sum(known) <= 10
                await forgetful_stores.pass_time(100)

        run(forgetful_stores, scenario)

    def test_a_late_reward_is_remembered_from_when_it_came(self, forgetful_stores: Stores) -> None:
        async def scenario(store: Store) -> None:
            await create(store, having=OVERDUE)
            await record(store)
            await store.expire_due(NAME, limit=9)
            await forgetful_stores.pass_time(510)
            assert (await store.record_reward(NAME, "rec-1", 1.0)).answer.outcome == RewardOutcome.LATE
            await store.expire_due(NAME, limit=9)
            assert (await store.record_reward(NAME, "rec-1", 1.0)).answer.outcome == RewardOutcome.LATE

        run(forgetful_stores, scenario)

    def test_rows_of_imports_are_logged_once_in_their_order(self, stores: Stores) -> None:
        async def scenario(store: Store) -> None:
            await create(store)
            await store.change_items(NAME, upserted=ITEMS, retired=[])
            assert await store.find_import(NAME, "year") == ImportProgress()
            assert await store.find_import_part(NAME, import_part()) is None
            first = await import_rows(store, import_part(clamped=2))
            assert first == ImportOutcome(RecordStatus.RECORDED, 3, 3, 3)
            empty = replace(import_part(3, 2), accepted=0)
            assert await import_rows(store, empty) == ImportOutcome(RecordStatus.RECORDED, 5, 0, 0)
            # An import whose name begins with another's, and a row number that looks like one's.
            assert (await import_rows(store, import_part(import_id="year 0"))).position == 4
            last = await import_rows(store, import_part(5, 1000))
            assert last == ImportOutcome(RecordStatus.RECORDED, 1005, 1000, 5)
            assert await store.find_import(NAME, "year") == ImportProgress(1005, 1003)
            for part, made in ((import_part(), first), (import_part(5, 1000), last)):
                again = replace(made, status=RecordStatus.REPEATED)
                assert await store.find_import_part(NAME, part) == again
                assert await import_rows(store, part) == again
            log = [logged.event for logged in await whole_log(store, NAME)]
            assert log[2:] == [Imported("year", 0, PAST), Imported("year 0", 0, PAST), Imported("year", 5, PAST)]
            now = await store.get_bandit(NAME)
            assert (now.log_position, now.clamped_rewards, now.pending) == (5, 2, 0)

        run(stores, scenario)

    def test_rows_that_were_checked_with_other_items_are_stale(self, stores: Stores) -> None:
        async def scenario(store: Store) -> None:
            made = await create(store)
            await store.change_items(NAME, upserted=ITEMS, retired=[])
            before = await dump(store, NAME)
            for incarnation, position in ((made.incarnation, 0), ("other", 2)):
                stale = await store.record_import(
                    NAME, import_part(), Imported("year", 0, PAST), incarnation=incarnation, items_position=position
                )
                assert stale == ImportOutcome(RecordStatus.STALE)
            assert await dump(store, NAME) == before
            assert await store.find_import(NAME, "year") == ImportProgress()

        run(stores, scenario)

    def test_a_log_with_large_events_is_read_in_several_parts(self, stores: Stores) -> None:
        row = replace(PAST[0], context=Features.of({f"f{n}": "x" * 250 for n in range(64)}))
        event = Imported("year", 0, (row,) * 75)  # a part ends after the eighth, above eight megabytes

        async def scenario(store: Store) -> None:
            await create(store)
            for number in range(12):
                part = import_part(number * 75, 75)
                await store.record_import(NAME, part, event, incarnation="first", items_position=0)
            assert [logged.position for logged in await whole_log(store, NAME)] == list(range(1, 14))
            assert len((await store.read_log(NAME, start=3, limit=1)).events) == 1

        run(stores, scenario)

    def test_nothing_is_left_of_a_deleted_bandit(self, stores: Stores) -> None:
        async def scenario(store: Store) -> None:
            await filled(store)
            await store.delete_bandit(NAME)
            for ask in (
                store.get_bandit(NAME),
                store.list_items(NAME),
                store.read_log(NAME, start=1, limit=1),
                store.record_reward(NAME, "rewarded", 1.5),
                store.find_recommendation(NAME, request("for-pending"), "pending"),
                store.find_import(NAME, "year"),
                store.delete_bandit(NAME),
            ):
                with pytest.raises(NotFoundError, match="tenants/shop/bandits/home not found"):
                    await ask
            assert await store.list_bandits("shop", after="", limit=9) == ()
            assert await store.load_snapshots(NAME) == ()

        run(stores, scenario)

    def test_slates_and_imports_are_scanned_until_all_have_come_back(self, stores: Stores) -> None:
        async def scenario(store: Store) -> None:
            await create(store)
            await store.change_items(NAME, upserted=ITEMS, retired=())
            keys, parts = {f"rec-{number}" for number in range(400)}, 600  # more than a server keeps in one piece
            await asyncio.gather(*(record(store, key) for key in keys))
            await store.record_reward(NAME, "rec-7", 1.0)
            for number in range(parts):
                part = ImportPart("year", number, number + 1, "ab", 0)
                await store.record_import(NAME, part, None, incarnation="first", items_position=2)
            slates, imports = set[str](), set[int]()
            cursor, is_first = 0, True
            while cursor or is_first:
                cursor, found = await store.scan_slates(NAME, cursor=cursor)
                slates |= {one.recommendation.recommendation_id for one in found}
                is_first = False
            is_first = True
            while cursor or is_first:
                cursor, rows = await store.scan_imports(NAME, cursor=cursor)
                imports |= {one.first_row for one in rows}
                is_first = False
            assert slates == keys - {"rec-7"}
            assert imports == set(range(parts))
            for scan in (store.scan_slates, store.scan_imports):
                with pytest.raises(NotFoundError):
                    await scan(BanditName("shop", "none"), cursor=0)

        run(stores, scenario)

    def test_a_bandit_comes_back_from_its_lines(self, stores: Stores) -> None:
        async def scenario(store: Store) -> None:
            await filled(store)
            seen, lines = await dump(store, NAME), await archived(store, NAME)
            await store.delete_bandit(NAME)
            before = await store.list_tenants(after="", limit=9)
            restore = await restore_lines(store, NAME, lines, at_once=4)
            assert await store.list_tenants(after="", limit=9) == before
            with pytest.raises(NotFoundError):
                await store.get_bandit(NAME)
            with pytest.raises(ConflictError, match="another import"):
                await store.finish_restore(NAME, replace(restore, next_line=1), quota=1)
            made = await store.finish_restore(NAME, restore, quota=1)
            assert await store.finish_restore(NAME, restore, quota=1) == made
            with pytest.raises(ConflictError, match="exists"):
                await store.finish_restore(NAME, replace(restore, import_id="two"), quota=1)
            again = await dump(store, NAME)
            assert replace(again[0], snapshot_position=0) == replace(seen[0], snapshot_position=0)
            assert again[1:4] == seen[1:4]
            assert await store.list_tenants(after="", limit=9) == (NAME.tenant,)
            assert await store.find_restore(NAME) is None
            other = BanditName(NAME.tenant, "other")
            await restore_lines(store, other, lines[:-1], at_once=100)
            await store.delete_bandit(other)
            assert await store.find_restore(other) is None
            with pytest.raises(NotFoundError):
                await store.delete_bandit(other)
            assert (await store.record_reward(NAME, "pending", 1.5)).answer.outcome is RewardOutcome.ACCEPTED
            assert (await store.record_reward(NAME, "rewarded", 1.5)).answer.outcome is RewardOutcome.DUPLICATE
            assert (await store.find_import(NAME, "year")).next_row > 0

        run(stores, scenario)

    def test_an_import_that_nobody_goes_on_with_is_forgotten(self, forgetful_stores: Stores) -> None:
        async def scenario(store: Store) -> None:
            await filled(store)
            lines, other = await archived(store, NAME), BanditName(NAME.tenant, "other")
            restore = await restore_lines(store, other, lines, at_once=100)
            made = await store.finish_restore(other, restore, quota=9)
            left = BanditName(NAME.tenant, "left")
            ended = await restore_lines(store, left, lines, at_once=4)
            await forgetful_stores.pass_time(510)
            assert await store.find_restore(left) is None
            assert await store.load_restored_snapshot(left) == b""
            with pytest.raises(ConflictError, match="another import"):
                await store.finish_restore(left, ended, quota=9)
            assert await store.get_bandit(other) == made
            seen, ours = await dump(store, other), await dump(store, NAME)
            assert seen[1:4] == ours[1:4]

        run(forgetful_stores, scenario)

    def test_a_bandit_created_anew_begins_anew(self, stores: Stores) -> None:
        async def scenario(store: Store) -> None:
            await filled(store)
            await store.delete_bandit(NAME)
            made = await create(store, incarnation="second", quota=1)
            assert (made.incarnation, made.revision, made.log_position, made.pending) == ("second", 1, 1, 0)
            assert (made.items_position, made.snapshot_position, made.late_rewards) == (0, 0, 0)
            assert [e.event for e in await whole_log(store, NAME)] == [BanditCreated(SETTINGS)]
            assert await store.list_items(NAME) == ()
            assert await store.load_snapshots(NAME) == ()
            assert (await record_at(store, incarnation="first", items_position=0)).status == RecordStatus.STALE
            assert await store.find_import(NAME, "year") == ImportProgress()
            assert await store.save_snapshot(NAME, Snapshot(1, b"old"), incarnation="first") is False
            with pytest.raises(NotFoundError):
                await store.record_reward(NAME, "rewarded", 1.5)

        run(stores, scenario)

    def test_the_slowest_follower_that_is_heard_of_counts(self, stores: Stores) -> None:
        async def scenario(store: Store) -> None:
            await create(store)
            assert await store.slowest_follower(NAME, heard_within_ms=HOUR_MS) == 0
            changed = await store.change_items(NAME, upserted=ITEMS, retired=[])
            assert await store.slowest_follower(NAME, heard_within_ms=HOUR_MS) == changed.items_position
            newest = await store.note_follower(NAME, follower="slow", items_position=0)
            assert newest == changed.items_position
            await store.note_follower(NAME, follower="quick", items_position=newest)
            assert await store.slowest_follower(NAME, heard_within_ms=HOUR_MS) == 0
            await store.note_follower(NAME, follower="slow", items_position=newest)
            assert await store.slowest_follower(NAME, heard_within_ms=HOUR_MS) == newest

        run(stores, scenario)

    def test_a_follower_that_fell_silent_does_not_count(self, stores: Stores) -> None:
        async def scenario(store: Store) -> None:
            await create(store)
            newest = (await store.change_items(NAME, upserted=ITEMS, retired=[])).items_position
            await store.note_follower(NAME, follower="silent", items_position=0)
            await stores.pass_time(20)
            assert await store.slowest_follower(NAME, heard_within_ms=20) == 0
            await stores.pass_time(1)
            assert await store.slowest_follower(NAME, heard_within_ms=20) == newest
            assert await store.slowest_follower(NAME, heard_within_ms=HOUR_MS) == 0

        run(stores, scenario)

    def test_only_bandits_that_exist_have_followers(self, stores: Stores) -> None:
        async def scenario(store: Store) -> None:
            await create(store)
            for name in (ABSENT, NAME):
                if name == NAME:
                    await store.note_follower(name, follower="worker", items_position=0)
                    await store.delete_bandit(name)
                with pytest.raises(NotFoundError):
                    await store.note_follower(name, follower="worker", items_position=0)
                with pytest.raises(NotFoundError):
                    await store.slowest_follower(name, heard_within_ms=HOUR_MS)

        run(stores, scenario)

    def test_a_call_returns_what_it_appended_as_reading_does(self, stores: Stores) -> None:
        collecting = settings(requires_activation=True, reward_aggregation=Aggregation.SUM)

        async def scenario(store: Store) -> None:
            await create(store, having=settings(requires_activation=True, default_reward=0.5))
            await store.change_items(NAME, upserted=ITEMS, retired=[])
            for number in range(1, 5):
                assert await read_again(store, await write_record(store, f"rec-{number}")) == [Recommended]
            assert await read_again(store, await store.activate(NAME, "rec-1")) == [Activated]
            assert await read_again(store, await store.record_reward(NAME, "rec-1", 1 / 3)) == [Rewarded]
            rewards = [Reward("rec-2", -0.0), Reward("no", 1.0), Reward("rec-3", 5.0)]
            together = await store.record_rewards(NAME, rewards)
            assert len(together.appended) == 2
            for one in together.appended:
                assert await read_again(store, Written(None, (one,))) == [Activated, Rewarded]
            await store.update_settings(NAME, collecting, revision=1)
            collected = await store.record_reward(NAME, "rec-4", 2.0, reward_id="a")
            assert await read_again(store, collected) == [Activated, RewardCollected]
            ended = await store.record_reward(NAME, "rec-4", 3.0, reward_id="b", final=True)
            assert await read_again(store, ended) == [Rewarded]
            assert not any((await write_record(store, "rec-1")).appended)
            assert not any((await store.activate(NAME, "rec-4")).appended)
            assert not any((await store.record_reward(NAME, "rec-4", 3.0, reward_id="b")).appended)

        run(stores, scenario)

    def test_a_late_call_returns_that_it_ended_the_slate(self, stores: Stores) -> None:
        async def scenario(store: Store) -> None:
            await create(store, having=settings(reward_wait_ms=0, default_reward=-0.5))
            for number in range(1, 3):
                await record(store, f"rec-{number}")
            assert await read_again(store, await store.record_reward(NAME, "rec-1", 1.0)) == [Expired]
            assert (await store.record_reward(NAME, "rec-1", 1.0)).appended == (None,)
            await store.expire_due(NAME, limit=9)
            assert (await store.record_reward(NAME, "rec-2", 1.0)).appended == (None,)
            await create(store, OTHER, having=settings(reward_wait_ms=0, requires_activation=True))
            await record(store, name=OTHER)
            assert await read_again(store, await store.activate(OTHER, "rec-1"), name=OTHER) == [Lapsed]

        run(stores, scenario)

    def test_a_slice_tells_the_revision_and_the_checksum_of_its_last_event(self, stores: Stores) -> None:
        async def scenario(store: Store) -> None:
            await create(store)
            await record(store)
            await store.update_settings(NAME, OVERDUE, revision=1)
            parts = [await store.read_log(NAME, start=1, limit=limit) for limit in (1, 2, 9)]
            assert len({part.checksum for part in parts}) == 3
            assert {part.revision for part in parts} == {2}
            assert (await store.read_log(NAME, start=3, limit=1)).checksum == parts[2].checksum
            assert (await store.read_log(NAME, start=4, limit=1)).checksum == ""

        run(stores, scenario)

    def test_each_growing_log_is_announced_to_all(self, stores: Stores) -> None:
        other = BanditName("other", "b")

        async def scenario(near: Store, far: Store) -> None:
            await create(near, other)
            async with listening(near) as next_near, listening(far) as next_far:
                for write in (
                    lambda: create(near),
                    lambda: far.change_items(NAME, upserted=ITEMS, retired=[]),
                    lambda: record(near),
                    lambda: far.record_reward(NAME, "rec-1", 1.0),
                    lambda: near.update_settings(NAME, OVERDUE, revision=1),
                    lambda: record(far, "rec-2"),
                    lambda: near.expire_due(NAME, limit=5),
                    lambda: record(far, "rec-3"),
                    lambda: near.record_reward(NAME, "rec-3", 5.0),
                ):
                    await write()
                    assert await next_near() == NAME
                    assert await next_far() == NAME
                await far.record_reward(NAME, "rec-1", 1.0)
                await near.get_bandit(NAME)
                await record(near, name=other)
                assert await next_far() == other

        run(stores, scenario, connections=2)

    def test_changes_end_when_the_store_is_closed(self, stores: Stores) -> None:
        async def scenario(store: Store) -> None:
            async with listening(store) as following:
                waiting = asyncio.create_task(following())
                await asyncio.sleep(0)  # the task has begun to wait
                await store.close()
                with pytest.raises(StopAsyncIteration):
                    await waiting

        run(stores, scenario)

    def test_what_is_given_and_returned_is_not_shared(self, stores: Stores) -> None:
        async def scenario(store: Store) -> None:
            await create(store)
            items, payload = list(ITEMS), bytearray(b"snapshot")
            await store.change_items(NAME, upserted=items, retired=[])
            await store.save_snapshot(NAME, Snapshot(1, payload), incarnation="first")  # type: ignore[arg-type]
            before = await dump(store, NAME)
            items.clear()
            payload[:] = b"changed!"
            for returned in (
                await store.list_items(NAME),
                await store.load_snapshots(NAME),
                await store.list_bandits("shop", after="", limit=9),
                (await store.read_log(NAME, start=1, limit=9)).events,
            ):
                assert isinstance(returned, tuple)
            assert await dump(store, NAME) == before

        run(stores, scenario)

    def test_a_report_says_what_the_store_is(self, stores: Stores) -> None:
        async def scenario(store: Store) -> None:
            report = await store.check()
            assert report.problems == ()
            assert report.role == "master"
            assert report.server != ""
            assert report.version != ""

        run(stores, scenario)

    def test_a_loss_counts_once_whoever_notes_it(self, stores: Stores) -> None:
        async def scenario(one: Store, other: Store) -> None:
            await one.create_bandit(NAME, SETTINGS, incarnation="first", quota=9)
            noted = [
                (one, 4, 9, (5, 7)),
                (other, 4, 9, (5, 7)),  # the same
                (other, 4, 12, (7, 10, 11)),  # which knew more
                (one, 4, 9, (5,)),
                (one, 8, 10, ()),  # another loss
            ]
            losses = [
                await store.note_loss(NAME, incarnation="first", after=after, end=end, rewards=rewards)
                for store, after, end, rewards in noted
            ]
            assert losses == [LostEvents(5, 2), LostEvents(0, 0), LostEvents(3, 2), LostEvents(0, 0), LostEvents(2, 0)]
            record = await one.get_bandit(NAME)
            assert (record.lost_events, record.lost_rewards) == (10, 4)
            with pytest.raises(NotFoundError):
                await one.note_loss(NAME, incarnation="other", after=1, end=2, rewards=())

        run(stores, scenario, connections=2)

    def test_a_slate_is_overdue_from_its_deadline_on(self, stores: Stores) -> None:
        async def scenario(store: Store) -> None:
            await create(store, having=settings(reward_wait_ms=400))
            await record(store)
            await stores.pass_time(399)
            assert [name async for name in store.find_overdue()] == []
            assert stores.clock is not None
            assert await store.expire_due(NAME, limit=9) == Expiry(0, stores.clock.now_ms + 1)
            await stores.pass_time(1)
            assert [name async for name in store.find_overdue()] == [NAME]
            assert await store.expire_due(NAME, limit=9) == Expiry(1, None, without_reward=1)
            assert [name async for name in store.find_overdue()] == []

        run(stores, scenario)

    def test_a_default_reward_of_zero_has_no_sign(self, stores: Stores) -> None:
        async def scenario(store: Store) -> None:
            await create(store, having=settings(reward_wait_ms=0, default_reward=-0.0))
            await record(store)
            assert await expired(store) == 1
            assert repr((await whole_log(store, NAME))[-1].event.default_reward) == "0.0"

        run(stores, scenario)

    def test_rows_that_were_imported_while_a_bandit_left_are_known_where_it_is_restored(self, stores: Stores) -> None:
        async def scenario(store: Store) -> None:
            await create(store)
            contents, place = await read_contents(store, NAME, None)
            while place is not None:
                more, place = await read_contents(store, NAME, place)
                contents += more
            await import_rows(store, import_part(0, 3))
            lines, other = [*contents, *map(write_line, await whole_log(store, NAME))], BanditName(NAME.tenant, "other")
            await store.finish_restore(other, await restore_lines(store, other, ended(lines), at_once=100), quota=9)
            assert await store.find_import(other, "year") == ImportProgress(3, 3)
            _, parts = await store.scan_imports(other, cursor=0)
            assert [replace(part, fingerprint="") for part in parts] == [ArchivedImport("year", 0, "", 3, 3, 2)]
            with pytest.raises(ConflictError):  # what the rows were is not known, so that none are the same
                await store.find_import_part(other, import_part(0, 3))
            assert (await import_rows(store, import_part(3, 2), other)).status is RecordStatus.RECORDED
            assert await store.find_import(other, "year") == ImportProgress(5, 5)

        run(stores, scenario)

    def test_a_bandit_that_is_deleted_is_announced(self, stores: Stores) -> None:
        async def scenario(store: Store) -> None:
            await create(store)
            async with listening(store) as following:
                await store.delete_bandit(NAME)
                assert await following() == NAME

        run(stores, scenario)

    def test_a_restored_bandit_is_one_of_its_own_tenant(self, stores: Stores) -> None:
        async def scenario(store: Store) -> None:
            await create(store)
            for bandit in ("one", "two", "three"):
                await create(store, BanditName("elsewhere", bandit))
            other = BanditName(NAME.tenant, "other")
            restore = await restore_lines(store, other, await archived(store, NAME), at_once=100)
            with pytest.raises(QuotaError):
                await store.finish_restore(other, restore, quota=1)
            assert (await store.finish_restore(other, restore, quota=2)).name == other

        run(stores, scenario)
