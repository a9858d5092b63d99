"""What the columns of a row mean: an observation for a bandit with this schema. Errors name the column."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from topk_bandit.client.imports import PastObservation
from topk_bandit.commands.imports.cells import Cells
from topk_bandit.commands.imports.feature_cells import FeatureCells, feature_columns, is_of_features
from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.domain.values import is_missing, list_hint, read_number

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from topk_bandit.commands.imports.cells import Named
    from topk_bandit.domain.features import FeatureSchema

__all__ = ["Columns"]

_OF_ROWS = frozenset({"items", "item_values", "reward", "time", "propensity", "features"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns(FeatureCells):
    """Where a row has what.

    Attributes
    ----------
    slate_size, context_dimension
        The bandit's.
    """

    slate_size: int
    context_dimension: int

    @classmethod
    def of(cls, flags: Named, *, schema: FeatureSchema | None, slate_size: int, context_dimension: int) -> Columns:
        """Return where rows for a bandit have what."""
        places = range(1, slate_size + 1)
        items = frozenset({"items", *(f"item_{number}" for number in places)})
        known = items | {"item_values", *(f"item_value_{number}" for number in places), "reward", "time", "propensity"}
        if schema is None:
            known |= {"context", *(f"context_{number}" for number in range(1, context_dimension + 1))}
        else:
            known |= feature_columns(schema)
        return cls(
            flags=flags,
            known=known,
            required=(frozenset({"items", "item_1"}), frozenset({"reward"})),
            schema=schema,
            of_rows=_OF_ROWS,
            slate_size=slate_size,
            context_dimension=context_dimension,
        )

    def check_columns(self, columns: Collection[str]) -> list[str]:
        """Return the columns of a file that mean nothing; see `Cells.check_columns`.

        Raises
        ------
        InvalidArgumentError
            Besides: one of them has contexts in the form that the bandit does not have, or seems to say how many slates
            a row stands for.
        """
        strangers = Cells.check_columns(self, columns)
        self.check_no_counts(strangers, what="slates it stands for", each="slate")
        other = "context" if self.schema is not None else "features"
        has = (
            "a context_schema, so give features" if self.schema is not None else "no context_schema, so give a context"
        )
        for name in strangers:
            if name == other or (other == "features" and is_of_features(name)):
                problem = f"can't be used: the bandit has {has}, or pass it over: --ignore {name}"
                raise InvalidArgumentError(f"column {name!r}", problem)
        return strangers

    def read_row(self, values: Mapping[str, Any]) -> PastObservation:
        """Return the observation in a row, or raise `InvalidArgumentError` naming the column."""
        named = self.take(values)
        get = named.get
        items = self.parts(named, "items", "item", self.slate_size)
        if len(items) != self.slate_size:
            raise self.error("items", f"expected {self.slate_size} items, got {len(items)}{list_hint(items)}")
        shown = tuple(map(self.text, self.names_of_parts(named, "items", "item", len(items)), items))
        return PastObservation(
            items=shown,
            reward=self.number("reward", get("reward")),
            context=() if self.schema is not None else self._context(named),
            features=None if self.schema is None else self.features(named),
            time=self.time(get("time")) if "time" in named else None,
            propensity=self._propensity(get("propensity")),
            item_values=self._item_values(named, shown),
        )

    def _item_values(self, named: Mapping[str, Any], items: Sequence[str]) -> dict[str, float] | None:
        """Return what each item did, by its id, where that is known; None where nothing is."""
        whole, several = named.get("item_values"), self.numbered(named, "item_value", self.slate_size)
        if whole is not None and several:
            raise self.error("item_values", f"says what item_value_{min(several)} says, too: leave one of them out")
        if several:
            return {items[number - 1]: self.number(f"item_value_{number}", value) for number, value in several.items()}
        if whole is None:
            return None
        if not isinstance(whole, dict):
            raise self.error("item_values", f"expected an object, got {whole!r:.60}")
        found = {item_id: self._of_item(item_id, value) for item_id, value in whole.items() if not is_missing(value)}
        return found or None

    def _of_item(self, item_id: str, value: Any) -> float:  # noqa: ANN401, whatever a file has
        try:
            return self.number("item_values", value)
        except InvalidArgumentError as error:
            raise InvalidArgumentError(error.field, f"{item_id!r}: {error.problem}") from None

    def _propensity(self, value: Any) -> float | None:  # noqa: ANN401, whatever a file has
        propensity = self.convert("propensity", value, read_number)
        if propensity is not None and not 0.0 < propensity <= 1.0:
            raise self.error("propensity", f"must be above 0 and at most 1, not {propensity:g}")
        return propensity

    def _context(self, named: Mapping[str, Any]) -> tuple[float, ...]:
        numbers = self.parts(named, "context", "context", self.context_dimension)
        if len(numbers) not in {0, self.context_dimension}:
            problem = f"expected {self.context_dimension} numbers, got {len(numbers)}{list_hint(numbers)}"
            raise self.error("context", problem)
        return tuple(map(self.number, self.names_of_parts(named, "context", "context", len(numbers)), numbers))
