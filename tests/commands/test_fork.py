"""`topk-bandit fork` on a real store that has trimmed its log: files and store are replayed as one."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.commands.running import Ask, Running
from tests.contracts.clocks import StoreClock
from tests.contracts.harness import RedisStores

from topk_bandit.bandits.digests import digests_of
from topk_bandit.bandits.fold import begin, fold
from topk_bandit.client import Client
from topk_bandit.commands.cli import main
from topk_bandit.domain.bandits import BanditName, RewardRange
from topk_bandit.domain.operators import EventText
from topk_bandit.domain.quotas import Quota, Quotas
from topk_bandit.learning.limits import Limits
from topk_bandit.store.codec import decode_event
from topk_bandit.store.cold_log import ColdLog
from topk_bandit.store.embedded import EmbeddedStore
from topk_bandit.store.events import (
    BanditCreated,
    Expired,
    LoggedEvent,
    Recommended,
    SettingsChanged,
    Shown,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path
    from typing import Any

    from topk_bandit.bandits.model import Model
    from topk_bandit.store.log import Store

HOME = BanditName("acme", "home")
DAY_MS = 86_400_000
HALF_LIFE_MS, DEFAULT = 3 * DAY_MS, -1.5


class OnRedis(Running):
    """A service over a real store, whose time is the test's."""

    def __init__(self, url: str, folder: Path) -> None:
        self.clock = StoreClock()
        self._stores = RedisStores(url, clock=self.clock)
        super().__init__(ColdLog(folder), Quotas({Quota.BANDITS: 99}))

    async def _open_store(self) -> Store:
        return await self._stack.enter_async_context(self._stores.connect())

    async def trade_on(self, every: list[EventText], until: int) -> None:
        """Serve until the store has nothing before an event; each third slate earns nothing, and ends a day later.

        What the store has is added to `every`, so that nothing of it is missing.
        """
        client, number = self.client, 0
        while True:
            given = await client.recommend("home", [1.0, 0.1 * (number % 7)], request_id=f"asked {number}")
            if number % 3:
                await client.reward("home", given.id, float("i5" in given.items) + 0.01 * number)
            if number % 20 == 19:
                self.clock.now_ms += DAY_MS
                await client.update_bandit("home", near_share=0.001 * number)
            part = await self.read(HOME, len(every) + 1)
            every += part
            trimmed = (await self.store.read_texts(HOME, start=1, limit=0)).first_position > until
            if trimmed and number % 20 == 13:  # some slates are open
                return
            number += 1

    async def read(self, name: BanditName, first: int) -> tuple[EventText, ...]:
        await self.client.top_slates(name.bandit, [1.0, 0.0])  # learns all that is logged
        return tuple((await self.store.read_texts(name, start=first, limit=1000)).events)


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[OnRedis, list[EventText]]]:
    folder, every = tmp_path_factory.mktemp("cold"), list[EventText]()
    with (
        EmbeddedStore.start(tmp_path_factory.mktemp("data"), fsync="everysec") as store,
        pytest.MonkeyPatch.context() as m,
    ):
        service = OnRedis(store.url, folder)
        every += service.work(service.read(HOME, 1))
        m.setattr("topk_bandit.bandits.saved_snapshots.EVENTS_BETWEEN_SNAPSHOTS", 1)
        service.work(service.trade_on(every, until=150))
        held = service.work(service.store.read_texts(HOME, start=1, limit=0))
        for start in range(0, held.first_position + 5, 30):
            ColdLog(folder).append(HOME, held.incarnation, every[start : start + 30])
        yield service, every
        service.stop()


@pytest.fixture
def ask(
    lived: tuple[OnRedis, list[EventText]], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Ask:
    monkeypatch.setenv("TOPK_BANDIT_ADDRESS", lived[0].address)
    return Ask(capsys)


def posterior_of(service: OnRedis, bandit: str) -> str:
    return service.work(service.client.verify(bandit)).posterior_digest


def decoded(every: Iterable[EventText]) -> list[LoggedEvent]:
    return [LoggedEvent(one.position, one.at_ms, decode_event(one.text)) for one in every]


def folded(events: Iterable[LoggedEvent]) -> Model:
    model = None
    for logged in events:
        model = begin("any", logged, limits=Limits()) if model is None else fold(model, logged)
    assert model is not None
    return model


def all_events(service: OnRedis, bandit: str) -> list[LoggedEvent]:
    """Return the events of a fork: the store has them all, as long as no snapshot stands for them."""
    return decoded(service.work(service.store.read_texts(BanditName("acme", bandit), start=1, limit=10_000)).events)


def open_slates(events: Iterable[LoggedEvent]) -> list[str]:
    opened: dict[str, None] = {}
    for one in events:
        event = one.event
        if isinstance(event, Recommended):
            opened[event.recommendation.recommendation_id] = None
        else:
            opened.pop(getattr(event, "recommendation_id", ""), None)
    return list(opened)


def test_a_fork_with_the_same_settings_has_the_source_s_posterior(
    lived: tuple[OnRedis, list[EventText]], ask: Ask
) -> None:
    service, every = lived
    end = max(end for end in range(1, len(every) + 1) if not open_slates(decoded(every[:end])) and end > 1)
    first, last = ask("fork", "acme/home", "acme/same", f"--to={end}")
    resume = first.partition(" with ")[2]
    assert resume.startswith(f"--resume {end}-")
    assert last == f"made acme/same: {end} events"
    assert posterior_of(service, "same") == digests_of(folded(decoded(every[:end]))).posterior
    assert all_events(service, "same") == decoded(every[:end])
    (made,) = ask("fork", "acme/home", "acme/same", *resume.split())[1:]
    assert made == last, "what is there already is left as it is"


def test_slates_that_are_open_expire_and_what_is_learned_is_the_source_s(
    lived: tuple[OnRedis, list[EventText]], ask: Ask
) -> None:
    service, every = lived
    opened = open_slates(decoded(every))
    assert opened
    ask("fork", "acme/home", "acme/whole")
    assert [one.event for one in all_events(service, "whole")[len(every) :]] == [
        Expired(key, None, None) for key in opened
    ]
    source, whole = (service.work(service.client.stats(name)) for name in ("home", "whole"))
    assert whole.observation_count == source.observation_count
    assert whole.expiration_count == source.expiration_count + len(opened)
    here, there = (service.work(service.client.top_slates(name, [1.0, 0.3])).slates for name in ("home", "whole"))
    assert [one.slate for one in here] == [one.slate for one in there]
    assert [one.mean for one in here] == pytest.approx([one.mean for one in there], abs=1e-9)


def test_settings_of_the_fold_hold_from_the_beginning_and_others_from_the_end(
    lived: tuple[OnRedis, list[EventText]], ask: Ask
) -> None:
    service, every = lived
    words = (
        f"--half-life={HALF_LIFE_MS // 1000}",
        f"--default-reward={DEFAULT}",
        "--reward-range=-1e9:1e9",
        "--uniform-share=0.5",
        "--stage=live",
    )
    ask("fork", "acme/home", "acme/other", *words)
    wanted, shown = list[LoggedEvent](), dict[str, Shown]()
    for one in decoded(every):
        event = one.event
        if isinstance(event, Recommended):
            given = event.recommendation
            shown[given.recommendation_id] = Shown(event.request.context, given.slate, one.at_ms)
        if isinstance(event, BanditCreated | SettingsChanged):
            taken = RewardRange(-1e9, 1e9)
            changed = replace(event.settings, half_life_ms=HALF_LIFE_MS, default_reward=DEFAULT, reward_range=taken)
            event = replace(event, settings=changed)
        if isinstance(event, Expired):
            event = replace(event, default_reward=DEFAULT, shown=shown[event.recommendation_id])
        wanted.append(replace(one, event=event))
    count = Counter(type(one.event) for one in wanted)
    assert count[Expired] > 5
    assert count[SettingsChanged] > 2
    got = all_events(service, "other")
    assert got[: len(wanted)] == wanted
    last = got[-1].event
    assert isinstance(last, SettingsChanged)
    assert last.settings.exploration.uniform_share == 0.5
    assert posterior_of(service, "other") == digests_of(folded(got)).posterior
    assert posterior_of(service, "other") != posterior_of(service, "home")


def test_a_fork_that_was_stopped_goes_on_where_it_stood(
    lived: tuple[OnRedis, list[EventText]],
    ask: Ask,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    service, every = lived
    end, sent, bring = len(every) - 3, list[int](), Client.import_events

    def stopped(self: Client, bandit: str, lines: Iterable[str], **place: Any) -> Any:  # noqa: ANN401 - as the client has
        lines = [*lines]
        if len(sent) == 4:
            raise KeyboardInterrupt
        sent.extend([place["first_line"]] if lines else [])
        return bring(self, bandit, lines, **place)

    def counted(self: Client, bandit: str, lines: Iterable[str], **place: Any) -> Any:  # noqa: ANN401 - as the client has
        sent.append(place["first_line"])
        return bring(self, bandit, lines, **place)

    monkeypatch.setattr("topk_bandit.commands.operate.archives.LINES_AT_ONCE", 11)
    monkeypatch.setattr(Client, "import_events", stopped)
    words = ("fork", "acme/home", "acme/stopped", f"--to={end}", "--half-life=86400")
    capsys.readouterr()
    with pytest.raises(KeyboardInterrupt):
        main([*words])
    assert sent == [0, 11, 22, 33]
    resume = capsys.readouterr().out.split()[-2:]
    assert "NOT_FOUND" in ask("bandits", "get", "acme/stopped", status=1)[0], "no half fork can be asked"
    sent.clear()
    monkeypatch.setattr(Client, "import_events", counted)
    ask(*words[:3], words[4], *resume)
    assert (sent[0], min(sent[1:])) == (0, 44), "what had come is not sent again"
    ask("fork", "acme/home", "acme/at_once", f"--to={end}", "--half-life=86400")
    assert posterior_of(service, "stopped") == posterior_of(service, "at_once")
    assert "ALREADY_EXISTS" in ask(*words[:3], status=1)[0], "another fork does not take its place"
    ask("bandits", "delete", "acme/stopped", "--yes")
    before = service.work(service.store.get_bandit(BanditName("acme", "at_once"))).incarnation
    ask("bandits", "delete", "acme/at_once", "--yes")
    ask("fork", "acme/home", "acme/at_once", f"--to={end}", "--half-life=86400")
    assert service.work(service.store.get_bandit(BanditName("acme", "at_once"))).incarnation != before


def test_what_cannot_be_forked_is_refused_with_a_reason(lived: tuple[OnRedis, list[EventText]], ask: Ask) -> None:
    service, every = lived
    for words, problem in (
        (("acme/home", "other/home"), "NEW: must be another bandit of acme"),
        (("acme/home", "acme/home"), "NEW: must be another bandit of acme"),
        (("acme/none", "acme/new"), "NOT_FOUND"),
        (("acme/home", "acme/new", f"--to={len(every) + 1}"), f"--to: the log ends at event {len(every)}"),
        (("acme/home", "acme/new", "--resume=9"), "--resume: must be what the first line of the fork said"),
        (("acme/home", "acme/new", "--resume=9-0123456789abcdef", "--to=9"), "--resume: must be what"),
        (("acme/home", "acme/new", "--item-capacity=3"), "item_capacity: can only be raised"),
    ):
        assert problem in ask("fork", *words, status=1)[-1], words
    cold = next(service._cold.folder.glob("*/*/*/*.gz"))  # type: ignore[union-attr]
    gone = min(cold.parent.glob("*.gz"))
    moved = gone.rename(gone.with_suffix(".moved"))
    problem = ask("fork", "acme/home", "acme/new", status=1)[-1]
    moved.rename(gone)
    assert "a log is replayed from event 1 on" in problem
    assert "--cold-log-dir" in problem
    assert "NOT_FOUND" in ask("bandits", "get", "acme/new", status=1)[0]
