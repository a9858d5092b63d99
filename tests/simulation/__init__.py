"""The service's own serving and learning code among simulated faults, and a check of what it promises."""
