"""`topk-bandit log`: write down a bandit's log, replay it to a position, and show the difference of two."""
