"""What the columns of a row mean: an item for a bandit with this item schema. Errors name the column."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from topk_bandit.client import Item
from topk_bandit.commands.imports.cells import Cells
from topk_bandit.commands.imports.feature_cells import FeatureCells, feature_columns, is_of_features
from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.domain.values import read_boolean

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from topk_bandit.commands.imports.cells import Named
    from topk_bandit.domain.features import FeatureSchema

__all__ = ["ItemColumns"]

_OF_ROWS = frozenset({"item", "available", "features"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemColumns(FeatureCells):
    """Where a row has what."""

    @classmethod
    def of(cls, flags: Named, *, schema: FeatureSchema | None) -> ItemColumns:
        """Return where rows for a bandit have what."""
        known = frozenset({"item", "available"}) | (frozenset() if schema is None else feature_columns(schema))
        required = (frozenset({"item"}),)
        return cls(flags=flags, known=known, required=required, schema=schema, of_rows=_OF_ROWS)

    def check_columns(self, columns: Collection[str]) -> list[str]:
        """Return the columns of a file that mean nothing; see `Cells.check_columns`.

        Raises
        ------
        InvalidArgumentError
            Besides: one of them has features, and the bandit has no item_schema.
        """
        strangers = Cells.check_columns(self, columns)
        if self.schema is None and (name := next(filter(is_of_features, strangers), None)):
            problem = f"can't be used: the bandit has no item_schema, or pass it over: --ignore {name}"
            raise InvalidArgumentError(f"column {name!r}", problem)
        return strangers

    def read_row(self, values: Mapping[str, Any]) -> Item:
        """Return the item in a row, or raise `InvalidArgumentError` naming the column."""
        named = self.take(values)
        available = self.convert("available", named.get("available"), read_boolean)
        return Item(
            self.text("item", named.get("item")),
            available=available is not False,
            features={} if self.schema is None else self.features(named),
        )

    def parts_of(self, values: Mapping[str, Any]) -> Iterable[str]:
        """Return the parts of `Item` that a row has columns for, whether or not they say something."""
        names = {name for column in values if (name := self._name_of(column)) is not None}
        if "available" in names:
            yield "available"
        for feature in self.schema or ():
            if any(one in names for one in self._columns_of_feature(feature.name)):
                yield f"features.{feature.name}"
        nested = values.get(self.flags.columns.get("features", "features"))
        if "features" in names and nested is None:
            yield from (f"features.{feature.name}" for feature in self.schema or ())
        elif "features" in names and isinstance(nested, dict):
            yield from (f"features.{name}" for name in nested)
