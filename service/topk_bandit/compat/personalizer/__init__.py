"""Azure Personalizer's Rank, Reward and Activate, single-slot and multi-slot, on bandits.

`docs/from-personalizer.md` says how to move in. A listener of its own and an ordinary client of the service: what a
Rank tells of contexts and actions becomes named features and items of a bandit, which is made at the first Rank.
"""
