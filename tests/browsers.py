"""A real headless Chromium, with what its pages say to the console."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from tests.programs import find_program
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["PHONE", "Chrome", "chromium", "emulate_phone", "emulate_scheme"]

Chrome = webdriver.Chrome
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip
PHONE = 375


@contextmanager
def chromium(folder: Path) -> Iterator[Chrome]:
    """Run a browser that keeps its profile in `folder` until the end of the block."""
    options = webdriver.ChromeOptions()
    options.binary_location = find_program("chromium")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    for flag in (*FLAGS, f"--user-data-dir={folder / 'profile'}"):
        options.add_argument(flag)
    driver = Chrome(options=options, service=Service(find_program("chromedriver")))
    driver.set_script_timeout(PATIENCE)
    try:
        yield driver
    finally:
        driver.quit()


def emulate_phone(browser: Chrome) -> None:
    """Make the window as narrow as a phone's."""
    size = {"width": PHONE, "height": 800, "deviceScaleFactor": 2, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def emulate_scheme(browser: Chrome, scheme: str) -> None:
    """Prefer light or dark."""
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
