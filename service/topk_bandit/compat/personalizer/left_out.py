"""Features that are left out of calls, since they are of another kind than the schema's: each is logged once."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from topk_bandit.compat.personalizer.features import fit_features

if TYPE_CHECKING:
    from topk_bandit.compat.personalizer.features import FlatFeatures
    from topk_bandit.domain.features import FeatureSchema

__all__ = ["Fitting"]

_log = logging.getLogger(__name__)


class Fitting:
    """Fits the features of calls to schemas, and remembers which of them were left out."""

    def __init__(self) -> None:
        self._logged = set[tuple[str, str]]()

    def fit(self, whose: str, features: FlatFeatures, schema: FeatureSchema | None) -> FlatFeatures:
        """Return what a schema takes of features.

        Parameters
        ----------
        whose
            The bandit, and whether these are of its contexts or its actions.
        """
        lost = dict[str, str]()
        found = fit_features(features, schema, lost=lost)
        for name, problem in lost.items():
            if (whose, name) not in self._logged:
                self._logged.add((whose, name))
                _log.warning("%s: the feature %s is left out: %s; said once", whose, name, problem)
        return found
