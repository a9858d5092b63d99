"""A service that answers call after call keeps nothing of them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.faults.service import serving
from tests.long_forms import usual_or_long
from tests.waiting import PATIENCE

from topk_bandit.client import AsyncClient

if TYPE_CHECKING:
    from tests.faults.service import Service

PAIRS = usual_or_long(6_000, long=100_000)
CALLERS = 8
MOST_GROWN_BYTES = 12 * 2**20
"""Arenas of the allocator fill up for long; a leak of 100 bytes a call would be twice this in the long form."""


def resident_bytes(service: Service) -> int:
    [worker] = service.worker_pids
    pages = int(Path(f"/proc/{worker}/statm").read_text().split()[1])
    return pages * 4096


async def trade(address: str, pairs: int) -> None:
    async with AsyncClient(address, tenant="shop", timeout=PATIENCE) as client:

        async def visit(caller: int) -> None:
            for number in range(pairs // CALLERS):
                slate = await client.recommend("home", [0.1 * caller, number % 7 / 7.0])
                await client.reward("home", slate.id, number % 3 / 2.0)

        await asyncio.gather(*map(visit, range(CALLERS)))


@pytest.mark.long_form
def test_memory_stays_flat_over_many_calls(tmp_path: Path) -> None:
    with serving(tmp_path, "--workers=1", "--fsync=everysec") as service:
        with service.client() as client:
            client.create_bandit("home", slate_size=3, item_capacity=12, context_dimension=2)
            client.upsert_items("home", [f"i{number}" for number in range(10)])
        asyncio.run(trade(service.address, PAIRS // 3))
        before = resident_bytes(service)
        asyncio.run(trade(service.address, PAIRS))
        grown = resident_bytes(service) - before
    assert grown < MOST_GROWN_BYTES
