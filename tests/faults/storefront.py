"""A storefront's process, to be killed: it says what it was promised, once it was promised.

``python -m tests.faults.storefront ADDRESS OUTBOX MOST`` shows slates in reverse, says so, and rewards them until it is
killed; each line that it prints is a recommendation id, its reward and what was shown, all of which is on disk. After
as many promises as it may get it waits.
"""

from __future__ import annotations

import signal
import sys
import time

from tests.waiting import PATIENCE

from topk_bandit.client import Client, Outbox

__all__ = ["BANDIT", "OWN", "TENANT", "main", "reward_of"]

TENANT, BANDIT = "storefront", "home"
OWN = ["item-3", "item-2", "item-1", "item-0"]


def reward_of(recommendation_id: str) -> float:
    """Return what a slate earns: the same in the storefront and in the test."""
    return sum(recommendation_id.encode()) % 17 / 16.0


def main(address: str, path: str, most: str) -> None:
    """Show slates and reward them."""
    with Client(address, tenant=TENANT, timeout=2.0) as client, Outbox(path, client) as outbox:
        promises = 0
        while promises < int(most):
            slate = client.recommend(BANDIT, [1.0], fallback=OWN, fallback_size=2, timeout=PATIENCE)
            shown = slate.items[::-1]
            if outbox.activate(BANDIT, slate.id, shown=shown):
                outbox.reward(BANDIT, slate.id, reward_of(slate.id))
                sys.stdout.write(f"{slate.id} {reward_of(slate.id)} {' '.join(shown)}\n")
                sys.stdout.flush()
                promises += 1
            time.sleep(0.003)
        signal.pause()


if __name__ == "__main__":
    main(*sys.argv[1:])
