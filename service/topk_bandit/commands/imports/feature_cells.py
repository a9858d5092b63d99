"""Features in the columns of a row: each under its name, under its name with a prefix, or all of them in an object."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from topk_bandit.commands.imports.cells import Cells
from topk_bandit.domain.feature_values import read_feature
from topk_bandit.domain.values import is_missing, read_label

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from topk_bandit.domain.features import FeatureKind, FeatureSchema

__all__ = ["FeatureCells", "feature_columns", "is_of_features"]

_PREFIX = "features."


def feature_columns(schema: FeatureSchema) -> frozenset[str]:
    """Return the names of the columns that may have features of a schema."""
    return frozenset({"features", *(f"{prefix}{feature.name}" for feature in schema for prefix in ("", _PREFIX))})


def is_of_features(name: str) -> bool:
    """Return whether a column says by its name that it has features."""
    return name == "features" or name.startswith(_PREFIX)


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureCells(Cells):
    """Where a row has what, features among it.

    Attributes
    ----------
    schema
        Theirs; None where there are none.
    of_rows
        What these columns hold is of the row; a feature of such a name needs the prefix.
    """

    schema: FeatureSchema | None
    of_rows: frozenset[str]

    def features(self, named: Mapping[str, Any]) -> dict[str, Any]:
        """Return the features of a row by their names, without those that are missing.

        Raises
        ------
        InvalidArgumentError
            Naming the column: its value is not of the feature's kind, or the feature is there twice.
        """
        nested = named.get("features", {})
        if not isinstance(nested, dict):
            raise self.error("features", f"expected an object, got {nested!r:.60}")
        found = {name: value for name, value in nested.items() if not is_missing(value)}
        for feature in self.schema or ():
            name = feature.name
            values = [named[one] for one in self._columns_of_feature(name) if one in named]
            if name in found:
                values.append(found.pop(name))
            if len(values) > 1:
                raise self.error(name, "is there twice, in another column or in features")
            if values and (value := self._feature(name, feature.kind, values[0])) is not None:
                found[name] = value
        return found

    def _columns_of_feature(self, name: str) -> Iterable[str]:
        return (one for one in (_PREFIX + name, name) if one not in self.of_rows)

    def _feature(self, name: str, kind: FeatureKind, value: Any) -> Any:  # noqa: ANN401, whatever a file has
        return self.convert(name, value, partial(read_feature, kind, read_category=read_label))
