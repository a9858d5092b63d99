"""The page of all experiments, in a real browser."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from tests.browsers import PHONE, chromium, emulate_phone, emulate_scheme

from topk_bandit.commands.cli import main

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.browsers import Chrome

ONLY = "table-2,figure-4"


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Chrome]:
    with chromium(tmp_path) as browser:
        yield browser


def test_the_page_of_all_experiments(tmp_path: Path, capsys: pytest.CaptureFixture[str], browser: Chrome) -> None:
    words = ["experiment", "all", "--quick", f"--only={ONLY}", "--processes=1", f"--out={tmp_path / 'out'}"]
    assert main(words) == 0
    page, printed = tmp_path / "out" / "report.html", capsys.readouterr().out
    assert "written before" not in printed
    assert f"Wrote {page}\n" in printed
    check_tables(tmp_path / "out")
    check_page(browser, page)
    check_what_it_says(browser)
    check_a_phone(browser)
    first = page.read_bytes()
    assert main(words) == 0
    printed = capsys.readouterr().out
    for name in ONLY.split(","):
        assert f"{name}: written before, with these settings and this code\n" in printed
    assert page.read_bytes() == first


def check_tables(out: Path) -> None:
    """Check that the dated file has a section, a table and the targets of each experiment."""
    (file,) = out.glob("experiments-????-??-??.md")
    text = file.read_text(encoding="utf-8")
    sections = text.split("\n## ")[1:]
    assert [section.partition("\n")[0] for section in sections] == ONLY.split(",")
    for section in sections:
        stored = json.loads((out / f"{section.partition(chr(10))[0]}.json").read_text(encoding="utf-8"))
        assert all(f"{target['claim']} | {target['figure']} |" in section for target in stored["targets"])
        drawn = sum(panel["drawn"] for panel in stored["panels"])
        assert section.count("\n| --- |") == 1 + drawn + bool(stored["targets"])


def check_page(browser: Chrome, page: Path) -> None:
    """Check that it loads without a complaint or the network, and that each anchor of the contents leads somewhere."""
    browser.get(page.as_uri())
    images = "return [...document.images].map(image => [image.naturalWidth, image.complete, image.alt])"
    loaded = browser.execute_script(images)
    assert len(loaded) == len(ONLY.split(","))
    assert all(width > 600 and complete and len(alt) > 100 for width, complete, alt in loaded)
    assert browser.get_log("browser") == []
    fetched = browser.execute_script("return performance.getEntriesByType('resource').map(entry => entry.name)")
    assert [address for address in fetched if not address.startswith("data:")] == []
    links = browser.execute_script("return [...document.querySelectorAll('nav a')].map(link => link.hash)")
    assert links == [f"#{name}" for name in ONLY.split(",")]
    for link in links:
        assert browser.execute_script(
            "return document.querySelector(arguments[0]).getBoundingClientRect().height", link
        )


def check_what_it_says(browser: Chrome) -> None:
    text = browser.find_element("tag name", "body").text
    assert "topk-bandit experiment figure-4 --out=" in text
    assert "WCK: equal to the paper's to two decimals, by definition too: -0.38, 0.09, 0.46, 0.87" in text
    assert "numpy" in text
    assert "A quick look, with few trials and rounds: what is met or missed says little." in text
    heads, row = (
        [
            cell.text
            for cell in browser.find_elements("css selector", f"section:first-of-type table:first-of-type {part}")
        ]
        for part in ("thead th", "tbody tr:first-child > *")
    )
    assert heads[:5] == ["compared with [1, 2, 3]", "[4, 5, 6]", "[3, 2, 1]", "[2, 1, 3]", "[1, 3, 2]"]
    assert row[:5] == ["WCK", "-0.383", "0.087", "0.461", "0.866"]


def check_a_phone(browser: Chrome) -> None:
    """Check that a page as narrow as a phone needs no scrolling to the side, in light and in dark."""
    emulate_phone(browser)
    background = "return getComputedStyle(document.body).backgroundColor"
    seen = set()
    for scheme in ("light", "dark"):
        emulate_scheme(browser, scheme)
        assert browser.execute_script("return document.documentElement.scrollWidth") == PHONE
        seen.add(browser.execute_script(background))
    assert len(seen) == 2
