"""Where a bandit's events are kept: one contract (`log`), a reference in memory, and Redis."""
