"""topk-bandit: an online recommender that learns which ranked slate to show, from one number per slate."""
