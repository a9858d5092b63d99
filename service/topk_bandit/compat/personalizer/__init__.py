"""Azure Personalizer's Rank, Reward and Activate, single-slot and multi-slot, on bandits.

`docs/from-personalizer.md` says how to move in. A listener of its own and an ordinary client of the service: the
contexts and actions of a Rank become named features and items of a bandit, which is made at the first Rank.
"""
