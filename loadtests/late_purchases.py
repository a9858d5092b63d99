"""Regret where visitors buy late and send back: python loadtests/late_purchases.py [SHOP] [--seeds N] [--visits N].

With --campaign a third of the visits come within one day, the tenth, and learn from each other while most buyers are
still to come.

With --first-visits only the first 500 are played, at the pace of all: enough for what holds of them.

One purchase in two comes within an hour of its slate, the others within three days, and one in five is sent back within
ten days. Each way to learn plays the same shop, visitors, luck and delays; regret is compared with that of a bandit
which learns the final reward at once. The shop is one of the battery, and 3,000 visits take 20 simulated days. One way
adds what is still expected of a slate, by the true delays: it shows what a learned curve of delays could bring at most.
"""

from __future__ import annotations

import argparse
import heapq
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from topk_bandit.lab.simulation.battery.playing import make_player, open_shop
from topk_bandit.lab.simulation.episodes import GpTopK, Visit
from topk_bandit.lab.simulation.policies import shipped_service
from topk_bandit.learning.corrections import can_correct, correct, revise

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

HOUR = 3_600_000.0
DAY = 24 * HOUR
DAYS, WAIT = 20, 14 * DAY
SENT_BACK, KEPT = 0.2, 0.8
TO_BUY, TO_SEND_BACK = 3 * DAY, 10 * DAY
CAMPAIGN_DAY = 9
CAMPAIGN_SHARE = 1 / 3
BUYERS = 0.2
"""Who buys of all visitors, about."""
FIRST_VISITS = 500


class Way(NamedTuple):
    """How rewards are learned: `first` is when, after a slate, what it earned so far is learned; None for its end.

    With `expects` what is still expected of it is learned, too, as somebody would who knows how long visitors take, and
    how many send back.
    """

    name: str
    first: float | None
    changes: bool
    defaults: bool = True
    expects: bool = False


WAYS = (
    Way("at once", None, changes=False),
    Way("provisional at once", 0.0, changes=True),
    Way("provisional after an hour", HOUR, changes=True),
    Way("with what is expected", HOUR, changes=True, expects=True),
    Way("after 14 days", WAIT, changes=False),
    Way("buyers only", None, changes=True, defaults=False),
)


class News(NamedTuple):
    """What a slate has earned by a time; it is sorted by the time."""

    at: float
    order: int
    number: int
    reward: float
    begins: bool


class Played(NamedTuple):
    """Regret of each visit, and whether two standard deviations around the mean hold the expected reward."""

    regret: NDArray[np.float64]
    holds: NDArray[np.bool_]


@dataclass
class Learner:
    """The service's policy, which learns rewards as one of the ways has it."""

    player: GpTopK
    slates: dict[int, tuple[NDArray[np.float64], NDArray[np.int32]]] = field(default_factory=dict)
    learned: dict[int, tuple[float, float]] = field(default_factory=dict)

    def hear(self, news: News) -> None:
        """Learn what a slate earned so far, as its first reward or as a change."""
        (context, ranking), key, state = self.slates[news.number], str(news.number), self.player.state
        if news.number not in self.learned:
            self.player.state = state.rewarded(key, context, ranking, reward=news.reward, at=news.at)
            self.learned[news.number] = news.reward, news.at
            return
        before, at = self.learned[news.number]
        if news.begins or news.reward == before:
            return
        if can_correct(state, key):
            self.player.state = correct(state, key, news.reward)
        elif (revised := revise(state, key, context, ranking, before=before, reward=news.reward, at=at)) is not None:
            self.player.state = revised
        self.learned[news.number] = news.reward, at


def main() -> None:
    """Play all ways in some shops of a name, and print how they compare."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("shop", nargs="?", default="purchases", help="of the battery (default: purchases)")
    parser.add_argument("--seeds", type=int, default=10, help="how many shops (default: 10)")
    parser.add_argument("--visits", type=int, default=3000, help="of each, in 20 days (default: 3,000)")
    parser.add_argument("--first-visits", action="store_true", help=f"play no more than the first {FIRST_VISITS}")
    parser.add_argument("--campaign", action="store_true", help="a third of the visits come within one day")
    given = parser.parse_args()
    played: dict[str, list[Played]] = {way.name: [] for way in WAYS}
    most = FIRST_VISITS if given.first_visits else given.visits
    for seed in range(given.seeds):
        times = visit_times(seed, given.visits, has_campaign=given.campaign)
        for way in WAYS:
            print(f"\rshop {seed + 1} of {given.seeds}: {way.name:30}", end="", file=sys.stderr, flush=True)
            played[way.name].append(play(given.shop, way, seed, times=times, most=most))
    print(file=sys.stderr)
    print("\n".join(table(played)))


def table(played: dict[str, list[Played]]) -> Iterator[str]:
    """Yield a line for each way: regret as a share of that at once, and the share that holds, with standard errors."""
    at_once = played[WAYS[0].name]
    yield f"{'':30}{'first visits':>16}{'all visits':>16}{'within 2 sd':>16}"
    for name, shops in played.items():
        figures = []
        for part in (slice(FIRST_VISITS), slice(None)):
            pairs = zip(shops, at_once, strict=True)
            ratios = np.array([mine.regret[part].sum() / theirs.regret[part].sum() for mine, theirs in pairs])
            figures.append(figure(ratios, ".2f"))
        figures.append(figure(np.array([one.holds[:FIRST_VISITS].mean() for one in shops]), ".3f"))
        yield f"{name:30}" + "".join(f"{one:>16}" for one in figures)


def figure(values: NDArray[np.float64], form: str) -> str:
    """Return the mean of some shops with its standard error."""
    error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else 0.0
    return f"{values.mean():{form}} ± {error:{form}}"


def visit_times(seed: int, visits: int, *, has_campaign: bool) -> NDArray[np.float64]:
    """Return when visits come, in milliseconds: spread over all days, but for those of a campaign."""
    rng = np.random.default_rng([seed, 14])
    days = rng.random(visits) * DAYS
    if has_campaign:
        of_campaign = rng.random(visits) < CAMPAIGN_SHARE
        days = np.where(of_campaign, CAMPAIGN_DAY + rng.random(visits), days)
    return np.sort(days * DAY)


def play(name: str, way: Way, seed: int, *, times: NDArray[np.float64], most: int) -> Played:
    """Play one shop, or the first visits; requests, luck and delays depend on the seed alone."""
    shop = open_shop(name, seed=seed, rounds=len(times))
    player = make_player(shipped_service(), shop, seed=seed)
    if not isinstance(player, GpTopK):
        raise TypeError(name)
    learner, due = Learner(player), list[News]()
    of_requests, of_rewards, of_delays = (np.random.default_rng([seed, stream]) for stream in (11, 12, 13))
    every_item = np.arange(shop.slates.n_items, dtype=np.int32)
    regret, holds = np.empty(len(times[:most])), np.zeros(len(times[:most]), dtype=bool)
    mean = KEPT * shop.values.random
    for number, at in enumerate(times[:most].tolist()):
        while due and due[0].at <= at:
            learner.hear(heapq.heappop(due))
        request = shop.request(number, of_requests)
        context = shop.context(request)
        ranking = player.choose(Visit(number, context, every_item))
        learner.slates[number] = context, ranking
        expected = float(shop.expect_rewards(request, ranking[None])[0])
        regret[number] = KEPT * (shop.best(request) - expected)
        if (decision := player.last_decision) is not None:
            holds[number] = abs(KEPT * expected - decision.mean) <= 2.0 * decision.standard_deviation
        amount = shop.draw(request, ranking, of_rewards).reward
        earned = list(earnings(amount, at, of_delays))
        told = expect(number, at, earned, mean) if way.expects else tell(way, number, at, earned)
        for news in told:
            heapq.heappush(due, news)
    return Played(regret, holds)


def earnings(amount: float, at: float, rng: np.random.Generator) -> Iterator[tuple[float, float]]:
    """Yield when a slate has earned how much."""
    delay, is_slow, is_sent_back, until_then = rng.random(4)
    if not amount:
        return
    bought = at + (HOUR + delay * (TO_BUY - HOUR) if is_slow >= 0.5 else delay * HOUR)
    yield bought, amount
    if is_sent_back < SENT_BACK:
        yield bought + until_then * TO_SEND_BACK, 0.0


def tell(way: Way, number: int, at: float, earned: list[tuple[float, float]]) -> Iterator[News]:
    """Yield what is heard of a slate, in one of the ways."""
    final = earned[-1][1] if earned else 0.0
    if not way.defaults:
        yield from (News(when, number, number, reward, begins=False) for when, reward in earned[:1])
    elif not way.changes:
        yield News(at + (way.first or 0.0), number, number, final, begins=True)
    else:
        yield News(at + (way.first or 0.0), number, number, 0.0, begins=True)
        yield from (News(when, number, number, reward, begins=False) for when, reward in earned)


def expect(number: int, at: float, earned: list[tuple[float, float]], mean: float) -> Iterator[News]:
    """Yield what a slate is expected to earn in the end, by what is known of it each time that this changes."""
    bought, amount = earned[0] if earned else (np.inf, 0.0)
    sent_back = earned[1][0] if len(earned) > 1 else np.inf
    begins = True
    for age in (HOUR, DAY / 4, DAY / 2, DAY, 2 * DAY, TO_BUY):
        if at + age < bought:
            done = 0.5 + 0.5 * (age - HOUR) / (TO_BUY - HOUR)
            yield News(at + age, number, number, mean * (1.0 - done) / (1.0 - BUYERS * done), begins)
            begins = False
    for age in (0.0, 2 * DAY, 4 * DAY, 7 * DAY, TO_SEND_BACK):
        if bought + age < sent_back and bought < np.inf:
            kept = KEPT / (KEPT + SENT_BACK * (1.0 - age / TO_SEND_BACK))
            yield News(max(bought + age, at + HOUR), number, number, amount * kept, begins)
            begins = False
    if sent_back < np.inf:
        yield News(max(sent_back, at + HOUR), number, number, 0.0, begins)


if __name__ == "__main__":
    main()
