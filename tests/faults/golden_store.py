"""A store of every kind: a program writes it through its own service, and says what it knows of it.

It has bandits with each kind of setting, slates in each state of their life, an import and a study that are half done,
items that come and go, snapshots, and a log that was trimmed.
"""

from __future__ import annotations

import sys
from contextlib import closing, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.faults.last_release import COMMIT, release_command
from tests.faults.service import serving
from tests.waiting import PATIENCE, until

from topk_bandit.client import (
    Aggregation,
    AnswerKind,
    FailedPrecondition,
    Item,
    PastObservation,
    RewardRange,
    categorical,
    numeric,
)

if TYPE_CHECKING:
    from topk_bandit.client import Client, Recommendation

__all__ = ["BANDITS", "GoldenStore"]

WAIT = timedelta(days=1)
COUNTRIES = ("DE", "FR", "IT")
BANDITS = ("plain", "shop", "careful", "warm", "often", "brief")
LONG_LIVED = 330
"""So many rounds that a bandit saves two snapshots and trims its log."""
TRIES = 20

KNOWN = (
    "recommendation_count",
    "observation_count",
    "default_count",
    "expiration_count",
    "pending_count",
    "inactive_count",
    "item_count",
    "available_item_count",
    "imported_count",
    "corrected_reward_count",
    "shown_otherwise_count",
    "clamped_reward_count",
    "lost_event_count",
    "lost_reward_count",
    "outlier_count",
    "set_aside_count",
    "log_position",
    "log_digest",
    "posterior_digest",
)
"""What two programs have to say alike of a bandit."""


@dataclass
class GoldenStore:
    """What was written, as far as it has to be known later: slates by the state in which they were left."""

    open: dict[str, list[str]] = field(default_factory=dict)
    inactive: list[str] = field(default_factory=list)
    rewarded: dict[str, list[str]] = field(default_factory=dict)
    partly: list[str] = field(default_factory=list)
    asked: dict[str, Recommendation] = field(default_factory=dict)
    questions: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def write(self, client: Client) -> None:
        """Write all of it."""
        self._study(client)
        self._bandits(client)
        for bandit in BANDITS:
            self._trade(client, bandit, LONG_LIVED if bandit == "plain" else 40)
            if bandit != "often":
                self._leave_open(client, bandit)
            if bandit in self.open:
                self._correct(client, bandit)
        self._half_an_import(client)
        client.retire_items("often", ["i5"])
        client.upsert_items("often", ["i9"])
        client.reset_bandit("often", request_id="golden")
        self._trade(client, "often", 12)
        self._leave_some_set_aside(client)

    def go_on(self, client: Client) -> None:
        """Do with what was left what a shop does next: no call of it may fail."""
        for bandit, asked in self.asked.items():
            again = self._ask(client, bandit, f"golden-{bandit}")
            assert (again.id, again.items) == (asked.id, asked.items)
        for bandit, slates in self.open.items():
            several = self._final(bandit)
            for number, slate in enumerate(slates):
                client.reward(bandit, slate, 0.25 * number, **several)
        for slate in self.inactive[::2]:
            client.activate("careful", slate)
        client.rewards("careful", dict.fromkeys(self.inactive, 0.5))
        for slate in self.partly:
            client.reward("shop", slate, -1.0, reward_id="return", final=True)
        for bandit in self.open.keys() - {"often"}:  # of which some are set aside, and corrected in no model
            self._correct(client, bandit)
        assert client.import_observations("shop", _past(60)[35:], import_id="year", first_row=35).next_row == 60
        self._answer(client, dict(list(self.questions.items())[3:]))
        asked_again = client.next_questions("taste", 4, request_id="golden").questions
        assert {one.id: one.items for one in asked_again} == self.questions
        self._answer(client, {one.id: one.items for one in client.next_questions("taste", 2).questions})
        assert client.get_preferences("taste").queries

    @staticmethod
    def seen_by(client: Client) -> dict[str, dict[str, Any]]:
        """Return what a program says of the bandits, once its models are those of the logs' ends."""
        seen = {}
        for bandit in BANDITS:
            _settle(client, bandit)
            known = client.stats(bandit)
            seen[bandit] = {name: getattr(known, name) for name in KNOWN}
            assert client.verify(bandit).agrees
        return seen

    @staticmethod
    def _final(bandit: str) -> dict[str, Any]:
        """Return what a reward says beside its value."""
        return {"reward_id": "sale", "final": True} if bandit in {"shop", "often"} else {}

    def _study(self, client: Client) -> None:
        rng = np.random.default_rng(3)
        items = {f"i{number}": rng.normal(size=3).tolist() for number in range(8)}
        client.create_study("taste", items, answer_kind=AnswerKind.RANKING, list_size=3, budget=40)
        client.wait_for_design("taste", timeout=PATIENCE)
        self._answer(client, {one.id: one.items for one in client.next_questions("taste", 12).questions})
        self.questions = {one.id: one.items for one in client.next_questions("taste", 4, request_id="golden").questions}
        self._answer(client, dict(list(self.questions.items())[:3]))

    @staticmethod
    def _answer(client: Client, questions: dict[str, tuple[str, ...]]) -> None:
        client.submit_answers("taste", {one: sorted(items) for one, items in questions.items()})

    @staticmethod
    def _bandits(client: Client) -> None:
        common: dict[str, Any] = {"slate_size": 3, "item_capacity": 12, "reward_wait": WAIT}
        schema = [numeric("price"), categorical("country", values=COUNTRIES)]
        client.create_bandit("plain", **common)
        client.create_bandit(
            "shop",
            **common,
            context_schema=schema,
            item_schema=[numeric("price")],
            reward_aggregation=Aggregation.SUM,
            default_reward=0.0,
            half_life=timedelta(days=30),
        )
        client.create_bandit(
            "careful",
            **common,
            context_dimension=2,
            requires_activation=True,
            reward_range=RewardRange(0.0, 1.0, clamp=True),
            baseline_item_ids=["i0", "i1", "i2"],
            shares_fall_after=50,
        )
        client.create_bandit("warm", **common, prior_study="taste")
        client.create_bandit("brief", **common | {"reward_wait": timedelta(seconds=1)}, default_reward=0.0)
        client.create_bandit("often", **common, learned_per_second=1, reward_aggregation=Aggregation.LAST)
        for bandit in BANDITS:
            names = [f"i{number}" for number in range(8)]
            priced = [Item(name, features={"price": float(number)}) for number, name in enumerate(names)]
            client.upsert_items(bandit, priced if bandit == "shop" else names)

    def _ask(self, client: Client, bandit: str, request_id: str) -> Recommendation:
        rng = np.random.default_rng(sum(request_id.encode()))
        given: dict[str, Any] = {}
        if bandit == "shop":
            given = {"features": {"price": float(rng.normal()), "country": COUNTRIES[int(rng.integers(3))]}}
        if bandit == "careful":
            given = {"context": rng.normal(size=2).tolist()}
        return client.recommend(bandit, request_id=request_id, **given)

    def _trade(self, client: Client, bandit: str, rounds: int) -> None:
        several = self._final(bandit)
        for number in range(rounds):
            slate = self._ask(client, bandit, f"{bandit}-{len(self.rewarded.get(bandit, ()))}")
            if bandit == "careful" and number % 3 == 0:
                client.activate(bandit, slate.id, shown=[*slate.items[::-1]] if number % 2 else None)
            client.reward(bandit, slate.id, float("i1" in slate.items) + number % 7 / 10.0, **several)
            self.rewarded.setdefault(bandit, []).append(slate.id)

    def _leave_open(self, client: Client, bandit: str) -> None:
        left = [self._ask(client, bandit, f"open-{bandit}-{number}").id for number in range(6)]
        if bandit == "careful":
            self.inactive += left[:4]
            client.activate(bandit, left[4])
            left = left[4:5]
        if bandit == "shop":
            self.partly = left[:2]
            for slate in self.partly:
                client.reward(bandit, slate, 1.0, reward_id="click")
            left = left[2:]
        if bandit != "brief":
            self.open[bandit] = left
            self.asked[bandit] = self._ask(client, bandit, f"golden-{bandit}")

    def _leave_some_set_aside(self, client: Client) -> None:
        before = client.stats("often").set_aside_count
        for number in range(10 * TRIES):
            self.open.setdefault("often", []).append(self._ask(client, "often", f"open-often-{number}").id)
            if client.stats("often").set_aside_count > before:
                return
        pytest.fail("no slate is set aside")

    @staticmethod
    def _half_an_import(client: Client) -> None:
        assert client.import_observations("shop", _past(60)[:35], import_id="year").accepted == 35

    def _correct(self, client: Client, bandit: str) -> None:
        """Amend and void a reward that was learned; where a refit came between, the next one is tried."""
        several = {"reward_id": "sale"} if bandit == "shop" else {}
        for correct in (partial(client.amend_reward, value=0.75), client.void_reward):
            for _ in range(TRIES):
                self._trade(client, bandit, 1)
                with suppress(FailedPrecondition):
                    correct(bandit, self.rewarded[bandit][-1], **several)
                    break
            else:
                pytest.fail("no reward can be corrected")


def _past(rows: int) -> list[PastObservation]:
    names = [f"i{number}" for number in range(8)]
    return [
        PastObservation(
            (names[number % 8], names[(number + 3) % 8], names[(number + 5) % 8]),
            reward=number % 5 / 4.0,
            features={"price": float(number % 9), "country": COUNTRIES[number % 3]},
        )
        for number in range(rows)
    ]


def _settle(client: Client, bandit: str) -> None:
    def is_settled() -> bool:
        known = client.stats(bandit)
        return known.model_version == known.log_position and not (bandit == "brief" and known.pending_count)

    until(is_settled, what=f"the model of {bandit} has all of its log")


def main() -> None:
    """Have the last release write a golden store into a folder, for `make serve` to be tried on."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    with serving(folder, command=release_command()) as service, closing(service.client()) as client:
        GoldenStore().write(client)
    print(f"written by {COMMIT}: {folder}")


if __name__ == "__main__":
    main()
