"""Factors of users and items that look like those of real ratings, made with nothing downloaded."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.learning.environments import Factors

__all__ = ["synthetic"]

FloatArray = NDArray[np.float64]

_POPULARITY_LOCATION, _POPULARITY_SCALE = -1.8, 2.4
_ACTIVITY_LOCATION, _ACTIVITY_SCALE = -0.4, 0.95
_ITEM_LENGTH, _ITEM_PREFERENCE, _ITEM_POWER = 1.2, 0.93, 0.6
_USER_PREFERENCE = 0.56


def synthetic(rng: np.random.Generator, *, n_users: int = 943, n_items: int = 1682, dim: int = 5) -> Factors:
    """Draw factors whose inner products have about the distribution of those of MovieLens-100K.

    Implicit-feedback factors have one direction that everybody shares, along which an item is as long as it is
    popular, and others in which preferences differ. With x_i log-normal, an item's number of ratings over some
    constant, and g, h drawn uniformly from the unit vectors of the other directions::

        popularity  p_i = x_i / (1 + x_i)           what a ridge leaves of an item with so many ratings
        item        v_i = [1.2 p_i, 0.93 p_i^0.6 g_i]
        user        u_j = [a_j, 0.56 h_j]           a_j as p_i, of how much a user has rated

    and both are turned by the same random rotation. The constants were fitted to five factors of MovieLens-100K (Hu,
    Koren and Volinsky 2008; confidence 1 + rating, ridge 10, 15 sweeps). Quantiles of u . v, of these the mean of 12
    draws:

    ========== ===== ===== ===== ===== ===== ===== =======
    quantile   1 %   10 %  50 %  75 %  90 %  99 %  largest
    MovieLens  -0.12 -0.03 0.03  0.19  0.47  0.94  1.61
    these      -0.14 -0.03 0.05  0.20  0.44  0.90  1.57
    ========== ===== ===== ===== ===== ===== ===== =======

    A random slate of 3 out of 20 items earns an nDCG of 0.65 on average in both.

    Parameters
    ----------
    n_users, n_items
        The defaults are MovieLens-100K's.
    dim
        C, at least 2.
    """
    for field, number, least in (("n_users", n_users, 1), ("n_items", n_items, 1), ("dim", dim, 2)):
        if number < least:
            raise InvalidArgumentError(field, f"expected at least {least}, got {number}")
    popularity = expit(rng.normal(_POPULARITY_LOCATION, _POPULARITY_SCALE, n_items))
    activity = expit(rng.normal(_ACTIVITY_LOCATION, _ACTIVITY_SCALE, n_users))
    preference = _ITEM_PREFERENCE * popularity**_ITEM_POWER
    items = np.column_stack([_ITEM_LENGTH * popularity, preference[:, None] * _directions(rng, n_items, dim - 1)])
    users = np.column_stack([activity, _USER_PREFERENCE * _directions(rng, n_users, dim - 1)])
    rotation = np.linalg.qr(rng.normal(size=(dim, dim))).Q
    return Factors(users @ rotation, items @ rotation)


def _directions(rng: np.random.Generator, count: int, dim: int) -> FloatArray:
    drawn = rng.normal(size=(count, dim))
    return np.asarray(drawn / np.linalg.norm(drawn, axis=1, keepdims=True))
