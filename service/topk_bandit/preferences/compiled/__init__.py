"""Compiled loops of designs and preference models, over plain arrays."""
