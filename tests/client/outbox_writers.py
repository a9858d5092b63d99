"""What writes into the file of an outbox, with nothing that a process of its own would take long to import."""

from __future__ import annotations

from typing import TYPE_CHECKING

from topk_bandit.client.outbox_file import OutboxFile

if TYPE_CHECKING:
    import multiprocessing.synchronize
    from pathlib import Path

__all__ = ["LEASE", "Clock", "add", "write_many"]

LEASE = 10.0


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def add(file: OutboxFile, recommendation_id: str, *, bandit: str = "home") -> None:
    file.add_reward(bandit, recommendation_id, 1.0, reward_id="", final=False)


def write_many(path: Path, name: str, start: multiprocessing.synchronize.Barrier) -> None:
    start.wait()
    file = OutboxFile(path, tenant="acme", max_waiting=10**6, lease=LEASE, now=Clock())
    for number in range(20):
        add(file, f"{name}-{number}")
        file.remove(file.take(3)[:1])
    file.close()
