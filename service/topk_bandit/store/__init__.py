"""The logs of bandits and studies: `log` and `study_log` have the promises, `memory` and `redis` the stores.

The same tests hold both stores to the promises. Nothing here knows a model or the wire.
"""
