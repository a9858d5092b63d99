"""Fleets of workers on paper and in simulation: what many workers and bandits would do, from measured costs."""
