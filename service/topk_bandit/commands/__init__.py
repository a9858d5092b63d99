"""The command `topk-bandit` and its words."""
