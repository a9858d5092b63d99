"""An idle service shows few series, whatever it looks after by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.faults.service import serving
from tests.process.test_metrics import series_of
from tests.waiting import until

if TYPE_CHECKING:
    from pathlib import Path


def test_an_idle_worker_shows_few_series(tmp_path: Path) -> None:
    with serving(tmp_path, "--workers=1") as service:
        # Each operation of the store that has been called has a histogram, and this one is called while nobody calls.
        until(lambda: 'operation="unfinished_designs"' in service.page("/metrics")[1], what="designs are looked for")
        status, text = service.page("/metrics")
    assert status == 200
    assert 300 < series_of(text) <= 400
