"""`topk-bandit log`: write down a bandit's log, replay it, compare two, and evaluate other policies on it."""
