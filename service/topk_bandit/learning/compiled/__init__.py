"""Compiled loops of the learner, over plain arrays, cached on disk; those that may take long release the GIL."""
