"""Bandits: the fold of a log into a model, the models in memory, and the use cases."""
