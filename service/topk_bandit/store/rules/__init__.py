"""What becomes of each command about a bandit: pure functions of what a store knows.

A rule reads nothing and writes nothing. It is given `Known`, and returns a `Decision`: the answer, and what a store has
to commit for it. Every store commits the same decisions, so that each rule stands once.
"""
