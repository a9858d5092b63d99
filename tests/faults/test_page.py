"""The page of all calls, in a real browser, on the real service."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from google.protobuf import json_format
from google.protobuf.message_factory import GetMessageClass
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from tests.browsers import PHONE, chromium, emulate_phone, emulate_scheme
from tests.faults.service import page, serving
from tests.rpc.keys import ring, shown
from tests.waiting import until

from topk_bandit.rpc.keys import print_keys
from topk_bandit.rpc.services import DESCRIPTORS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.browsers import Chrome
    from tests.faults.service import Service

UNSERVED = {"DeleteOperation"}
METHODS = [(service, method) for service in DESCRIPTORS for method in service.methods if method.name not in UNSERVED]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with serving(tmp_path_factory.mktemp("data")) as running:
        yield running


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    with chromium(tmp_path_factory.mktemp("browser")) as browser:
        yield browser


@pytest.fixture
def opened(service: Service, browser: Chrome) -> Chrome:
    open_page(service, browser)
    return browser


def open_page(service: Service, browser: Chrome) -> None:
    browser.get(f"http://{service.http_address}/")
    until(lambda: browser.find_element(By.TAG_NAME, "main").get_attribute("aria-busy") == "false", what="it is built")


def send(browser: Chrome, call: str) -> tuple[str, str]:
    """Press a call's button; return its status without the time, and its answer."""
    press(browser, f"#{call}-send")
    return answered(browser, call)


def press(browser: Chrome, selector: str) -> None:
    """Press what a selector finds, by keyboard: a pointer would have to wait until the page has scrolled."""
    browser.execute_script("document.querySelector(arguments[0]).focus()", selector)
    browser.switch_to.active_element.send_keys(Keys.ENTER)


def answered(browser: Chrome, call: str) -> tuple[str, str]:
    status = browser.find_element(By.ID, f"{call}-status")
    until(lambda: status.text not in {"", "sending"}, what=f"{call} is answered")
    return status.text.partition(",")[0], browser.find_element(By.ID, f"{call}-answer").text


def typed(browser: Chrome, call: str) -> str:
    return str(browser.find_element(By.ID, f"{call}-request").get_property("value"))


def test_a_slate_and_its_reward_with_the_send_buttons_alone(service: Service, opened: Chrome) -> None:
    assert send(opened, "BanditService_CreateBandit")[0] == "200 OK"
    assert json.loads(send(opened, "BanditService_UpsertItems")[1]) == {"itemCount": 3}
    status, text = send(opened, "RecommenderService_Recommend")
    slate = json.loads(text)
    assert (status, len(slate["itemIds"])) == ("200 OK", 2)
    assert json.loads(typed(opened, "RecommenderService_Reward"))["recommendationId"] == slate["recommendationId"]
    status, text = send(opened, "RecommenderService_Reward")
    assert (status, json.loads(text)["outcome"]) == ("200 OK", "REWARD_OUTCOME_ACCEPTED")
    assert opened.get_log("browser") == []
    with service.client(tenant="acme") as client:
        assert client.stats("home").observation_count == 1


def test_calls_show_the_key_that_was_typed(browser: Chrome, tmp_path: Path) -> None:
    (tmp_path / "keys.json").write_text(print_keys(ring()), encoding="utf-8")
    with serving(tmp_path / "data", f"--keys-file={tmp_path / 'keys.json'}") as locked:
        open_page(locked, browser)
        assert send(browser, "BanditService_CreateBandit")[0] == "401 refused"
        browser.find_element(By.ID, "key").send_keys(shown("root"))
        assert send(browser, "BanditService_CreateBandit")[0] == "200 OK"


def test_it_has_every_call_with_its_fields(opened: Chrome) -> None:
    articles = opened.find_elements(By.CSS_SELECTOR, "main section:not([aria-labelledby=messages]) > article")
    assert {one.get_attribute("id") for one in articles} == {f"{service.name}_{one.name}" for service, one in METHODS}
    links = opened.find_elements(By.CSS_SELECTOR, "nav a, dt a")
    targets = {str(link.get_property("hash"))[1:] for link in links}
    missing = "return arguments[0].filter(id => !document.getElementById(id))"
    assert opened.execute_script(missing, sorted(targets)) == []
    recommend = opened.find_element(By.ID, "RecommenderService_Recommend")
    press(opened, "#RecommenderService_Recommend summary")
    assert "candidateItemIds list of string\ncandidate_item_ids are the items that may be shown now" in recommend.text
    fetched = opened.execute_script("return performance.getEntriesByType('resource').map(entry => entry.name)")
    assert [address.rpartition("/")[2] for address in fetched if not address.startswith("data:")] == ["openapi.json"]


def test_first_requests_are_requests(service: Service) -> None:
    port = int(service.http_address.rpartition(":")[2])
    paths = json.loads(page(port, "/openapi.json")[1])["paths"]
    assert len(paths) == len(METHODS)
    for owner, method in METHODS:
        body = paths[f"/{owner.full_name}/{method.name}"]["post"]["requestBody"]["content"]["application/json"]
        json_format.ParseDict(body["example"], GetMessageClass(method.input_type)())


def test_what_was_typed_is_kept_until_it_is_reset(service: Service, opened: Chrome) -> None:
    call = "BanditService_GetBandit"
    first = typed(opened, call)
    area = opened.find_element(By.ID, f"{call}-request")
    area.clear()
    area.send_keys('{"name": "tenants/acme/bandits/none"}')
    open_page(service, opened)
    assert typed(opened, call) == '{"name": "tenants/acme/bandits/none"}'
    opened.find_element(By.ID, f"{call}-request").send_keys(Keys.CONTROL, Keys.ENTER)
    status, text = answered(opened, call)
    assert (status, json.loads(text)["code"]) == ("404 refused", "not_found")
    press(opened, f"#{call} button[type=button]")
    assert typed(opened, call) == first
    opened.get_log("browser")  # a browser tells the console of every 404


def test_everything_is_reached_by_keyboard_and_named(opened: Chrome) -> None:
    named = """
        const nameOf = one => one.labels && one.labels.length ? one.labels[0].textContent : one.textContent;
        return [...document.querySelectorAll("a, button, textarea, summary")]
          .filter(one => one.tabIndex < 0 || !nameOf(one).trim()).map(one => one.outerHTML);"""
    assert opened.execute_script(named) == []
    repeated = (
        "const ids = [...document.querySelectorAll('[id]')].map(one => one.id); return ids.length - new Set(ids).size"
    )
    assert opened.execute_script(repeated) == 0
    opened.find_element(By.TAG_NAME, "body").send_keys(Keys.TAB)
    assert opened.switch_to.active_element.text == "To the calls"
    levels = "return [...document.querySelectorAll('h1, h2, h3')].map(one => Number(one.tagName[1]))"
    found = opened.execute_script(levels)
    assert found[0] == 1
    assert all(after <= before + 1 for before, after in pairwise(found))


def test_it_fits_a_phone_in_light_and_dark(opened: Chrome) -> None:
    emulate_phone(opened)
    seen = set()
    for scheme in ("light", "dark"):
        emulate_scheme(opened, scheme)
        assert opened.execute_script("return document.documentElement.scrollWidth") == PHONE
        seen.add(opened.execute_script("return getComputedStyle(document.body).backgroundColor"))
        assert opened.execute_script(CONTRASTS) >= 4.5
    assert len(seen) == 2


CONTRASTS = """
    const channel = part => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
    const luminance = colour => {
      const [red, green, blue] = colour.match(/[0-9.]+/g).map(Number).map(one => channel(one / 255));
      return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
    };
    const behind = one => {
      const colour = getComputedStyle(one).backgroundColor;
      return colour === "rgba(0, 0, 0, 0)" ? behind(one.parentElement) : colour;
    };
    const contrast = one => {
      const both = [getComputedStyle(one).color, behind(one)].map(luminance).sort((a, b) => b - a);
      return (both[0] + 0.05) / (both[1] + 0.05);
    };
    const texts = document.querySelectorAll("p, a, dd, dt, .soft, button, textarea, label, summary");
    return Math.min(...[...texts].map(contrast));
"""
