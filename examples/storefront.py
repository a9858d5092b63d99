"""A shop asks for slates, shows them, and posts what each slate earned: python examples/storefront.py [ADDRESS]."""

from __future__ import annotations

import random
import sys

from topk_bandit.client import Client

# How much each item interests a visitor; the service sees only what whole slates earn.
INTEREST = {"tea": 0.2, "coffee": 0.9, "cocoa": 0.7, "milk": 0.1, "juice": 0.4, "water": 0.3}
ROUNDS = 300


def earned(slate: tuple[str, ...], visitors: random.Random) -> float:
    """Return one number for a whole slate; visitors look more at what stands above."""
    return sum(INTEREST[item] / rank for rank, item in enumerate(slate, start=1)) + visitors.gauss(0.0, 0.1)


def main(address: str = "127.0.0.1:50051") -> None:
    """Let the shop run, and print what its slates earned at first and in the end."""
    visitors = random.Random(1)
    rewards: list[float] = []
    with Client(address, tenant="example") as client:
        # Without a default reward it would learn only from visitors of whom a reward is posted.
        client.create_bandit("storefront", slate_size=3, item_capacity=20, default_reward=0.0)
        client.upsert_items("storefront", list(INTEREST))
        for _ in range(ROUNDS):
            slate = client.recommend("storefront", context=[1.0])
            rewards.append(earned(slate.items, visitors))
            # A degraded slate is shown like any other; if it was certainly not recorded, it has no id for a reward.
            if slate.id:
                client.reward("storefront", slate.id, rewards[-1])
        print("last slate:", ", ".join(slate.items), f"(expected {slate.mean:.2f} ± {slate.standard_deviation:.2f})")
        client.delete_bandit("storefront")
    print(f"first 20 slates earned {sum(rewards[:20]) / 20:.2f} each, the last 20 {sum(rewards[-20:]) / 20:.2f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
