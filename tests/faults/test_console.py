"""The operators' console, in a real browser, on the real service."""

from __future__ import annotations

import http.client
import json
import random
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from selenium.common.exceptions import NoSuchElementException, StaleElementReferenceException
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from tests.browsers import PHONE, chromium, emulate_phone, emulate_scheme
from tests.faults.service import serving
from tests.programs import leave_out
from tests.rpc.keys import key, ring, shown
from tests.servers import running_server, valkey_binary
from tests.waiting import PATIENCE, until

from topk_bandit.client import (
    Aggregation,
    Client,
    Count,
    Exclude,
    Filter,
    Group,
    Item,
    LiftVerdict,
    Pin,
    Stage,
    categorical,
    numeric,
)
from topk_bandit.domain.access import Scope
from topk_bandit.rpc.keys import print_keys

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.browsers import Chrome
    from tests.faults.service import Service

AXE = Path(__file__).parents[1] / "axe/node_modules/axe-core/axe.min.js"
CONSOLE = "--console-listen=127.0.0.1:0"
MANY = 1000
ROUNDS = 60
HOSTILE = "<img src=x onerror=alert(1)>"


class Shop(NamedTuple):
    """A service with a bandit that learned, and ids of slates that did and did not get a reward."""

    service: Service
    rewarded: str
    waiting: str


def learn(service: Service, *, tenant: str = "acme", rounds: int = ROUNDS) -> Shop:
    draw = random.Random(7)
    with service.client(tenant=tenant) as client:
        client.create_bandit("home", slate_size=3, item_capacity=20, context_dimension=2)
        client.upsert_items("home", [HOSTILE, *(f"item-{number}" for number in range(8))])
        for _ in range(rounds):
            rewarded = client.recommend("home", [1.0, draw.random()]).id
            client.reward("home", rewarded, draw.gauss(1.0, 0.2))
        return Shop(service, rewarded, client.recommend("home", [1.0, 0.5]).id)


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    with serving(tmp_path_factory.mktemp("data"), CONSOLE) as running:
        yield learn(running)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    with chromium(tmp_path_factory.mktemp("browser")) as browser:
        yield browser


def settled(browser: Chrome) -> None:
    until(lambda: browser.find_element(By.ID, "main").get_attribute("aria-busy") == "false", what="it is asked for")


def opened(browser: Chrome, service: Service, place: str = "") -> Chrome:
    browser.get("about:blank")  # an address that differs behind its # alone would load nothing anew
    browser.get_log("browser")  # what the page before told, whose bandit may be gone meanwhile
    browser.get(f"http://{service.console_address}/{place}")
    settled(browser)
    return browser


def said(browser: Chrome) -> str:
    return browser.find_element(By.ID, "status").text


def heading(browser: Chrome) -> str:
    return str(browser.execute_script("return document.querySelector('h1').textContent"))


def click(browser: Chrome, text: str) -> None:
    until(lambda: clicked(browser, text), what=f"{text} is there")
    until(lambda: heading(browser).endswith(text), what=f"{text} is opened")
    settled(browser)


def clicked(browser: Chrome, text: str) -> bool:
    """Click a link; the page may replace it meanwhile."""
    try:
        browser.find_element(By.LINK_TEXT, text).click()
    except (NoSuchElementException, StaleElementReferenceException):
        return False
    return True


def facts(browser: Chrome, section: str) -> dict[str, str]:
    script = """return [...document.querySelectorAll(`#${arguments[0]} dl.facts div`)]
        .map(one => [...one.children].map(part => part.textContent))"""
    return dict(browser.execute_script(script, section))


def rows(browser: Chrome, selector: str) -> list[list[str]]:
    script = """return [...document.querySelectorAll(arguments[0] + " tbody tr")].filter(row => !row.hidden)
        .map(row => [...row.children].map(cell => cell.textContent))"""
    found: list[list[str]] = browser.execute_script(script, selector)
    return found


def refused_or_served(service: Service, method: str, path: str, body: bytes = b"{}") -> http.client.HTTPResponse:
    host, _, port = service.console_address.rpartition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=PATIENCE)
    connection.request(method, path, body, {"Content-Type": "application/json"})
    response = connection.getresponse()
    response.read()
    connection.close()
    return response


def test_two_clicks_from_all_bandits_to_regret_over_time_and_to_why_a_slate_was_shown(
    shop: Shop, browser: Chrome
) -> None:
    opened(browser, shop.service)
    click(browser, "acme/home")
    with shop.service.client(tenant="acme") as client:
        stats = client.stats("home")
    label = browser.find_element(By.CSS_SELECTOR, "#regret svg[role=img]").get_attribute("aria-label")
    assert label == (
        f"Regret over time, added up. Newest: bound {stats.regret_bound_sum:.4g}, "
        f"estimated {stats.estimated_regret_sum:.4g}."
    )
    assert browser.find_elements(By.CSS_SELECTOR, "#regret polyline")
    remarks = [one.text for one in browser.find_elements(By.CSS_SELECTOR, "#remarks li")]
    assert [one for one in remarks if "rewards of any size" in one]
    now = facts(browser, "figures")
    assert (now["Slates"], now["Rows"]) == (str(ROUNDS + 1), str(stats.posterior_row_count))
    assert len(rows(browser, "#best")) == 5
    assert sum(int(row[-1]) for row in rows(browser, "#shown")) == 3 * (ROUNDS + 1)
    click(browser, shop.rewarded)
    assert [row[2].split(" with ")[0] for row in rows(browser, "#life")] == ["recommended", "rewarded"]
    assert rows(browser, "#life")[1][3].startswith("yes, in version ")
    assert browser.get_log("browser") == []


def test_the_parts_of_a_slate_add_up_to_its_mean(shop: Shop, browser: Chrome) -> None:
    opened(browser, shop.service, f"#/tenants/acme/bandits/home/recommendations/{shop.rewarded}")
    *parts, (_, total, _) = rows(browser, "#why [aria-label='What adds up to the mean']")
    reasons = facts(browser, "why")
    assert total == reasons["Mean"]
    assert sum(float(part[1]) for part in parts) == pytest.approx(float(total), abs=2e-3)  # of four digits each
    assert len(rows(browser, "#why [aria-label='Next best slates']")) == 11
    assert browser.find_elements(By.CSS_SELECTOR, "#why .bad") == []
    assert browser.get_log("browser") == []


def test_it_follows_a_slate_to_its_reward_by_itself(shop: Shop, browser: Chrome) -> None:
    opened(browser, shop.service, f"#/tenants/acme/bandits/home/recommendations/{shop.waiting}")
    assert [row[2] for row in rows(browser, "#life")] == ["recommended"]
    with shop.service.client(tenant="acme") as client:
        client.reward("home", shop.waiting, 1.5)
    until(lambda: [row[2] for row in rows(browser, "#life")] == ["recommended", "rewarded with 1.5"], what="it is told")


def test_it_follows_a_reward_that_changes(shop: Shop, browser: Chrome) -> None:
    changes = {"provisional_after": timedelta(0), "default_reward": 0.0, "reward_aggregation": Aggregation.SUM}
    with shop.service.client(tenant="changes") as client:
        client.create_bandit("home", slate_size=2, item_capacity=4, **changes)
        client.upsert_items("home", list("abcd"))
        try:
            slate = client.recommend("home").id
            until(lambda: client.stats("home").default_count == 1, what="the default is learned")
            client.reward("home", slate, 2.5, reward_id="order")
            opened(browser, shop.service, f"#/tenants/changes/bandits/home/recommendations/{slate}")
            life = ["recommended", "default reward 0 for now", "reward 2.5 came in", "reward 2.5 so far"]
            assert [row[2] for row in rows(browser, "#life")] == life
            assert "Its reward may change until" in browser.find_element(By.ID, "life").text
            opened(browser, shop.service, "#/tenants/changes/bandits/home")
            assert rows(browser, "#newest")[0][-1] == "2.5 so far"
            position = facts(browser, "figures")["Log position"]
            client.void_reward("home", slate)
            browser.execute_script("dispatchEvent(new Event('visibilitychange'))")
            until(lambda: facts(browser, "figures").get("Log position") not in {None, position}, what="it asks again")
            later = "const now = performance.now() + 60_000; performance.now = () => now"
            browser.execute_script(f"{later}; dispatchEvent(new Event('visibilitychange'))")
            until(lambda: rows(browser, "#newest")[0][-1] == "\N{EN DASH}", what="it asks for the log again")
            opened(browser, shop.service, f"#/tenants/changes/bandits/home/recommendations/{slate}")
            assert rows(browser, "#life")[-1][2] == "reward taken back: it counts for nothing"
            assert "Its reward may change" not in browser.find_element(By.ID, "life").text
        finally:
            client.delete_bandit("home")


def test_it_does_not_update_unless_it_is_wanted(shop: Shop, browser: Chrome) -> None:
    opened(browser, shop.service)
    browser.find_element(By.ID, "updating").click()
    browser.execute_script("window.asked = 0; const real = fetch; window.fetch = (...all) => (asked++, real(...all))")
    browser.execute_script("dispatchEvent(new Event('visibilitychange'))")
    assert browser.execute_script("return asked") == 0
    browser.find_element(By.ID, "updating").click()
    until(lambda: browser.execute_script("return asked") > 0, what="it asks again")


def test_it_is_sorted_by_what_is_pressed(shop: Shop, browser: Chrome) -> None:
    with shop.service.client(tenant="zoo") as client:
        client.create_bandit("busy", slate_size=2, item_capacity=4)
        client.upsert_items("busy", ["a", "b", "c"])
        for _ in range(ROUNDS + 20):
            client.recommend("busy")
    opened(browser, shop.service)

    def order(label: str) -> list[str]:
        press = """const named = one => one.textContent === arguments[0];
            const button = [...document.querySelectorAll('th button')].find(named);
            button.click(); return button.parentElement.getAttribute('aria-sort')"""
        assert browser.execute_script(press, label) in {"ascending", "descending"}
        return [row[0] for row in rows(browser, "#bandits")]

    assert order("Slates") == ["zoo/busy", "acme/home"]
    assert order("Slates") == ["acme/home", "zoo/busy"]
    assert order("Rewards") == ["acme/home", "zoo/busy"]
    with shop.service.client(tenant="zoo") as client:
        client.delete_bandit("busy")
    until(lambda: len(rows(browser, "#bandits")) == 1, what="it is gone")


def test_it_can_be_read_under_load(shop: Shop, browser: Chrome) -> None:
    stopped = Event()
    learner = Thread(target=keep_learning, args=(shop.service, stopped))
    learner.start()
    try:
        opened(browser, shop.service)
        click(browser, "load/home")
        until(lambda: len(browser.find_elements(By.CSS_SELECTOR, "#regret polyline")) == 2, what="regret is drawn")
        until(lambda: "Slates" in facts(browser, "figures"), what="figures are there")
        before = facts(browser, "figures").get("Slates")
        until(lambda: facts(browser, "figures").get("Slates") not in {None, before}, what="it updates by itself")
        # The newest slate moves while it is read, and its place may be empty for a moment.
        script = "const newest = document.querySelector('#newest a'); newest?.click(); return newest !== null"
        until(lambda: browser.execute_script(script), what="a slate is there")
        until(lambda: len(rows(browser, "#why [aria-label='What adds up to the mean']")) > 3, what="it is explained")
        assert browser.get_log("browser") == []
    finally:
        stopped.set()
        learner.join()
        with shop.service.client(tenant="load") as client:
            client.delete_bandit("home")


def keep_learning(service: Service, stopped: Event) -> None:
    while not stopped.wait(0.2):
        learn(service, tenant="load", rounds=5)


def test_it_shows_how_the_service_and_its_store_are(shop: Shop, browser: Chrome) -> None:
    opened(browser, shop.service)
    told = facts(browser, "service")
    assert told["Store"].startswith("valkey ")
    assert (told["Keeps what it acknowledges"], told["Awaited before that"]) == ("yes", "fsync")
    assert warning(browser) == ""
    calls = {row[0]: row[1:] for row in rows(browser, "#service")}
    recommended = calls["RecommenderService/Recommend"]
    assert int(recommended[0]) > ROUNDS
    median, p90, p99 = map(float, recommended[2:])
    assert 0.0 < median <= p90 <= p99


def test_it_warns_of_a_store_that_throws_data_away(browser: Chrome, tmp_path: Path) -> None:
    with (
        running_server(valkey_binary()) as store,
        serving(tmp_path, CONSOLE, f"--redis-url={store.url}") as service,
        store.client() as admin,
    ):
        opened(browser, service)
        assert warning(browser) == ""
        admin.config_set("maxmemory-policy", "allkeys-lru")
        until(lambda: "maxmemory-policy is allkeys-lru" in warning(browser), what="it warns")
        assert facts(browser, "service")["Keeps what it acknowledges"] == "no"
        admin.config_set("maxmemory-policy", "noeviction")
        until(lambda: warning(browser) == "", what="the warning goes")


def warning(browser: Chrome) -> str:
    return str(browser.execute_script("return document.querySelector('h1 + p.bad').textContent"))


def test_it_says_that_a_bandit_learns_from_buyers_alone_and_what_to_change(shop: Shop, browser: Chrome) -> None:
    with shop.service.client(tenant="buyers") as client:
        client.create_bandit("home", slate_size=2, item_capacity=4)
        client.upsert_items("home", list("abcd"))
        try:
            for _ in range(25):
                client.reward("home", client.recommend("home").id, 5.0)
            client.update_bandit("home", reward_wait=timedelta(milliseconds=1))
            for _ in range(75):
                client.recommend("home")
            until(lambda: client.stats("home").selection_share == 0.75, what="all waits are over")
            opened(browser, shop.service, "#/tenants/buyers/bandits/home")
            (remark,) = [one for one in remarks(browser) if "who buy alone" in one]
            assert "75.0 % of its slates end without a reward" in remark
            assert "topk-bandit bandits update --default-reward 0" in remark
            client.update_bandit("home", default_reward=0.0)
            for _ in range(10):
                client.recommend("home")
            until(lambda: client.stats("home").default_count == 10, what="defaults are learned")
            until(lambda: not [one for one in remarks(browser) if "who buy alone" in one], what="the remark goes")
        finally:
            client.delete_bandit("home")


def remarks(browser: Chrome) -> list[str]:
    script = "return [...document.querySelectorAll('#remarks li')].map(one => one.textContent)"
    return list(browser.execute_script(script))


def test_it_shows_by_when_rewards_come(shop: Shop, browser: Chrome) -> None:
    wait = timedelta(seconds=1)
    with shop.service.client(tenant="times") as client:
        client.create_bandit("home", slate_size=2, item_capacity=4, reward_wait=wait)
        client.upsert_items("home", list("abcd"))
        try:
            opened(browser, shop.service, "#/tenants/times/bandits/home")
            assert "Not known yet" in browser.find_element(By.ID, "rewards").text

            def is_known() -> bool:
                client.reward("home", client.recommend("home").id, 2.0)
                return client.stats("home").reward_times.slate_count > 0

            until(is_known, what="the first waits are over")
            times = client.stats("home").reward_times
            assert (times.half_by, times.almost_all_by, times.reward_wait) == (wait, wait, wait)
            opened(browser, shop.service, "#/tenants/times/bandits/home")
            told = facts(browser, "rewards")
            assert (told["Half has come by"], told["99 % by"], told["Slates wait"]) == ("1 s", "1 s", "1 s")
            assert rows(browser, "#rewards") == [["1 s", "100.0 %"]]
            assert browser.get_log("browser") == []
        finally:
            client.delete_bandit("home")


def test_it_shows_what_a_bandit_is_worth(shop: Shop, browser: Chrome) -> None:
    """From the first look to the guardrail, of a bandit whose slates earn less than the baseline slate."""
    with shop.service.client(tenant="worth") as client:
        client.create_bandit("home", slate_size=2, item_capacity=4, baseline_item_ids=("a", "b"))
        client.upsert_items("home", list("abcd"))
        try:
            opened(browser, shop.service, "#/tenants/worth/bandits/home")
            assert "Nothing to compare with" in browser.find_element(By.ID, "worth").text
            for reward in (0.0, 1.0):  # a gain has a unit from then on
                client.reward("home", client.recommend("home").id, reward)
            client.update_bandit("home", stage=Stage.SHADOW)
            known = client.stats("home").log_position
            for _ in range(3):
                client.recommend("home", min_model_version=known)
            client.update_bandit("home", stage=Stage.LIVE, control_share=0.5)
            opened(browser, shop.service, "#/tenants/worth/bandits/home")
            told = facts(browser, "worth")
            assert (told["Slates in shadow"], told["Verdict"]) == (
                "3",
                "too early: a group has too few slates that count",
            )
            for number in range(700):
                given = client.recommend("home")
                client.reward("home", given.id, 0.25 * (number % 2) + (given.group is Group.CONTROL))
            until(lambda: client.stats("home").lift.verdict is LiftVerdict.WORSE, what="the lift is decided")
            opened(browser, shop.service, "#/tenants/worth/bandits/home")
            assert facts(browser, "worth")["Verdict"] == "decided: the bandit's group earns less"
            bandit, control, *days = rows(browser, "#worth")
            lift = client.stats("home").lift
            assert bandit[:3] == ["Bandit", str(lift.bandit.drawn), str(lift.bandit.counted)]
            assert control[:3] == ["Control", str(lift.control.drawn), str(lift.control.counted)]
            assert (float(bandit[3]), float(control[3])) == pytest.approx(
                (lift.bandit.mean_reward, lift.control.mean_reward), rel=1e-3
            )
            assert [(day[0], int(day[1]), int(day[2])) for day in days] == [
                (f"{datetime.fromtimestamp(day.start_ms / 1e3, UTC):%Y-%m-%d}", day.bandit.counted, day.control.counted)
                for day in lift.days
            ]
            client.update_bandit("home", guardrail_margin=0.2)
            until(lambda: client.get_bandit("home").stage is Stage.SHADOW, what="the guardrail takes it off")
            until(
                lambda: [one for one in remarks(browser) if "guardrail put it in shadow" in one], what="it is remarked"
            )
            assert browser.get_log("browser") == []
        finally:
            client.delete_bandit("home")


@pytest.mark.parametrize(
    ("nine_tenths", "almost_all", "slates", "said"),
    [
        ("7200s", "86400s", 100, "99 % of what slates earn has come by 1 d, and they wait 14 d"),
        ("7200s", "604800s", 100, None),
        ("7200s", "86400s", 99, None),
        ("1209600s", "1209600s", 100, "More than a tenth of what slates earn comes at the end of their wait, 14 d"),
    ],
)
def test_it_says_if_slates_wait_too_long_or_not_long_enough(
    shop: Shop, browser: Chrome, nine_tenths: str, almost_all: str, slates: int, said: str | None
) -> None:
    opened(browser, shop.service)
    times = {"points": [{"delay": almost_all, "share": 1}], "slateCount": str(slates), "halfBy": "60s",
             "nineTenthsBy": nine_tenths, "almostAllBy": almost_all, "rewardWait": "1209600s"}  # fmt: skip
    script = """const [current, done] = arguments;
        import("/bandit.js").then(({ remarksOn }) => done(remarksOn(current).textContent))"""
    remark = browser.execute_async_script(script, {"hasRewardRange": True, "rewardTimes": times})
    assert remark.startswith(said) if said else remark == "None."


CHEAP, SOUPS = Filter("price < 20", may_relax=True), Count("category", "soup", at_most=1)
IN_WORDS = ["at most 1 of category soup", "filter price < 20 (may be relaxed)"]
AS_JSON = {
    "rules": [
        {"count": {"group": {"feature": "category", "value": "soup"}, "atMost": 1}},
        {"filter": "price < 20", "mayRelax": True},
    ]
}
MENU = "#/tenants/rules/bandits/menu"


@contextmanager
def menu(service: Service, secret: str | None = None) -> Iterator[Client]:
    """Make a bandit with rules, and delete it."""
    with Client(service.address, tenant="rules", timeout=PATIENCE, key=secret) as client:
        schema = [numeric("price"), categorical("category", values=["soup", "cake"])]
        client.create_bandit("menu", slate_size=2, item_capacity=9, item_schema=schema, rules=[SOUPS, CHEAP])
        items = [
            ("leek", 5, "soup"),
            ("fish", 9, "soup"),
            ("plum", 4, "cake"),
            ("nut", 6, "cake"),
            ("gold", 90, "cake"),
        ]
        client.upsert_items("menu", [Item(one, features={"price": price, "category": of}) for one, price, of in items])
        try:
            yield client
        finally:
            client.delete_bandit("menu")


def test_it_shows_rules_and_which_were_given_up(shop: Shop, browser: Chrome) -> None:
    with menu(shop.service) as client:
        for _ in range(3):
            client.recommend("menu")
        client.recommend("menu", rules=[Pin(1, ["gold"])])
        client.recommend("menu", rules=[Exclude(["leek"])])
        opened(browser, shop.service, MENU)
        told = [one.text for one in browser.find_elements(By.CSS_SELECTOR, "#rules .columns ol li")]
        assert told == IN_WORDS
        assert json.loads(text_of(browser, "#rules pre")) == AS_JSON
        lately = facts(browser, "rules")
        assert (lately["Newest slates of the log"], lately["With rules of their request"]) == ("5", "2")
        assert (lately["Kept every rule"], lately["Gave up a rule"]) == ("4", "1")
        [[rule, slates, _]] = rows(browser, "#rules [aria-label='Given up lately']")
        assert (rule, slates) == ("filter price < 20", "1")
        assert browser.get_log("browser") == []


def test_it_says_why_items_are_absent(shop: Shop, browser: Chrome) -> None:
    with menu(shop.service) as client:
        slate = client.recommend("menu", rules=[Exclude(["leek"])])
        relaxed = client.recommend("menu", rules=[Pin(1, ["gold"])])
        opened(browser, shop.service, f"{MENU}/recommendations/{slate.id}")
        assert facts(browser, "about")["Rules given up"] == "none"
        other = next(iter({"fish", "plum", "nut"} - {*slate.items}))
        browser.find_element(By.ID, "absent-items").send_keys(f"leek\ngold\nnothing\n{other}\n{slate.items[0]}")
        browser.find_element(By.CSS_SELECTOR, "#why-not button").click()
        until(lambda: len(rows(browser, "#why-not")) == 4, what="it is answered")
        assert rows(browser, "#why-not")[:3] == [
            ["leek", "a rule excludes it", "exclude leek"],
            ["gold", "it does not meet a rule's filter", "filter price < 20"],
            ["nothing", "the bandit does not have it", "\N{EN DASH}"],
        ]
        assert rows(browser, "#why-not")[3][0] == other
        opened(browser, shop.service, f"{MENU}/recommendations/{relaxed.id}")
        assert facts(browser, "about")["Rules given up"] == "filter price < 20"
        assert browser.get_log("browser") == []


def edit(browser: Chrome, text: str, button: str = "Check") -> str:
    """Write rules into the form, press a button, and return what is said then."""
    script = """const text = document.getElementById("rules-text");
        document.getElementById("rules-edit").open = true;
        text.value = arguments[0]; text.dispatchEvent(new Event("input", { bubbles: true }));"""
    browser.execute_script(script, text)
    press(browser, button)
    return after_edit(browser)


def press(browser: Chrome, button: str) -> None:
    script = """const named = one => one.textContent === arguments[0];
        [...document.querySelectorAll("#rules-edit button")].find(named).click();"""
    browser.execute_script(script, button)


def after_edit(browser: Chrome) -> str:
    until(lambda: text_of(browser, "#rules-said p"), what="it is said")
    return text_of(browser, "#rules-said p")


def text_of(browser: Chrome, selector: str) -> str:
    """Return the text of a part that the page may replace at any moment; empty if there is none."""
    return str(browser.execute_script("return document.querySelector(arguments[0])?.textContent ?? ''", selector))


def can_save(browser: Chrome) -> bool:
    return browser.find_element(By.CSS_SELECTOR, "#rules-edit button[type=button]").is_enabled()


def test_rules_are_checked_and_nothing_is_saved_without_keys(shop: Shop, browser: Chrome) -> None:
    with menu(shop.service) as client:
        opened(browser, shop.service, MENU)
        assert not can_save(browser)
        assert edit(browser, '{"rules": [{"filter": "price < 7"}]}') == (
            "They leave 3 of 5 available items, and some slates keep them all."
        )
        assert can_save(browser)
        assert [row[1] for row in rows(browser, "#rules-said")]
        assert "no slate keeps rules[0]: filter price < 1" in edit(browser, '{"rules": [{"filter": "price < 1"}]}')
        assert not can_save(browser)
        clash = '{"rules": [{"pin": {"position": 1, "itemIds": ["gold"]}}, {"filter": "price < 7", "mayRelax": true}]}'
        assert edit(browser, clash) == "No slate keeps all of them. Given up: filter price < 7."
        assert "proposed.rules[0].filter: at character 1: items have no feature 'prize'" in edit(
            browser, '{"rules": [{"filter": "prize < 7"}]}'
        )
        for wrong in ("{", "[]", "null", '{"rules": {}}', '{"rules": [], "more": 1}'):
            assert edit(browser, wrong).startswith("This is no JSON of rules")
            assert not can_save(browser)
        assert edit(browser, '{"rules": []}').startswith("They leave 5 of 5")
        browser.get_log("browser")  # a browser tells the console of every 400
        press(browser, "Save")
        until(lambda: "the service has no keys" in after_edit(browser), what="it is refused")
        assert client.get_bandit("menu").rules == (SOUPS, CHEAP)
        browser.get_log("browser")


def test_an_operator_with_the_right_key_changes_rules(browser: Chrome, tmp_path: Path) -> None:
    scopes = {"third": [Scope.OPERATE, Scope.MANAGE, Scope.RECOMMEND], "second": [Scope.OPERATE]}
    keys = print_keys(ring(*(key(name, "rules", of) for name, of in scopes.items())))
    (tmp_path / "keys.json").write_text(keys, encoding="utf-8")
    with (
        serving(tmp_path / "data", CONSOLE, f"--keys-file={tmp_path / 'keys.json'}") as locked,
        menu(locked, shown("third")) as client,
    ):
        opened(browser, locked, MENU)
        use(browser, shown("second"), tenant="rules")
        until(lambda: said(browser) == "", what="it is let in")
        wanted = '{"rules": [{"filter": "price < 7"}]}'
        edit(browser, wanted)
        press(browser, "Save")
        until(lambda: "needs a key with the scope manage" in after_edit(browser), what="it is refused")
        assert client.get_bandit("menu").rules == (SOUPS, CHEAP)
        use(browser, shown("third"), tenant="rules")
        opened(browser, locked, MENU)  # a view of its own: the one before may be replaced at any moment
        edit(browser, wanted)
        client.update_bandit("menu", rules=[SOUPS])
        press(browser, "Save")
        until(lambda: "changed elsewhere meanwhile" in after_edit(browser), what="it is refused")
        assert client.get_bandit("menu").rules == (SOUPS,)
        until(lambda: "price" not in text_of(browser, "#rules pre"), what="it is shown")
        edit(browser, wanted)
        press(browser, "Save")
        until(lambda: after_edit(browser).startswith("Saved."), what="it is saved")
        assert client.get_bandit("menu").rules == (Filter("price < 7"),)
        until(
            lambda: text_of(browser, "#rules .columns ol") == "filter price < 7",
            what="it is shown in words",
        )
    browser.get_log("browser")


def test_axe_finds_nothing_in_rules_at_both_widths(shop: Shop, browser: Chrome) -> None:
    if not AXE.is_file():
        leave_out("axe-core", "make axe")
    with menu(shop.service) as client:
        slate = client.recommend("menu", rules=[Pin(1, ["gold"])])
        for width in ("desktop", "phone"):
            if width == "phone":
                emulate_phone(browser)
            for place in (MENU, f"{MENU}/recommendations/{slate.id}"):
                opened(browser, shop.service, place)
                if place == MENU:
                    edit(browser, json.dumps(AS_JSON))
                for scheme in ("light", "dark"):
                    emulate_scheme(browser, scheme)
                    assert violations(browser) == []
                if width == "phone":
                    assert browser.execute_script("return document.documentElement.scrollWidth") == PHONE
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        browser.get_log("browser")


def test_names_are_text_and_no_markup(shop: Shop, browser: Chrome) -> None:
    opened(browser, shop.service, "#/tenants/acme/bandits/home")
    assert HOSTILE in [row[0] for row in rows(browser, "#shown")]
    assert browser.find_elements(By.CSS_SELECTOR, "main img") == []


def test_a_bandit_without_slates_is_shown(shop: Shop, browser: Chrome) -> None:
    with shop.service.client(tenant="new") as client:
        client.create_bandit("empty", slate_size=2, item_capacity=4, context_dimension=3)
        try:
            opened(browser, shop.service, "#/tenants/new/bandits/empty")
            assert facts(browser, "figures")["Slates"] == "0"
            assert "No slate was given out" in browser.find_element(By.ID, "best").text
            assert browser.get_log("browser") == []
        finally:
            client.delete_bandit("empty")


def test_what_is_not_there_is_said(shop: Shop, browser: Chrome) -> None:
    opened(browser, shop.service, "#/tenants/acme/bandits/none")
    assert said(browser) == "tenants/acme/bandits/none not found"
    browser.get_log("browser")  # a browser tells the console of every 404


def test_all_of_a_thousand_bandits_are_found(shop: Shop, browser: Chrome) -> None:
    with shop.service.client(tenant="many", timeout=PATIENCE) as client, ThreadPoolExecutor(16) as threads:
        create = lambda number: client.create_bandit(f"shelf-{number:04}", slate_size=2, item_capacity=4)  # noqa: E731
        list(threads.map(create, range(MANY)))
    opened(browser, shop.service)
    until(lambda: len(rows(browser, "#bandits")) == MANY + 1, what="all are listed")
    assert browser.find_element(By.ID, "found").text == "1,001 bandits: 1 learning, 1,000 resting"
    home = dict(zip(("name", "state", "slates"), rows(browser, "#bandits")[0], strict=False))
    assert home == {"name": "acme/home", "state": "learns", "slates": str(ROUNDS + 1)}
    browser.find_element(By.ID, "search").send_keys("MANY 042")
    assert [row[0] for row in rows(browser, "#bandits")] == [
        "many/shelf-0042", *(f"many/shelf-{number:04}" for number in range(420, 430))
    ]  # fmt: skip
    assert browser.find_element(By.ID, "found").text == "11 of 1,001 bandits"
    paints = "return performance.getEntriesByName('first-contentful-paint')[0].startTime"
    print(f"first contentful paint with {MANY} bandits: {browser.execute_script(paints):.0f} ms")
    assert browser.get_log("browser") == []


def test_it_asks_for_a_key_and_keeps_it_for_the_tab_alone(browser: Chrome, tmp_path: Path) -> None:
    keys = print_keys(ring(key("second", "acme", [Scope.OPERATE]), key("third", "*", [Scope.RECOMMEND])))
    (tmp_path / "keys.json").write_text(keys, encoding="utf-8")
    with serving(tmp_path / "data", CONSOLE, f"--keys-file={tmp_path / 'keys.json'}") as locked:
        opened(browser, locked)
        assert said(browser) == "The service asks for a key."
        use(browser, shown("third"))
        until(lambda: "operate" in said(browser), what="the scope is asked for")
        use(browser, shown("second"), tenant="acme")
        until(lambda: said(browser) == "", what="it is let in")
        kept = browser.execute_script("return [{...sessionStorage}, {...localStorage}, document.cookie]")
        assert kept == [{"topk-bandit key": shown("second"), "topk-bandit tenant": "acme"}, {}, ""]
        assert shown("second") not in browser.current_url
        use(browser, "", tenant="")
        until(lambda: said(browser) == "The service asks for a key.", what="the key is forgotten")
        use(browser, "\u043a\u043b\u044e\u0447")  # no header can have these letters
        until(lambda: said(browser) == "The key has letters that no key has: copy it again.", what="it is no key")
    browser.get_log("browser")  # a browser tells the console of every 401


def use(browser: Chrome, text: str, *, tenant: str = "") -> None:
    for name, value in (("key", text), ("tenant", tenant)):
        field = browser.find_element(By.ID, name)
        field.clear()
        field.send_keys(value)
    field.send_keys(Keys.ENTER)


def test_nothing_can_be_changed_there(shop: Shop) -> None:
    changes = ("DeleteBandit", "CreateBandit", "UpdateBandit", "UpsertItems", "ResetBandit")
    for call in (*(f"BanditService/{change}" for change in changes), "OperatorService/ImportEvents"):
        assert refused_or_served(shop.service, "POST", f"/topk_bandit.v1.{call}").status == 404
    served = refused_or_served(shop.service, "POST", "/topk_bandit.v1.OperatorService/ListBanditOverviews",
        json.dumps({"parent": "tenants/*"}).encode())  # fmt: skip
    assert served.status == 200
    host, _, port = shop.service.http_address.rpartition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=PATIENCE)
    connection.request("GET", "/main.js")
    assert connection.getresponse().status == 404
    connection.close()


@pytest.mark.parametrize("path", ["/", "/main.js", "/console.css"])
def test_its_policy_is_strict(shop: Shop, path: str) -> None:
    response = refused_or_served(shop.service, "GET", path, b"")
    policy = response.headers["Content-Security-Policy"]
    assert response.status == 200
    assert "default-src 'none'" in policy
    assert "require-trusted-types-for 'script'" in policy
    assert "unsafe" not in policy


def places(shop: Shop) -> tuple[str, str, str]:
    home = "#/tenants/acme/bandits/home"
    return "", home, f"{home}/recommendations/{shop.rewarded}"


def test_axe_finds_nothing_in_light_and_dark(shop: Shop, browser: Chrome) -> None:
    if not AXE.is_file():
        leave_out("axe-core", "make axe")
    for place in places(shop):
        opened(browser, shop.service, place)
        for summary in browser.find_elements(By.CSS_SELECTOR, "#regret summary"):
            summary.click()
        for scheme in ("light", "dark"):
            emulate_scheme(browser, scheme)
            assert violations(browser) == []


def violations(browser: Chrome) -> list[Any]:
    browser.execute_script(AXE.read_text(encoding="utf-8"))
    run = """const [done] = arguments, told = one => [one.id, one.nodes[0].html];
        axe.run().then(found => done([found.passes.length, found.violations.map(told)]));"""
    passed, found = browser.execute_async_script(run)
    assert passed > 15
    return list(found)


def test_it_is_used_by_keyboard(shop: Shop, browser: Chrome) -> None:
    opened(browser, shop.service)
    browser.find_element(By.TAG_NAME, "body").send_keys(Keys.TAB)
    assert browser.switch_to.active_element.text == "To the content"
    browser.switch_to.active_element.send_keys(Keys.ENTER)
    reached = ""
    for _ in range(20):
        browser.switch_to.active_element.send_keys(Keys.TAB)
        reached = browser.switch_to.active_element.text
        if reached == "acme/home":
            break
    assert reached == "acme/home"
    browser.switch_to.active_element.send_keys(Keys.ENTER)
    until(lambda: heading(browser) == "acme/home", what="it is opened")
    assert browser.switch_to.active_element.get_attribute("id") == "main"


def test_it_fits_a_phone(shop: Shop, browser: Chrome) -> None:
    emulate_phone(browser)
    for place in places(shop):
        opened(browser, shop.service, place)
        assert browser.execute_script("return document.documentElement.scrollWidth") == PHONE
