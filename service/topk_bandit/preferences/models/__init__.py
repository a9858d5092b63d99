"""Utilities learned from answers: Plackett-Luce, least squares, a variational posterior, aggregation.

The variational posterior says what is known after few answers, and how well. Three people chose one item of three, a
fourth ranked all four items; features are what items may be liked for:

>>> import numpy as np
>>> from topk_bandit.preferences.answers import Orderings
>>> from topk_bandit.preferences.models import variational
>>> from topk_bandit.preferences.utilities import Gaussian
>>> features = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [0.0, 0.0]])
>>> choices = Orderings.from_choices([2, 2, 0], [[0, 1, 2], [1, 2, 3], [0, 1, 3]], n_items=4)
>>> answers = choices.join(Orderings.from_rankings([[2, 0, 1, 3]], n_items=4))
>>> found = variational.fit(features, answers, prior=Gaussian.isotropic(2, variance=1.0))
>>> found.converged
True
>>> utilities = found.utilities(features)
>>> utilities.ranks.tolist()
[2, 3, 1, 4]
>>> bool((utilities.standard_deviation[:2] < 1.0).all())
True

Its posterior is the prior of answers to come, and predicts them:

>>> later = variational.fit(features, choices, prior=found.posterior)
>>> predicted = variational.predictive_log_likelihood(later.posterior, features, choices, rng=np.random.default_rng(0))
>>> bool((np.exp(predicted) > 1.0 / 3.0).all())
True

The mode with Laplace's covariance, `plackett_luce.fit`, takes the same arguments.
"""
