from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.contracts.clocks import StoreClock
from tests.contracts.harness import RedisStores

from topk_bandit.store.embedded import EmbeddedStore

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.contracts.harness import Stores


@pytest.fixture(scope="module")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedStore]:
    with EmbeddedStore.start(tmp_path_factory.mktemp("store"), fsync="everysec") as store:
        yield store


@pytest.fixture
def stores(embedded: EmbeddedStore) -> Stores:
    """A real server: that the one in memory does the same is what the contracts are for."""
    return RedisStores(embedded.url, clock=StoreClock())
