"""Compiled loops of the learner, over plain arrays: they release the GIL and are cached on disk."""
