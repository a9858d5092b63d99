"""`topk-bandit challenge` on a bandit that runs, in a shop whose best settings are known."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest
from tests.commands.running import Ask, Running

from topk_bandit.commands import tournaments
from topk_bandit.commands.cli import main
from topk_bandit.commands.log.challengers import title_of
from topk_bandit.commands.log.comparisons import Comparison
from topk_bandit.commands.operate.live_logs import LiveLog
from topk_bandit.domain.bandits import BanditName
from topk_bandit.domain.errors import NotReadyError
from topk_bandit.domain.quotas import Quota, Quotas
from topk_bandit.learning.evaluation.estimators import Estimate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from topk_bandit.client import Client

NAME = BanditName("acme", "even")
ITEMS = [f"item {number}" for number in range(6)]
EAGER, UNIFORM = "--uniform-share 0 --near-share 0", "--uniform-share 1 --near-share 0"
HALF = "--uniform-share 0.5 --near-share 0"


class Shop(Running):
    """A service that a shop asks, with slates drawn uniformly: once it earns, the first item earns one, and no other.

    So the best slates earn thrice the mean of all, which is ten standard errors of both after 200 slates.
    """

    asked = 0
    earns = True

    def open(self, bandit: str) -> None:
        self.work(self.client.create_bandit(bandit, slate_size=2, item_capacity=6, uniform_share=1.0))
        self.work(self.client.upsert_items(bandit, ITEMS))

    def trade(self, bandit: str, count: int) -> None:
        for _ in range(count):
            self.asked += 1
            given = self.recommend(bandit, request_id=f"asked {self.asked}")
            earned = 0.01 * (self.asked % 4) + (ITEMS[0] in given.items) if self.earns else 0.5
            self.work(self.client.reward(bandit, given.id, earned))

    def uniform_share(self, bandit: str) -> float:
        return float(self.work(self.client.get_bandit(bandit)).uniform_share)


@pytest.fixture(scope="module")
def shop() -> Iterator[Shop]:
    shop = Shop(quotas=Quotas({Quota.BANDITS: 9}))
    yield shop
    shop.stop()


@pytest.fixture
def ask(shop: Shop, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Ask:
    monkeypatch.setenv("TOPK_BANDIT_ADDRESS", shop.address)
    return Ask(capsys)


def test_the_challenger_that_earns_most_gives_its_settings(shop: Shop, ask: Ask) -> None:
    shop.open("fast")
    shop.trade("fast", 200)
    under = (f"--under={UNIFORM}", f"--under={EAGER}")
    counted, missing, title, _, *rows, said = ask("challenge", "acme/fast", *under)
    assert counted == "200 recommendations, 200 of them evaluated"
    assert missing == "0 without a reward are left out"
    assert title == "which does best, by doubly robust where ips and snips agree, on 200 requests"
    assert [row.strip() for row in rows[::2]] == [f"the bandit under {EAGER}", f"the bandit under {UNIFORM}"]
    assert said == f"  the bandit under {EAGER} earns most"
    assert shop.uniform_share("fast") == 1.0
    assert ask("challenge", "acme/fast", *under, "--promote")[-1] == f"promoted: acme/fast has {EAGER}"
    assert shop.uniform_share("fast") == 0.0


@pytest.mark.parametrize(("is_flawed", "told"), [(False, "can't tell"), (True, "nothing can be promoted as long as")])
def test_no_challenger_is_promoted_where_the_log_cannot_tell(*, is_flawed: bool, told: str) -> None:
    *_, said = tell(1.1, is_flawed=is_flawed)
    assert told in said


def test_none_is_promoted_where_the_log_has_flaws_and_that_is_an_error() -> None:
    with pytest.raises(NotReadyError, match="nothing is promoted: see the warnings"):
        list(tell(1.25, is_flawed=True))


def tell(low: float, *, is_flawed: bool) -> Iterator[str]:
    """Return what is printed of a look at a challenger that earns so much at least."""
    compared = Comparison(30, Estimate(1.0, 0.1, 0.8, 1.2), ((title_of(EAGER), Estimate(1.4, 0.1, low, 1.7)),))
    look = tournaments._Look(LiveLog(NAME, "id", 60), (), is_flawed, compared)
    nobody = cast("Client", None)  # whom nothing is asked
    return tournaments._tell(iter([look]), nobody, NAME, {EAGER: {"uniform_share": 0.0}})


def test_what_is_promoted_is_compared_with_the_policy_of_now_alone(shop: Shop, ask: Ask) -> None:
    shop.open("twice")
    shop.work(shop.client.update_bandit("twice", near_share=0.1))  # before the first slate: it is no change
    shop.trade("twice", 90)
    assert ask("challenge", "acme/twice", f"--under={HALF}", "--promote")[-1] == f"promoted: acme/twice has {HALF}"
    (nothing,) = ask("challenge", "acme/twice", f"--under={EAGER}", "--promote", status=1)
    assert "its 90 slates of before the policy changed are left out" in nothing
    shop.trade("twice", 150)
    lines = ask("challenge", "acme/twice", f"--under={EAGER}", "--promote")
    assert lines[0] == "240 recommendations, 150 of them evaluated"
    assert "90 chosen before the policy changed are left out: they are of another one" in lines
    assert lines[-1] == f"promoted: acme/twice has {EAGER}"


def test_the_best_is_promoted_also_when_nobody_reads_on(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOPK_BANDIT_ADDRESS", shop.address)
    shop.open("unread")
    shop.trade("unread", 200)
    monkeypatch.setattr(tournaments, "print_lines", lambda lines, *_, **__: not next(lines))
    assert main(["challenge", "acme/unread", f"--under={EAGER}", "--promote"]) == 0
    assert shop.uniform_share("unread") == 0.0


def test_challengers_learn_on_until_one_earns_most(shop: Shop, ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.open("slow")
    monkeypatch.setattr(shop, "earns", False)
    shop.trade("slow", 6)
    monkeypatch.setattr(shop, "earns", True)
    monkeypatch.setattr(tournaments, "time", Pauses(lambda: shop.trade("slow", 10)))
    printed = "\n".join(ask("challenge", "acme/slow", f"--under={EAGER}", "--follow", "--promote"))
    first, *_, last = printed.split("\n\n")
    assert first.endswith("nothing can be compared yet: all 6 rewards are equal")
    assert "earns most\npromoted: acme/slow" in last
    assert shop.uniform_share("slow") == 0.0


@pytest.mark.parametrize(("low", "high", "is_decided"), [(0.2, 0.7, True), (0.2, 0.9, False), (1.3, 1.5, True)])
def test_it_is_decided_where_what_is_shown_earns_most_too(*, low: float, high: float, is_decided: bool) -> None:
    found = Estimate(0.5 * (low + high), 0.1, low, high)
    compared = Comparison(30, Estimate(1.0, 0.1, 0.8, 1.2), ((title_of(UNIFORM), found),))
    assert compared.is_decided == is_decided
    assert (compared.best is not None) == (low > 1.2)


def test_a_bandit_that_is_made_again_is_another_one(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TOPK_BANDIT_ADDRESS", shop.address)
    shop.open("again")
    shop.trade("again", 5)

    def make_again() -> None:
        shop.work(shop.client.delete_bandit("again"))
        shop.open("again")

    monkeypatch.setattr(tournaments, "time", Pauses(make_again))
    assert main(["challenge", "acme/again", f"--under={EAGER}", "--follow"]) == 1
    assert "was deleted and made again" in capsys.readouterr().err


class Pauses:
    """Something happens while a command waits."""

    def __init__(self, happen: Callable[[], None]) -> None:
        self._happen = happen

    def sleep(self, _: float) -> None:
        self._happen()


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        ("--stage off", "--stage does not change which slates a challenger shows"),
        ("--control-share 0.1", "--control-share does not change"),
        ("--uniform-share 2", "must be a finite number from 0 to 1, not 2.0"),
    ],
)
def test_flags_that_are_wrong_or_without_effect_are_refused_at_once(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], flags: str, problem: str
) -> None:
    monkeypatch.setenv("TOPK_BANDIT_ADDRESS", shop.address)
    assert main(["challenge", "acme/home", f"--under={flags}", "--follow", "--promote"]) == 1
    assert problem in capsys.readouterr().err


def test_a_log_that_says_nothing_of_challengers_is_refused(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TOPK_BANDIT_ADDRESS", shop.address)
    shop.open("new")
    assert main(["challenge", "acme/new", f"--under={EAGER}"]) == 1
    assert "no slate of the bandit's own in it has a reward" in capsys.readouterr().err


def test_the_chances_of_all_looks_add_up() -> None:
    assert sum(tournaments._ERROR / (n * (n + 1)) for n in range(1, 100_000)) <= tournaments._ERROR
