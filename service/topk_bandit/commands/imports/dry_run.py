"""The dry run of an import: rows are judged by the service's own rules, and nothing is sent."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from topk_bandit.bandits.contexts import take_items
from topk_bandit.bandits.imports import check_row
from topk_bandit.client import InvalidArgument
from topk_bandit.client.imports import requests
from topk_bandit.client.operations import Operations
from topk_bandit.client.study_operations import StudyOperations
from topk_bandit.commands.imports.places import field_and_problem
from topk_bandit.domain.bandits import DEFAULT_EXPLORATION, BanditName, BanditSettings
from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.domain.studies import StudyItem, StudyQuery, StudySettings
from topk_bandit.rpc import answer_imports, imports
from topk_bandit.rpc.converters import item_upsert
from topk_bandit.studies.imports import read_import

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from topk_bandit.client import Bandit, Item, PastAnswer, PastObservation, Study
    from topk_bandit.commands.imports.reading import RowReader
    from topk_bandit.domain import bandits as domain
    from topk_bandit.domain.features import FeatureSchema

__all__ = ["DryRunReader", "JudgeOfAnswers", "JudgeOfItems", "JudgeOfObservations"]

_Row = TypeVar("_Row")

_ANY = BanditName("any", "any")
"""Whose rows they are makes no difference."""


@dataclass(frozen=True, slots=True)
class DryRunReader(Generic[_Row]):
    """Reads rows, and refuses those that the service would refuse.

    Attributes
    ----------
    reader
        Says what columns mean.
    judge
        Raises `InvalidArgumentError` for a row that the service would refuse, or `InvalidArgument` for one that can't
        be sent.
    """

    reader: RowReader[_Row]
    judge: Callable[[_Row], None]

    def columns_of(self, values: Mapping[str, Any]) -> Iterable[str]:
        """Return the names in a row that may mean something."""
        return self.reader.columns_of(values)

    def check_columns(self, columns: Collection[str]) -> list[str]:
        """Return the columns that mean nothing; raise `InvalidArgumentError` for what is wrong with them."""
        return self.reader.check_columns(columns)

    def read_row(self, values: Mapping[str, Any]) -> _Row:
        """Return what a row says, or raise `InvalidArgumentError` naming the column, or the field of the service."""
        row = self.reader.read_row(values)
        try:
            self.judge(row)
        except InvalidArgumentError as error:
            raise InvalidArgumentError(error.field.removeprefix("rows[0]."), error.problem) from None
        except InvalidArgument as error:
            raise InvalidArgumentError(*field_and_problem(error)) from None
        return row


@dataclass(slots=True)
class JudgeOfObservations:
    """Judges rows for a bandit.

    Attributes
    ----------
    settings
        The bandit's.
    item_ids
        Its items, without retired ones.
    clamped
        How many rewards so far would be learned as an end of the bandit's reward_range.
    """

    settings: BanditSettings
    item_ids: frozenset[str]
    clamped: int = 0

    @classmethod
    def of(cls, bandit: Bandit, item_ids: Iterable[str]) -> JudgeOfObservations:
        """Return the judge for a bandit with these items."""
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
        return cls(settings, frozenset(item_ids))

    def judge(self, row: PastObservation) -> None:
        """Raise for a row that the service would refuse."""
        [request] = requests(str(_ANY), [row], import_id="-", first_row=0, next_row=None, skip_bad_rows=False)
        [slate] = imports.import_request(request)[1].rows
        self.clamped += check_row(self.settings, slate, knows=self.item_ids.__contains__).reward != row.reward


@dataclass(frozen=True, slots=True)
class JudgeOfItems:
    """Judges items for a bandit with this schema, and keeps them as the bandit takes them, by their ids."""

    schema: FeatureSchema | None
    operations: Operations
    items: dict[str, domain.Item] = field(default_factory=dict)

    @classmethod
    def of(cls, bandit: Bandit) -> JudgeOfItems:
        """Return the judge for a bandit."""
        return cls(bandit.item_schema, Operations(_ANY.tenant, new_request_id=str))

    def judge(self, row: Item) -> None:
        """Raise for an item that the service would refuse, or that was there before."""
        operation = self.operations.upsert_items(_ANY.bandit, [row])
        request: Any = operation.request
        try:
            [item] = item_upsert(request)[1]
            [item] = take_items(self.schema, [item])
        except InvalidArgumentError as error:
            raise InvalidArgumentError(error.field.removeprefix("items[0]."), error.problem) from None
        if item.item_id in self.items:
            raise InvalidArgumentError("item", f"{item.item_id!r} is there twice")
        self.items[item.item_id] = item


@dataclass(frozen=True, slots=True)
class JudgeOfAnswers:
    """Judges rows for a study with these settings."""

    settings: StudySettings
    operations: StudyOperations

    @classmethod
    def of(cls, study: Study) -> JudgeOfAnswers:
        """Return the judge for a study."""
        items = tuple(StudyItem(item_id, features) for item_id, features in study.items.items())
        queries = tuple(StudyQuery(query_id, features) for query_id, features in study.queries.items())
        settings = StudySettings(items, queries, study.answer_kind, study.list_size, study.budget)
        return cls(settings, StudyOperations(_ANY.tenant, new_request_id=str))

    def judge(self, row: PastAnswer) -> None:
        """Raise for a row that the service would refuse."""
        [operation] = self.operations.import_answers(_ANY.bandit, [row], import_id="-", first_row=0)
        request: Any = operation.request
        read_import(self.settings, answer_imports.import_request(request)[1])
