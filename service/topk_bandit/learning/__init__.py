"""The learner: mathematics on arrays. No I/O, no clock, no global random state."""
