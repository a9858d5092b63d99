"""Load that comes whether earlier calls are answered or not, sent by a process of its own, and what it finds."""
