"""What models may take follows from what there is."""

from __future__ import annotations

import pytest

from topk_bandit.bandits.budget import MIB
from topk_bandit.process.machine_memory import memory_bytes, models_bytes

GIB = 1024 * MIB


@pytest.mark.parametrize(
    ("wanted", "workers", "memory", "taken"),
    [
        (6 * GIB, 1, 24 * GIB, 6 * GIB),
        (6 * GIB, 4, 16 * GIB, 3276 * MIB - 320 * MIB),
        (6 * GIB, 2, 2 * GIB, 819 * MIB - 320 * MIB),
        (6 * GIB, 2, 512 * MIB, 16 * MIB),
        (16 * MIB, 1, 24 * GIB, 16 * MIB),
    ],
)
def test_models_take_what_is_wanted_or_what_there_is_room_for(
    wanted: int, workers: int, memory: int, taken: int
) -> None:
    room = models_bytes(wanted, one_model=16 * MIB, workers=workers, memory=memory)
    assert room == pytest.approx(taken, abs=MIB)


def test_there_is_memory() -> None:
    assert memory_bytes() > 100 * MIB
