"""Bandits: one learning loop of a tenant each, from its log to its slates.

A log is folded into a model, models are held in memory while they are used, and the use cases stand on both. Nothing
here knows the wire, Redis or a study.
"""
