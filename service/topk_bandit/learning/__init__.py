"""The learner: mathematics on arrays. No I/O, no clock, no global random state.

A `State` is a value. It learns from shown slates and their rewards, and decisions are made with it.
Here rewards say that item 3 does well at the top:

>>> import numpy as np
>>> from topk_bandit.domain.bandits import DEFAULT_EXPLORATION
>>> from topk_bandit.learning.kendall import adaptive_kendall
>>> from topk_bandit.learning.decisions import decide
>>> from topk_bandit.learning.limits import Limits
>>> from topk_bandit.learning.policy import State
>>> state = State.initial(adaptive_kendall(8, 3), context_dim=1, limits=Limits())
>>> context, rng = np.ones(1), np.random.default_rng(0)
>>> for n in range(40):
...     slate = rng.permutation(8)[:3].astype(np.int32)
...     state = state.rewarded(str(n), context, slate, reward=float(slate[0] == 3))
>>> eligible = np.arange(8, dtype=np.int32)
>>> decision = decide(state, DEFAULT_EXPLORATION, context=context, eligible=eligible, rng=rng)
>>> int(decision.ranking[0])
3
>>> 0.95 < decision.propensity < 0.951
True
"""
