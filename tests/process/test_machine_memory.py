"""What models may take follows from what there is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from topk_bandit.bandits.budget import MIB
from topk_bandit.process import machine_memory
from topk_bandit.process.machine_memory import memory_bytes, models_bytes

if TYPE_CHECKING:
    from pathlib import Path

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
    available = models_bytes(wanted, one_model=16 * MIB, workers=workers, memory=memory)
    assert available == pytest.approx(taken, abs=MIB)


@pytest.mark.parametrize(
    ("groups", "files", "mib"),
    [
        ("0::/", {"memory.max": 700}, 700),
        ("0::/system.slice/shop", {"memory.max": 900, "system.slice/shop/memory.max": 500}, 500),
        ("0::/system.slice/shop", {"system.slice/memory.max": 300}, 300),
        ("4:memory:/shop\n0::/", {"memory/shop/memory.limit_in_bytes": 400}, 400),
        ("4:memory:/docker/abc\n", {"memory/memory.limit_in_bytes": 600}, 600),
        ("3:cpu:/shop", {"cpu/shop/memory.max": 100}, None),
    ],
)
def test_the_limit_is_the_least_of_the_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, groups: str, files: dict[str, int], mib: int | None
) -> None:
    monkeypatch.setattr(machine_memory, "_GROUPS", tmp_path)
    own = tmp_path / "own"
    own.write_text(groups)
    monkeypatch.setattr(machine_memory, "_OWN_GROUPS", own)
    everything = memory_bytes()
    for name, limit in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"{limit * MIB}\n")
    assert memory_bytes() == (everything if mib is None else mib * MIB)


def test_there_is_memory() -> None:
    assert memory_bytes() > 100 * MIB
