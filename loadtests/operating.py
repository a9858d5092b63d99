"""What looking at a service with a thousand bandits costs, by Prometheus and in the console."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from figures import Bench, Figure, Outcome, percentiles
from peers import SELENIUM, absent
from served import CALL_SECONDS, Storefront, settings_in
from topk_bandit.client import Client
from topk_bandit.process import logs
from topk_bandit.process.settings import Address
from topk_bandit.process.supervisor import Supervisor

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

__all__ = ["operating"]

BANDITS, SCRAPES, VISITS, OBSERVATIONS = 1_000, 100, 10, 60
ANY_PORT = Address("127.0.0.1", 0)
SCRIPT_SECONDS = 60.0
BROWSER = ("chromium", "chromedriver")
# Of another process, whose own work is not counted; it asks for what Prometheus asks for.
SCRAPE = """
import sys, urllib.request
page = urllib.request.Request(sys.argv[1], headers={"Accept": "application/openmetrics-text;version=1.0.0"})
for _ in range(int(sys.argv[2])):
    with urllib.request.urlopen(page) as answer:
        text = answer.read().decode()
print(sum(not line.startswith("#") for line in text.splitlines()))
"""
# Rows come while the page is there already: seconds are counted from where the browser began to ask for it.
LISTED = """
const [count, done] = arguments;
const look = () => document.querySelectorAll("#bandits tbody tr").length >= count ? done([
  performance.getEntriesByName("first-contentful-paint")[0].startTime / 1e3, performance.now() / 1e3
]) : setTimeout(look, 2);
look();
"""


def operating(bench: Bench) -> Outcome:
    """Scrape a service with many bandits, one of which learned, and open its console, again and again."""
    logs.configure("text", level="ERROR")
    bandits, scrapes, visits = bench.scaled(BANDITS, 20), bench.scaled(SCRAPES, 5), bench.scaled(VISITS, 2)
    with tempfile.TemporaryDirectory(prefix="topk-bandit-bench-") as folder:
        settings = replace(settings_in(Path(folder)), metrics_listen=ANY_PORT, console_listen=ANY_PORT)
        with (
            Supervisor(settings) as supervisor,
            Client(supervisor.address, tenant="many", timeout=CALL_SECONDS) as client,
        ):
            url = f"http://127.0.0.1:{supervisor.metrics_port}/metrics"
            figures = _scraped(url, scrapes, key="idle", label="an idle service")
            Storefront.opened(client, seed=1).fill(OBSERVATIONS, lambda _done, _all: None)
            for number in range(1, bandits):
                client.create_bandit(f"shelf-{number:04}", slate_size=2, item_capacity=4, context_dimension=1)
                bench.report(number, bandits)
            figures += _scraped(url, scrapes, key="used", label="one that was called")
            missing = [*absent(SELENIUM), *(program for program in BROWSER if shutil.which(program) is None)]
            if not missing:
                figures += _visited(f"http://{supervisor.console_address}/", Path(folder), bandits, visits)
    return Outcome(
        figures, {"bandits": bandits, "scrapes": scrapes, "visits": visits, "workers": 1, "store": "embedded"}, missing
    )


def _scraped(url: str, scrapes: int, *, key: str, label: str) -> list[Figure]:
    """Return what a scrape takes of the supervisor's processor time, and how many series it gives."""
    command = [sys.executable, "-c", SCRAPE, url]
    subprocess.run([*command, "2"], capture_output=True, check=True)  # what is loaded once
    start, before = time.perf_counter(), time.process_time()
    series = subprocess.run([*command, str(scrapes)], capture_output=True, check=True, text=True).stdout
    took, scraped = time.perf_counter() - start, time.process_time()
    time.sleep(took)
    cpu = 1e3 * ((scraped - before) - (time.process_time() - scraped)) / scrapes
    return [
        Figure(f"{key}_scrape_cpu", f"CPU of a scrape, {label}", cpu, "ms"),
        Figure(f"{key}_series", f"series, {label}", float(series)),
    ]


def _visited(url: str, folder: Path, bandits: int, visits: int) -> list[Figure]:
    paints: list[float] = []
    lists: list[float] = []
    with _browser(folder) as browser:
        for _ in range(visits):
            browser.get("about:blank")
            browser.get(url)
            paint, listed = browser.execute_async_script(LISTED, bandits)
            paints.append(paint)
            lists.append(listed)
    return [
        *percentiles("paint", "from asking for the console to its first paint", paints, (50, 100)),
        *percentiles("list", "from asking for the console to a row for each bandit", lists, (50, 100)),
    ]


def _browser(folder: Path) -> Chrome:
    from selenium import webdriver  # noqa: PLC0415 - need not be installed

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which(BROWSER[0]) or ""
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder / 'profile'}"):
        options.add_argument(flag)
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which(BROWSER[1])))
    browser.set_script_timeout(SCRIPT_SECONDS)
    return browser
