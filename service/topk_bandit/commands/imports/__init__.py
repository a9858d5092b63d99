"""A bandit's history in files: slates that were shown elsewhere, and what they earned."""
