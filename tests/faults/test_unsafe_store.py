"""Somebody changes the settings of a store that is in use: it is told when it begins, meanwhile, and when it ends."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest
import redis
from tests.faults.service import COMMAND, clean_environment, serving
from tests.long_forms import usual_or_long
from tests.waiting import PATIENCE, until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.faults.service import Service

UNSAFE = {"maxmemory-policy": ("allkeys-lru", "noeviction"), "appendonly": ("no", "yes")}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("data")


@pytest.fixture(scope="module")
def service(data: Path) -> Iterator[Service]:
    with serving(data, "--workers=2") as service:
        yield service


def problems(service: Service) -> float:
    lines = service.page("/metrics")[1].splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith("topk_bandit_store_problems "))


def examined(data: Path) -> tuple[int, str]:
    command = [COMMAND, "doctor", f"--data-dir={data}"]
    done = subprocess.run(
        command, capture_output=True, text=True, env=clean_environment(), check=False, timeout=PATIENCE
    )
    return done.returncode, done.stdout


def told(service: Service, setting: str) -> list[str]:
    word = {"maxmemory-policy": "maxmemory-policy is", "appendonly": "append-only file is off"}[setting]
    return [record["level"] for record in service.records if word in record.get("message", "")]


@pytest.mark.long_form
@pytest.mark.parametrize("setting", usual_or_long(["appendonly"], long=list(UNSAFE)))
def test_an_unsafe_setting_is_told_as_long_as_it_lasts(service: Service, data: Path, setting: str) -> None:
    unsafe, safe = UNSAFE[setting]
    socket = next(data.glob("valkey.sock"))
    with redis.Redis(unix_socket_path=str(socket)) as client:
        assert problems(service) == 0
        client.config_set(setting, unsafe)
        until(lambda: problems(service) == 1, what="the metric tells")
        until(lambda: told(service, setting) == ["ERROR"], what="the log tells")
        status, said = examined(data)
        assert status == 1
        assert f"set {'it to noeviction' if setting == 'maxmemory-policy' else 'appendonly to yes'}" in said
        client.config_set(setting, safe)
        until(lambda: problems(service) == 0, what="the metric tells that it is over")
        until(lambda: told(service, setting) == ["ERROR", "WARNING"], what="the log tells that it is over")
    service.until_ready()
