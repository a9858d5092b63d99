"""Off-policy evaluation: what other policies would have earned on the requests of a bandit's log.

The log says with which probability each slate was shown, so none of this needs a model of the logging policy.
`docs/off-policy.md` says in plain words which estimate holds when.
"""
