"""Rows as the service would judge them, by its own rules, without being asked: nothing is sent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from topk_bandit.bandits.imports import check_row
from topk_bandit.client import InvalidArgument
from topk_bandit.client.imports import requests
from topk_bandit.domain.bandits import DEFAULT_EXPLORATION, BanditName, BanditSettings
from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.rpc.imports import import_request

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from topk_bandit.bandits.imports import RowsOfImport
    from topk_bandit.client import Bandit, PastObservation
    from topk_bandit.commands.imports.reading import RowReader

__all__ = ["Rehearsal"]

_ANY = BanditName("any", "any")
"""Whose rows they are makes no difference to their form."""


@dataclass(slots=True)
class Rehearsal:
    """Reads rows, and refuses those that the service would refuse.

    Attributes
    ----------
    reader
        Says what columns mean.
    settings
        Of the bandit.
    item_ids
        Its items, without retired ones.
    clamped
        How many rewards so far would be learned as an end of the bandit's reward_range.
    """

    reader: RowReader[PastObservation]
    settings: BanditSettings
    item_ids: frozenset[str]
    clamped: int = 0

    @classmethod
    def of(cls, reader: RowReader[PastObservation], bandit: Bandit, item_ids: Iterable[str]) -> Rehearsal:
        """Return how rows for a bandit are judged."""
        settings = BanditSettings(
            item_capacity=bandit.item_capacity,
            slate_size=bandit.slate_size,
            context_dim=bandit.context_dimension,
            kernel=bandit.kernel,
            exploration=DEFAULT_EXPLORATION,
            reward_wait_ms=0,
            default_reward=None,
            reward_range=bandit.reward_range,
            context_schema=bandit.context_schema,
        )
        return cls(reader, settings, frozenset(item_ids))

    def columns_of(self, values: Mapping[str, Any]) -> Iterable[str]:
        """Return the names in a row that may mean something."""
        return self.reader.columns_of(values)

    def check_columns(self, columns: Collection[str]) -> list[str]:
        """Return the columns that mean nothing; raise `InvalidArgumentError` for what is wrong with them."""
        return self.reader.check_columns(columns)

    def read_row(self, values: Mapping[str, Any]) -> PastObservation:
        """Return what a row says, or raise `InvalidArgumentError` naming the column, or the field of the service."""
        row = self.reader.read_row(values)
        [slate] = _sent(row).rows
        self.clamped += check_row(self.settings, slate, knows=self.item_ids.__contains__).reward != row.reward
        return row


def _sent(row: PastObservation) -> RowsOfImport:
    """Return what the service would get."""
    try:
        [request] = requests(str(_ANY), [row], import_id="-", first_row=0, next_row=None, skip_bad_rows=False)
    except InvalidArgument as error:
        field = error.field.removeprefix("rows[0].")
        raise InvalidArgumentError(field, error.details.message.removeprefix(f"{error.field}: ")) from None
    return import_request(request)[1]
