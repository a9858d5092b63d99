"""The page that asks people, in a real browser."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from tests.browsers import PHONE, chromium, emulate_phone, emulate_scheme
from tests.programs import leave_out
from tests.rpc.harness import channel_to
from tests.rpc.keys import key, ring, shown
from tests.rpc.studies import START_MS, study_server
from tests.waiting import PATIENCE, until

from topk_bandit.client import Client, StudyLink
from topk_bandit.domain.access import Scope
from topk_bandit.domain.studies import (
    Answer,
    ChoiceAnswer,
    DeclinedAnswer,
    DeclineReason,
    LoggedStudyEvent,
    QuestionAnswered,
    QuestionsAsked,
    RankingAnswer,
    RatingsAnswer,
    TiersAnswer,
)
from topk_bandit.rpc.http_interfaces import CONSOLE_WITH_CHANGES
from topk_bandit.store.study_archives import read_study_line
from topk_bandit.studies.model import LinkPlace, begin, fold
from topk_bandit.v1 import preference_service_pb2 as pb
from topk_bandit.v1.preference_service_pb2_grpc import PreferenceServiceStub

if TYPE_CHECKING:
    from collections.abc import Iterator

    from selenium.webdriver.remote.webelement import WebElement
    from tests.browsers import Chrome
    from tests.rpc.harness import RunningServer

AXE = Path(__file__).parents[1] / "axe/node_modules/axe-core/axe.min.js"
ASK = Path(__file__).parents[2] / "service/topk_bandit/rpc/ask"
HOSTILE = "<img src=x onerror=alert(1)>"
NAME = "tenants/acme/studies/pair"
ITEMS = ["tea", "coffee", "milk", "cocoa", HOSTILE]
TITLES = {"tea": "Green tea & mint", "milk": "Milk"}
SIZES = {"ranking": 4, "choice": 3, "pair": 2, "ratings": 3}


class Shop(NamedTuple):
    server: RunningServer
    client: Client
    address: str

    def link(self, kind: str, **settings: Any) -> StudyLink:  # noqa: ANN401, of many types
        ends = datetime.fromtimestamp(START_MS / 1e3, UTC) + timedelta(days=1)
        return self.client.create_study_link(
            kind, expire_time=ends, **{"most_answers": 50, "answers_each": 3, **settings}
        )

    def page_of(self, link: StudyLink) -> str:
        return f"{self.address}/ask#tenants/acme/studies/{link.study}/{link.token}"

    def answers(self, link: StudyLink) -> list[tuple[LinkPlace, tuple[str, ...], Answer]]:
        """Return the answers that came through a link, with the items that they are about."""
        read = map(read_study_line, self.client.export_study(link.study))
        logged = [one for one in read if isinstance(one, LoggedStudyEvent)]
        model = reduce(fold, logged[1:], begin("any", logged[0]))
        events = [one.event for one in logged]
        places = [LinkPlace.of(one.request_id) for one in events if isinstance(one, QuestionsAsked)]
        given = [one for one in events if isinstance(one, QuestionAnswered)]
        pairs = zip(places, given, strict=True)
        found = [(place, model.question(one.question).item_ids, one.answer) for place, one in pairs]
        return [(one, ids, said) for one, ids, said in found if one is not None and one.link_id == link.id]


@pytest.fixture(scope="module")
def shop() -> Iterator[Shop]:
    with study_server() as server, Client(server.target, tenant="acme", timeout=PATIENCE) as client:
        address = server.open_http()
        for kind, size in SIZES.items():
            about: dict[str, Any] = {"answer_kind": kind, "list_size": size, "budget": 300, "titles": TITLES}
            client.create_study(kind, ITEMS, pictures={"tea": f"https://127.0.0.1:1/{kind}.png"}, **about)
            client.wait_for_design(kind)
        yield Shop(server, client, address)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    with chromium(tmp_path_factory.mktemp("browser")) as browser:
        browser.set_window_size(900, 1200)  # a drag stays within it
        yield browser


def opened(browser: Chrome, shop: Shop, link: StudyLink) -> None:
    browser.get("about:blank")
    browser.get(shop.page_of(link))
    settled(browser)


def time_ms() -> int:
    return time.time_ns() // 1_000_000


def settled(browser: Chrome) -> None:
    until(lambda: browser.find_element(By.ID, "main").get_attribute("aria-busy") == "false", what="it is there")


def heading(browser: Chrome) -> str:
    return str(browser.execute_script("return document.querySelector('h2').textContent"))


def await_heading(browser: Chrome, text: str) -> None:
    until(lambda: heading(browser) == text, what=text)


def items(browser: Chrome) -> list[WebElement]:
    return browser.find_elements(By.CSS_SELECTOR, "#items .item")


def names(browser: Chrome) -> list[str]:
    script = "return [...document.querySelectorAll('#items .item .name')].map(one => one.textContent)"
    found: list[str] = browser.execute_script(script)
    return found


def press(browser: Chrome, text: str) -> None:
    [button] = [one for one in browser.find_elements(By.CSS_SELECTOR, ".actions button") if one.text == text]
    button.send_keys(Keys.ENTER)


def ids(shown: list[str]) -> list[str]:
    titles = {title: item for item, title in TITLES.items()}
    return [titles.get(one, one) for one in shown]


def ranked(answer: tuple[LinkPlace, tuple[str, ...], Answer]) -> list[list[str]]:
    """Return the tiers of an answer, best first, as item ids."""
    _, shown, said = answer
    assert isinstance(said, RankingAnswer | TiersAnswer)
    tiers = [[place] for place in said.places] if isinstance(said, RankingAnswer) else [*map(list, said.tiers)]
    return [[shown[place] for place in tier] for tier in tiers]


def answered(shop: Shop, link: StudyLink, count: int) -> list[tuple[LinkPlace, tuple[str, ...], Answer]]:
    until(lambda: len(shop.answers(link)) >= count, what=f"{count} answers came")
    assert len(shop.answers(link)) == count
    return shop.answers(link)


def errors(browser: Chrome) -> list[str]:
    """Return what the page told its console, but for pictures that nobody serves."""
    return [one["message"] for one in browser.get_log("browser") if "127.0.0.1:1/" not in one["message"]]


def test_it_is_small() -> None:
    assert sum(file.stat().st_size for file in ASK.iterdir()) <= 30 * 1024


def test_rankings_by_taps_keys_and_drags(shop: Shop, browser: Chrome) -> None:
    link = shop.link("ranking", title="Which drink?", thanks="Thanks a lot")
    opened(browser, shop, link)
    shown = browser.execute_script(
        "return Math.max(...performance.getEntriesByType('resource').map(one => one.responseEnd))"
    )
    print(f"the first list is there after {shown:.0f} ms")
    assert browser.title == "Which drink?"
    assert heading(browser) == "Question 1 of 3"
    first = ids(names(browser))
    next_button = browser.find_element(By.CSS_SELECTOR, ".next")
    assert not next_button.is_enabled()
    for name in (first[2], first[0]):
        items(browser)[ids(names(browser)).index(name)].click()
    assert ids(names(browser))[:2] == [first[2], first[0]], "what has a place goes up"
    assert browser.find_element(By.ID, "said").text.endswith(" is 2")
    browser.refresh()
    settled(browser)
    assert ids(names(browser))[:2] == [first[2], first[0]], "a reload keeps the question and its answer so far"
    ActionChains(browser).double_click(browser.find_element(By.CSS_SELECTOR, ".next")).perform()
    await_heading(browser, "Question 2 of 3")
    [one] = answered(shop, link, 1)
    assert ranked(one)[:2] == [[first[2]], [first[0]]]
    assert sorted(ranked(one)[2]) == sorted([first[1], first[3]])

    browser.execute_script("document.querySelector('h2').focus()")  # which the second click has left
    second = ids(names(browser))
    keys = ActionChains(browser).send_keys(Keys.TAB, Keys.ENTER, Keys.TAB, Keys.ENTER)
    keys.perform()
    order = ids(names(browser))
    assert order[:2] == second[:2]
    browser.switch_to.active_element.send_keys(Keys.ARROW_UP)
    assert ids(names(browser))[:2] == second[1::-1]
    browser.find_element(By.CSS_SELECTOR, ".tie").click()
    browser.find_element(By.CSS_SELECTOR, ".next").send_keys(Keys.ENTER)
    await_heading(browser, "Question 3 of 3")
    assert browser.switch_to.active_element.text == "Question 3 of 3"
    assert sorted(ranked(answered(shop, link, 2)[1])[0]) == sorted(second[:2])

    third = ids(names(browser))
    grips = browser.find_elements(By.CSS_SELECTOR, ".grip")
    top = browser.find_element(By.CSS_SELECTOR, "#items").rect["y"]
    lift = int(top - grips[3].rect["y"] - grips[3].rect["height"])
    ActionChains(browser).click_and_hold(grips[3]).move_by_offset(0, lift // 2).move_by_offset(
        0, lift - lift // 2
    ).release().perform()
    assert ids(names(browser))[0] == third[3]
    grips = browser.find_elements(By.CSS_SELECTOR, ".grip")
    fall = int(grips[3].rect["y"] - grips[0].rect["y"] + grips[3].rect["height"] / 2)
    ActionChains(browser).click_and_hold(grips[0]).move_by_offset(0, fall // 2).move_by_offset(
        0, fall - fall // 2
    ).release().perform()
    assert ids(names(browser)) == third
    press(browser, "Next")
    await_heading(browser, "Thanks a lot")
    assert ranked(answered(shop, link, 3)[2]) == [[one] for one in third]
    assert {place.respondent for place, _, _ in shop.answers(link)} == {shop.answers(link)[0][0].respondent}
    assert errors(browser) == []


def test_an_answer_that_something_between_refuses_waits_until_it_arrives(shop: Shop, browser: Chrome) -> None:
    """A gateway without its route, or a filter of attacks, has JSON of its own: it says nothing of the answer."""
    link = shop.link("choice")
    opened(browser, shop, link)
    browser.execute_script(
        """
        const whole = window.fetch;
        window.refused = 0;
        window.fetch = async (url, options) => {
          if (!String(url).endsWith("SubmitLinkAnswer") || window.refused >= 3) return whole(url, options);
          const status = [403, 404, 400][window.refused++];
          return Response.json({ message: "Forbidden", code: status }, { status });
        };
        """
    )
    items(browser)[0].click()
    press(browser, "Next")
    answered(shop, link, 1)
    assert browser.execute_script("return window.refused") == 3


def test_choices_ratings_and_refusals(shop: Shop, browser: Chrome) -> None:
    for kind in ("pair", "choice"):
        link = shop.link(kind)
        opened(browser, shop, link)
        shown = ids(names(browser))
        items(browser)[0].click()
        items(browser)[1].click()
        press(browser, "Next")
        await_heading(browser, "Question 2 of 3")
        skip = browser.find_elements(By.CSS_SELECTOR, ".actions button")[1]
        ActionChains(browser).double_click(skip).perform()
        await_heading(browser, "Question 3 of 3")
        if kind == "choice":
            third = ids(names(browser))
            browser.find_element(By.CSS_SELECTOR, ".way input").click()
            items(browser)[2].click()
            items(browser)[0].click()
            assert [one.text for one in browser.find_elements(By.CSS_SELECTOR, ".place")] == ["worst", "best"]
            press(browser, "Next")
        else:
            press(browser, "None of these")
        await_heading(browser, "Thank you for your answers!")
        chosen, skipped, last = answered(shop, link, 3)
        assert isinstance(chosen[2], ChoiceAnswer)
        assert chosen[1][chosen[2].place] == shown[1]
        assert skipped[2] == DeclinedAnswer(DeclineReason.SKIPPED)
        if kind == "choice":
            assert ranked(last) == [[third[2]], [third[1]], [third[0]]]
        else:
            assert last[2] == DeclinedAnswer(DeclineReason.NONE_OF_THESE)
    link = shop.link("ratings", answers_each=1)
    opened(browser, shop, link)
    shown = ids(names(browser))
    for number, row in enumerate(browser.find_elements(By.CSS_SELECTOR, "fieldset")):
        assert not browser.find_element(By.CSS_SELECTOR, ".next").is_enabled()
        row.find_elements(By.CSS_SELECTOR, "label")[number + 2].click()
    press(browser, "Next")
    [(_, listed, said)] = answered(shop, link, 1)
    assert isinstance(said, RatingsAnswer)
    assert dict(zip(listed, said.values, strict=True)) == dict(zip(shown, (3.0, 4.0, 5.0), strict=True))
    assert errors(browser) == []


def set_offline(browser: Chrome, *, offline: bool) -> None:
    how = {"offline": offline, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
    browser.execute_cdp_cmd("Network.enable", {})
    browser.execute_cdp_cmd("Network.emulateNetworkConditions", how)


def test_answers_wait_without_a_network_and_count_once(shop: Shop, browser: Chrome) -> None:
    link = shop.link("pair")
    opened(browser, shop, link)
    set_offline(browser, offline=True)
    for number in (2, 3):
        items(browser)[0].click()
        press(browser, "Next")
        await_heading(browser, f"Question {number} of 3")
    waiting = browser.find_element(By.ID, "waiting")
    until(lambda: waiting.text.startswith("2 answers wait in this browser"), what="it is told")
    assert shop.answers(link) == []
    set_offline(browser, offline=False)
    browser.refresh()
    settled(browser)
    assert len(answered(shop, link, 2)) == 2
    assert heading(browser) == "Question 3 of 3"
    until(lambda: browser.find_element(By.ID, "waiting").text == "", what="nothing waits")
    browser.get_log("browser")


def test_two_tabs_are_one_device(shop: Shop, browser: Chrome) -> None:
    link = shop.link("pair")
    opened(browser, shop, link)
    first = browser.current_window_handle
    browser.switch_to.new_window("tab")
    try:
        opened(browser, shop, link)
        assert heading(browser) == "Question 1 of 3"
        items(browser)[0].click()
        press(browser, "Next")
        await_heading(browser, "Question 2 of 3")
        assert len(answered(shop, link, 1)) == 1  # a tab that is closed at once may have told nobody
    finally:
        browser.close()
        browser.switch_to.window(first)
    await_heading(browser, "Question 2 of 3")
    for number in (2, 3):
        await_heading(browser, f"Question {number} of 3")
        press(browser, "Skip")
    await_heading(browser, "Thank you for your answers!")
    assert [place.number for place, _, _ in answered(shop, link, 3)] == [1, 2, 3]
    assert errors(browser) == []


def test_a_tab_that_is_looked_at_again_asks_what_is_next(shop: Shop, browser: Chrome) -> None:
    """Although nothing told it of the answer: it came from elsewhere, under the device's name."""
    link = shop.link("pair")
    opened(browser, shop, link)
    status = browser.execute_async_script(
        """const [name, token, done] = arguments;
        const key = Object.keys(localStorage).find((one) => one.includes(token.split(".")[0]));
        const { respondent, questions: [{ questionId }] } = JSON.parse(localStorage.getItem(key));
        const answer = { questionId, declined: { reason: "DECLINE_REASON_SKIPPED" } };
        fetch("topk_bandit.v1.PreferenceService/SubmitLinkAnswer", {
            method: "POST",
            headers: { "Content-Type": "application/json" },
            body: JSON.stringify({ study: name, token, respondent, answer }),
        }).then((response) => done(response.status));""",
        NAME,
        link.token,
    )
    assert (status, heading(browser)) == (200, "Question 1 of 3")
    first = browser.current_window_handle
    browser.switch_to.new_window("tab")
    browser.close()
    browser.switch_to.window(first)
    await_heading(browser, "Question 2 of 3")
    assert errors(browser) == []


def test_a_link_that_ended_says_so(shop: Shop, browser: Chrome) -> None:
    link = shop.link("pair", thanks="Bye")
    opened(browser, shop, link)
    shop.client.revoke_study_link("pair", link.id)
    items(browser)[0].click()
    press(browser, "Next")
    until(lambda: "takes no answers any more" in browser.find_element(By.ID, "main").text, what="it is told")
    assert heading(browser) == "Bye"
    for place in ("/ask", f"/ask#tenants/acme/studies/pair/{link.id}.{'A' * 43}"):
        browser.get("about:blank")
        browser.get(shop.address + place)
        until(lambda: "This link is not known" in browser.find_element(By.ID, "main").text, what="it is told")
    browser.get_log("browser")


def test_texts_are_no_markup_and_pictures_are_all_that_is_fetched_elsewhere(shop: Shop, browser: Chrome) -> None:
    link = shop.link("ranking", title=HOSTILE, accent_color="#ffcc00", background_color="#202020", text_color="#fafafa")
    opened(browser, shop, link)
    assert browser.find_element(By.ID, "title").text == HOSTILE
    assert browser.find_elements(By.CSS_SELECTOR, "[onerror]") == []
    style = """const style = getComputedStyle;
        return style(document.body).backgroundColor + style(document.querySelector(".next")).color"""
    assert browser.execute_script(style) == "rgb(32, 32, 32)rgb(0, 0, 0)"
    fetched = "return performance.getEntriesByType('resource').map(one => one.name)"
    own = [one for one in browser.execute_script(fetched) if "127.0.0.1:1/" not in one]
    assert all(one.startswith(shop.address) and link.token not in one for one in own)
    assert browser.execute_script("return document.cookie") == ""
    tried = """const [done] = arguments;
        document.addEventListener("securitypolicyviolation", event => done(event.effectiveDirective));
        const image = document.createElement("img");
        image.src = "http://127.0.0.1:1/plain.png";
        document.body.append(image);"""
    assert browser.execute_async_script(tried) == "img-src"
    browser.get_log("browser")


def violations(browser: Chrome) -> list[Any]:
    browser.execute_script(AXE.read_text(encoding="utf-8"))
    run = """const [done] = arguments, told = one => [one.id, one.nodes[0].html];
        axe.run().then(found => done([found.passes.length, found.violations.map(told)]));"""
    passed, found = browser.execute_async_script(run)
    assert passed > 10
    return list(found)


def test_axe_finds_nothing_at_both_widths(shop: Shop, browser: Chrome) -> None:
    if not AXE.is_file():
        leave_out("axe-core", "make axe")
    for width in ("desktop", "phone"):
        if width == "phone":
            emulate_phone(browser)
        for kind in ("ranking", "ratings"):
            opened(browser, shop, shop.link(kind))
            if kind == "ranking":
                items(browser)[1].click()
                items(browser)[2].click()
            for scheme in ("light", "dark"):
                emulate_scheme(browser, scheme)
                assert violations(browser) == []
            if width == "phone":
                assert browser.execute_script("return document.documentElement.scrollWidth") == PHONE
    opened(browser, shop, shop.link("pair", answers_each=1))
    items(browser)[0].click()
    press(browser, "Next")
    await_heading(browser, "Thank you for your answers!")
    assert violations(browser) == []
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    browser.get_log("browser")


def check_order(browser: Chrome, target: str) -> None:
    """Answer more, each pair as the list of all items has it, and look at what the console shows of the order."""

    def facts() -> dict[str, str]:
        rows = "[...document.querySelectorAll('#preferences .facts div')]"
        script = f"return {rows}.map(one => [...one.children].map(part => part.textContent))"
        found: list[tuple[str, str]] = browser.execute_script(script)
        return dict(found)

    until(lambda: "no two" in facts().get("Answers that agree", ""), what="one answer agrees with none")
    with Client(target, tenant="acme", timeout=PATIENCE, key=shown("acme")) as client:
        for question in client.next_questions("pair", 25).questions:
            answer = {question.id: min(question.items, key=ITEMS.index)}
            client.submit_answers("pair", answer, respondent="ann")
        learned = client.get_preferences("pair")
    assert learned.agreement_count >= 20
    said = f"{100 * learned.agreement:.1f} % of {learned.agreement_count} pairs"
    until(lambda: facts().get("Answers that agree") == said, what="the answers agree")
    assert facts()["Respondents who answer as if at random"] == "0 of 2"  # ann, and a device
    rows = browser.find_elements(By.CSS_SELECTOR, "#utilities svg circle")
    assert len(rows) == len(ITEMS)
    assert "still worth asking" in " ".join(facts())
    if AXE.is_file():
        assert violations(browser) == []


def test_operators_make_links_in_the_console_and_see_answers_come(browser: Chrome) -> None:
    operator = key("second", scopes=[Scope.OPERATE])
    with study_server(keys=ring(operator), clock_ms=time_ms) as server:
        address = server.open_http(interface=CONSOLE_WITH_CHANGES)
        with Client(server.target, tenant="acme", timeout=PATIENCE, key=shown("acme")) as client:
            client.create_study("pair", ITEMS, answer_kind="pair", budget=30)
            client.wait_for_design("pair")
        browser.get("about:blank")
        browser.get(f"{address}/#/tenants/acme/studies/pair")
        settled(browser)
        browser.find_element(By.ID, "key").send_keys(shown("second"), Keys.ENTER)
        until(lambda: "None." in browser.find_element(By.ID, "links").text, what="it is let in")
        browser.find_element(By.CSS_SELECTOR, "#link-make summary").click()
        browser.find_element(By.NAME, "title").send_keys(HOSTILE)
        if AXE.is_file():
            assert violations(browser) == []
        browser.find_element(By.CSS_SELECTOR, "#link-make button").click()
        until(lambda: len(browser.find_elements(By.ID, "link-address")) == 1, what="there is a link")
        made = browser.find_element(By.ID, "link-address").text
        assert made.startswith("http://127.0.0.1:50080/ask#tenants/acme/studies/pair/")
        cells = "return [...document.querySelectorAll('#links td')].map(one => one.textContent)"
        until(lambda: len(browser.execute_script(cells)) == 9, what="it is listed")
        link_id, state, *counts = browser.execute_script(cells)[:5]
        assert (state, counts, browser.execute_script(cells)[7]) == ("open", ["0", "100", "0"], HOSTILE)
        with channel_to(server.target) as channel:
            stub, mine = PreferenceServiceStub(channel), {"study": NAME, "token": made.rpartition("/")[2]}
            page = stub.GetLinkQuestions(pb.GetLinkQuestionsRequest(**mine), timeout=PATIENCE)
            asked = page.questions[0]
            answer = pb.Answer(question_id=asked.question_id, chosen_item_id=asked.items[0].item_id)
            given = pb.SubmitLinkAnswerRequest(**mine, respondent=page.respondent, answer=answer)
            stub.SubmitLinkAnswer(given, timeout=PATIENCE)
        until(lambda: browser.execute_script(cells)[2:5] == ["1", "100", "1"], what="the answer is seen")
        check_order(browser, server.target)
        browser.find_element(By.ID, f"end-{link_id}").click()
        browser.switch_to.alert.accept()
        until(lambda: browser.execute_script(cells)[1] == "revoked", what="it is ended")
    browser.get_log("browser")
