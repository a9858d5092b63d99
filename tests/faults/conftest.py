from __future__ import annotations

import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import redis
from tests.faults.service import serving
from tests.rpc.harness import channel_to

if TYPE_CHECKING:
    from collections.abc import Iterator

    import grpc
    from tests.faults.service import Service


@contextmanager
def short_folder() -> Iterator[Path]:
    """A data folder with a path so short that the store's socket is in it."""
    folder = Path(tempfile.mkdtemp(prefix="tkb-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


@pytest.fixture
def folder() -> Iterator[Path]:
    with short_folder() as folder:
        yield folder


@pytest.fixture(scope="session")
def shared_folder() -> Iterator[Path]:
    with short_folder() as folder:
        yield folder


@pytest.fixture(scope="session")
def shared_service(shared_folder: Path) -> Iterator[Service]:
    """A service that several tests call; each has bandits of its own, and deletes those that change by themselves."""
    with serving(
        shared_folder, "--max-bandits-per-tenant=12", "--max-calls-in-flight=256", excused="GetBandit failed, reference"
    ) as service:
        yield service


@pytest.fixture
def shared_channel(shared_service: Service) -> Iterator[grpc.Channel]:
    with channel_to(shared_service.address) as channel:
        yield channel


@pytest.fixture
def shared_store(shared_folder: Path) -> Iterator[redis.Redis]:
    """A plain client of the shared service's store."""
    with redis.Redis(unix_socket_path=f"{shared_folder}/valkey.sock", protocol=2) as client:
        yield client
