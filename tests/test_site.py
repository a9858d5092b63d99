"""The check of the site notices what it is for; where ``make site`` has built it, the site works without a network."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.browsers import PHONE, chromium, emulate_phone
from tests.programs import leave_out
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.browsers import Chrome

ROOT = Path(__file__).parent.parent
SITE = ROOT / "build" / "site"
PAGES = ("README", "docs/paper-map", "docs/operations", "docs/wire/recommender_service", "docs/api/client")


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """Return a site in which nothing is wrong."""
    (tmp_path / "in").mkdir()
    (tmp_path / "index.html").write_text(
        '<link rel="stylesheet" href="a.css"><p id="top"><a href="in/b.html#there">b</a> <a href="https://a.example/">a</a>'
        '<a href="#top">up</a> <img src="data:image/png;base64,AA==">'
    )
    (tmp_path / "in" / "b.html").write_text('<h2 id="there">b</h2><a href="../index.html">a</a>')
    (tmp_path / "a.css").write_text("body { background: url(data:image/png;base64,AA==); }")
    return tmp_path


def check(site: Path) -> tuple[int, list[str]]:
    command = [sys.executable, str(ROOT / "tools" / "site" / "check.py"), str(site)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return done.returncode, done.stdout.splitlines()


def test_a_site_that_is_well_passes(site: Path) -> None:
    assert check(site) == (0, [])


@pytest.mark.parametrize(
    ("added", "problem"),
    [
        ('<a href="c.html">', "c.html leads nowhere"),
        ('<a href="in">', "in leads nowhere"),
        ('<a href="in/b.html#here">', "in/b.html#here leads to an anchor that is not there"),
        ('<a href="#bottom">', "#bottom leads to an anchor that is not there"),
        ('<img src="c.png">', "c.png leads nowhere"),
        ('<script src="https://a.example/a.js"></script>', "https://a.example/a.js is fetched from another host"),
        ('<script src="//a.example/a.js"></script>', "//a.example/a.js is fetched from another host"),
        ('<link rel="preconnect" href="https://a.example">', "https://a.example is fetched from another host"),
        ("<style>@import 'https://a.example/a';</style>", "https://a.example/a is fetched from another host"),
    ],
)
def test_what_is_wrong_on_a_page_is_told(site: Path, added: str, problem: str) -> None:
    with (site / "index.html").open("a") as page:
        page.write(added)
    assert check(site) == (1, [f"index.html: {problem}"])


def test_a_font_from_another_host_is_told(site: Path) -> None:
    (site / "a.css").write_text('@font-face { src: url("https://a.example/a.woff2"); }')
    assert check(site) == (1, ["a.css: https://a.example/a.woff2 is fetched from another host"])


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    if not SITE.exists():
        leave_out("the documentation's site", "make site")
    with chromium(tmp_path_factory.mktemp("browser")) as driver:
        yield driver


def fetched(browser: Chrome) -> list[str]:
    return list(browser.execute_script("return performance.getEntriesByType('resource').map(entry => entry.name)"))


@pytest.mark.parametrize("width", ["desktop", "phone"])
def test_a_built_page_fits_and_fetches_nothing_from_elsewhere(browser: Chrome, width: str) -> None:
    if width == "phone":
        emulate_phone(browser)
    for name in PAGES:
        browser.get(f"{(SITE / name).as_uri()}.html")
        wide, shown = browser.execute_script("return [document.documentElement.scrollWidth, window.innerWidth]")
        assert wide <= shown, name
        assert shown == PHONE or width == "desktop"
        assert [one for one in fetched(browser) if not one.startswith(("file:", "data:"))] == [], name
        assert [line for line in browser.get_log("browser") if line["level"] == "SEVERE"] == []


def test_the_search_finds_a_page_from_a_folder_alone(browser: Chrome) -> None:
    browser.get(f"{(SITE / 'search').as_uri()}.html?q=AmendReward")
    browser.implicitly_wait(PATIENCE)
    found = browser.find_element("css selector", "#search-results li a")
    assert "docs/" in found.get_attribute("href")
