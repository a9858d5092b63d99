"""Rewards come in batches long after their slates, or never: python examples/late_rewards.py [ADDRESS]."""

from __future__ import annotations

import asyncio
import sys
from datetime import timedelta

from topk_bandit.client import AsyncClient

BANDIT = "late-rewards"


async def recommend_many(client: AsyncClient, count: int) -> list[str]:
    """Return the ids of slates that are on screens at the same time; what is on one makes the next look elsewhere."""
    slates = [await client.recommend(BANDIT, context=[1.0])]
    while len(slates) < count:  # each by a model that knows of the one before
        known = slates[-1].model_version + 1
        slates.append(await client.recommend(BANDIT, context=[1.0], min_model_version=known))
    print(f"{len({slate.items for slate in slates})} different slates on {count} screens")
    return [slate.id for slate in slates]


async def run(address: str) -> None:
    """Show slates, post rewards of the first in one batch, and let the last ones lapse."""
    async with AsyncClient(address, tenant="example") as client:
        await client.create_bandit(
            BANDIT,
            slate_size=2,
            item_capacity=10,
            reward_wait=timedelta(days=1),
            default_reward=0.0,  # what a slate without a reward is learned as; None learns nothing from it
        )
        await client.upsert_items(BANDIT, ["a", "b", "c", "d", "e"])
        ids = await recommend_many(client, 8)
        rewards = dict.fromkeys(ids, 1.0)
        posted = await client.rewards(BANDIT, rewards)
        print("posted:", *sorted(receipt.outcome for receipt in posted.receipts.values()))
        again = await client.rewards(BANDIT, rewards)
        print("posted again, as after a crash:", *sorted(receipt.outcome for receipt in again.receipts.values()))
        await client.update_bandit(BANDIT, reward_wait=timedelta(seconds=1))  # of slates from now on
        ids += [(await client.recommend(BANDIT, context=[1.0])).id for _ in range(4)]
        while (stats := await client.stats(BANDIT)).observation_count < len(ids):
            await asyncio.sleep(0.2)
        print(f"learned from {stats.observation_count} slates, {stats.default_count} of them by the default reward")
        late = await client.reward(BANDIT, ids[-1], 1.0)
        print("posted after the wait:", late.outcome)
        await client.delete_bandit(BANDIT)


def main(address: str = "127.0.0.1:50051") -> None:
    """Run on an event loop of its own."""
    asyncio.run(run(address))


if __name__ == "__main__":
    main(*sys.argv[1:])
