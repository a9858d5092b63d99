"""The next program writes all that a store can hold, with a data version in force: ``next_writer URL VERSION``."""

from __future__ import annotations

import asyncio
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from tests.faults import next_program

# What is imported after the next program is its own.
# isort: split
from tests.contracts.harness import RedisStores
from tests.store import test_damaged_keys

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from topk_bandit.store.redis.bandits import RedisStore

URL, VERSION = sys.argv[1], int(sys.argv[2])
assert VERSION in {next_program.THIS, next_program.THIS + 1}


class StoresOfAVersion(RedisStores):
    """Stores in which a data version is in force."""

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[RedisStore]:
        async with super().connect() as store:
            await store._link.call("HSET", store._keys.programs, "data_version", VERSION)
            assert await store.programs("next", about="next").note() == VERSION
            yield store


test_damaged_keys.RedisStores = StoresOfAVersion
asyncio.run(test_damaged_keys.use_everything(URL))
