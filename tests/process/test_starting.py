"""What a supervisor makes of workers that take long to start."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING

import pytest
from tests.faults.service import compile_reports, serving
from tests.process import workers
from tests.waiting import PATIENCE, until

from topk_bandit.domain.errors import ConfigurationError
from topk_bandit.process.settings import Address, Settings
from topk_bandit.process.supervisor import Supervisor

if TYPE_CHECKING:
    from pathlib import Path

SETTINGS = Settings(
    listen=Address("127.0.0.1", 0),
    http_listen=None,
    metrics_listen=None,
    redis_url="redis://127.0.0.1:1",
    workers=2,
    drain_seconds=2.0,
)
"""These workers look for no store."""


@pytest.mark.slow
def test_a_worker_may_take_long_as_long_as_it_progresses(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    stall_seconds, report_seconds = workers.FUNCTIONS * workers.PAUSE_SECONDS / 2, 1.0
    service = Supervisor(
        SETTINGS,
        worker_main=workers.progress_slowly,
        stall_seconds=stall_seconds,
        report_seconds=report_seconds,
    )
    before = time.monotonic()
    with service:
        took = time.monotonic() - before
        assert service.ready
    assert took > workers.FUNCTIONS * workers.PAUSE_SECONDS > stall_seconds
    reports = compile_reports(caplog.text)
    assert 3 <= len(reports) <= took / report_seconds + 1
    assert reports[0] < reports[-1] <= workers.FUNCTIONS


def test_a_worker_that_stalls_is_given_up() -> None:
    service = Supervisor(SETTINGS, worker_main=workers.stall, stall_seconds=2.0)
    before = time.monotonic()
    with pytest.raises(ConfigurationError, match=r"worker [12] does not serve, and has made no progress for 2 seconds"):
        service.start()
    assert 2.0 < time.monotonic() - before < PATIENCE
    assert not service.ready


@pytest.mark.slow
def test_a_worker_whose_event_loop_stands_still_is_replaced() -> None:
    with Supervisor(SETTINGS, worker_main=workers.hang_once, hung_seconds=7.0) as service:
        assert service.ready
        until(lambda: not after_watching(service), what="it is not counted on", seconds=10)
        until(lambda: after_watching(service), what="another one serves")


def after_watching(service: Supervisor) -> bool:
    service.watch(0.2)
    return service.ready


def test_a_worker_that_is_too_old_for_the_data_is_not_replaced_but_ends_the_service() -> None:
    outdated = pytest.raises(ConfigurationError, match=r"^too old$")
    with outdated, Supervisor(SETTINGS, worker_main=workers.become_outdated) as service:
        service.watch(10.0)


def test_a_worker_that_dies_is_reported_at_once() -> None:
    with pytest.raises(ConfigurationError, match=r"worker [12] died while starting; see its log"):
        Supervisor(SETTINGS, worker_main=workers.die).start()


@pytest.mark.slow
def test_a_first_start_says_how_far_it_has_compiled_and_can_be_stopped(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    nothing_compiled = {"NUMBA_CACHE_DIR": str(tmp_path)}
    with serving(tmp_path_factory.mktemp("data"), start=False, variables=nothing_compiled) as service:
        service.spawn()
        until(lambda: len(set(compile_reports(service.log))) >= 2, what="it compiles on", seconds=100)
        assert compile_reports(service.log) == sorted(compile_reports(service.log))
        os.kill(service.pid, signal.SIGTERM)
        assert service.wait(10) == 0
        service.until_gone()
