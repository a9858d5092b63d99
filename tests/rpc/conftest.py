from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.rpc.harness import RunningServer, channel_to, serving

if TYPE_CHECKING:
    from collections.abc import Iterator

    import grpc


@pytest.fixture
def server() -> Iterator[RunningServer]:
    with serving() as running:
        yield running


@pytest.fixture
def channel(server: RunningServer) -> Iterator[grpc.Channel]:
    with channel_to(server.target) as opened:
        yield opened
