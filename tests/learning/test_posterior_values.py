"""A posterior is a value: nothing that is built from it, or refused by it, changes it."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.learning.dense import (
    KINDS,
    WCK,
    DenseGp,
    Kind,
    Sample,
    assert_close,
    joined,
    newest_rows,
    rankings_of,
    same,
    sample,
)

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.learning.posterior import Moments, Posterior

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from _typeshed import TraceFunction

pytestmark = pytest.mark.bits


N_ITEMS, SLATE_SIZE = 24, 4
TO_ASK = rankings_of(N_ITEMS, SLATE_SIZE, 40, np.random.default_rng(98))
CONTEXT = np.array([0.7, -0.4])


def draw(seed: int, count: int, *, among: int = N_ITEMS, kind: Kind = WCK) -> Sample:
    """Draw from the first `among` items, so that later samples bring new columns."""
    rng = np.random.default_rng(seed)
    return sample(kind, rng, n_items=among, slate_size=SLATE_SIZE, context_dim=2, count=count)


def empty(kind: Kind = WCK) -> Posterior:
    return Posterior.prior(kind.make(N_ITEMS, SLATE_SIZE), context_dim=2, noise_variance=0.1)


def answer(posterior: Posterior) -> Moments:
    return posterior.predict(CONTEXT, TO_ASK)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_every_ancestor_keeps_its_answers_to_the_bit(kind: Kind) -> None:
    history: list[tuple[Posterior, Moments]] = []

    def remember(posterior: Posterior) -> Posterior:
        history.append((posterior, answer(posterior)))
        return posterior

    posterior = remember(empty(kind))
    for seed, among in enumerate((5, 8, 14, 24)):
        data = draw(seed, 70, among=among, kind=kind)
        for context, ranking, reward in zip(*data.rows, strict=True):
            posterior = remember(posterior.observe(context, ranking, reward))
        posterior = remember(posterior.show(data.contexts[:6], data.rankings[::-1][:6]))
        posterior = remember(posterior.reward(3, 1.5))
        posterior = remember(posterior.discard(2))
        posterior = remember(posterior.rescale(offset=float(seed), amplitude=1.0 + seed))
    remember(posterior.refit(newest_rows(posterior, 50), noise_variance=0.2))
    assert posterior.n_rows > 256
    for ancestor, before in history:
        assert same(answer(ancestor), before)


@pytest.mark.parametrize("n_rows", [0, 1, 63, 64, 65, 128])
def test_two_branches_of_one_parent_do_not_meet(n_rows: int) -> None:
    trunk, left, right = draw(1, n_rows, among=6), draw(2, 90, among=15), draw(3, 90)
    parent = empty().observe(*trunk.rows)
    before = answer(parent)
    one, other = parent, parent
    for place in range(90):
        one = one.observe(left.contexts[place], left.rankings[place], left.rewards[place])
        other = other.observe(right.contexts[place], right.rankings[place], right.rewards[place])
    assert same(answer(parent), before)
    for branch, data in ((one, left), (other, right)):
        together = joined(trunk, data)
        assert_close(answer(branch), DenseGp(WCK, N_ITEMS, 0.1, *together.rows).predict(CONTEXT, TO_ASK), atol=1e-8)
        assert same(answer(branch), answer(empty().observe(*together.rows)))


def test_two_branches_of_one_pending_slate_do_not_meet() -> None:
    data, more = draw(1, 20, among=8), draw(2, 5)
    parent = empty().observe(*data.rows).show(more.contexts, more.rankings)
    before = answer(parent)
    rewarded, discarded, other = parent.reward(1, 5.0), parent.discard(1), parent.reward(1, -5.0)
    kept = answer(rewarded)
    rewarded.reward(0, 9.0)
    discarded.reward(3, 9.0)
    other.reward(0, 9.0)
    assert same(answer(parent), before)
    assert same(answer(rewarded), kept)
    assert rewarded.observations.rewards[-1] == 5.0
    assert other.observations.rewards[-1] == -5.0
    assert (parent.n_pending, discarded.n_pending) == (5, 4)


@contextmanager
def hasty_threads() -> Iterator[None]:
    """Let threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def test_readers_see_one_value_while_newer_ones_are_built() -> None:
    parent = empty().observe(*draw(1, 60, among=6).rows).show(*draw(5, 3, among=6).rows[:2])
    before = answer(parent)
    more = draw(2, 150)
    finished, answers, children = threading.Event(), list[Moments](), list[Posterior]()

    def read() -> None:
        while not finished.is_set():
            answers.append(answer(parent))

    with hasty_threads(), ThreadPoolExecutor(2) as pool:
        readers = [pool.submit(read) for _ in range(2)]
        try:
            n_beside = 0
            while n_beside <= 20 and not any(reader.done() for reader in readers):
                n_before = len(answers)
                children.append(parent.observe(*more.rows))
                n_beside += len(answers) - n_before
        finally:
            finished.set()
        for reader in readers:
            reader.result()
    assert n_beside > 20
    assert all(same(moments, before) for moments in answers)
    alone = empty().observe(*draw(1, 60, among=6).rows).show(*draw(5, 3, among=6).rows[:2]).observe(*more.rows)
    assert all(same(answer(child), answer(alone)) for child in (children[0], children[-1]))


@contextmanager
def turns_after_every_line() -> Iterator[None]:
    """Let new threads offer their turn to another after each line of Python: what can interleave badly, does."""

    def offer(_frame: FrameType, _event: str, _argument: Any) -> TraceFunction:  # noqa: ANN401
        time.sleep(0)
        return offer

    before = threading.gettrace()
    threading.settrace(offer)
    try:
        yield
    finally:
        threading.settrace(before)


def test_branches_of_one_parent_may_be_built_at_the_same_time() -> None:
    samples = [draw(seed, 6) for seed in range(3)]
    expected = [answer(empty().observe(*data.rows)) for data in samples]
    for _ in range(3):
        parent, start = empty(), threading.Barrier(len(samples))

        def build(data: Sample, parent: Posterior = parent, start: threading.Barrier = start) -> Moments:
            start.wait()
            return answer(parent.observe(*data.rows))

        with turns_after_every_line(), ThreadPoolExecutor(len(samples)) as pool:
            built = list(pool.map(build, samples))
        for moments, alone in zip(built, expected, strict=True):
            assert_close(moments, alone, atol=1e-10)


GOOD_CONTEXT, GOOD_RANKING = [0.5, 0.5], [0, 1, 2, 3]
Refused = tuple[str, str, "Callable[[Posterior], object]"]

REFUSED: list[Refused] = [
    ("context too short", "contexts", lambda p: p.observe([1.0], GOOD_RANKING, 1.0)),
    ("context too long", "contexts", lambda p: p.observe([1.0, 2.0, 3.0], GOOD_RANKING, 1.0)),
    ("context not finite", "contexts", lambda p: p.observe([1.0, np.nan], GOOD_RANKING, 1.0)),
    ("context infinite", "contexts", lambda p: p.show([1.0, -np.inf], GOOD_RANKING)),
    ("one context for two rankings", "contexts", lambda p: p.show(GOOD_CONTEXT, [GOOD_RANKING] * 2)),
    ("ranking too short", "rankings", lambda p: p.observe(GOOD_CONTEXT, [0, 1, 2], 1.0)),
    ("ranking out of range", "rankings", lambda p: p.observe(GOOD_CONTEXT, [0, 1, 2, N_ITEMS], 1.0)),
    ("ranking negative", "rankings", lambda p: p.show(GOOD_CONTEXT, [0, 1, 2, -1])),
    ("ranking repeats", "rankings", lambda p: p.show(GOOD_CONTEXT, [0, 1, 2, 0])),
    ("ranking of floats", "rankings", lambda p: p.show(GOOD_CONTEXT, [0.0, 1.0, 2.0, 3.0])),
    ("reward not a number", "rewards", lambda p: p.observe(GOOD_CONTEXT, GOOD_RANKING, np.nan)),
    ("reward infinite", "rewards", lambda p: p.observe(GOOD_CONTEXT, GOOD_RANKING, np.inf)),
    ("two rewards for one row", "rewards", lambda p: p.observe(GOOD_CONTEXT, GOOD_RANKING, [1.0, 2.0])),
    ("rewards in a table", "rewards", lambda p: p.observe(GOOD_CONTEXT, GOOD_RANKING, [[1.0]])),
    (
        "the last of three rows",
        "rewards",
        lambda p: p.observe([GOOD_CONTEXT] * 3, [GOOD_RANKING] * 3, [1.0, 2.0, np.nan]),
    ),
    ("noise of zero", "noise_variance", lambda p: p.refit(newest_rows(p, 5), noise_variance=0.0)),
    ("noise not a number", "noise_variance", lambda p: p.refit(p.observed_rows, noise_variance=np.nan)),
    ("rankings asked about", "rankings", lambda p: p.predict(GOOD_CONTEXT, [[0, 1, 2, 2]])),
    ("context asked about too short", "context", lambda p: p.predict([1.0], [GOOD_RANKING])),
    ("context asked about not finite", "context", lambda p: p.predict([np.nan, 1.0], [GOOD_RANKING])),
    ("two contexts asked about", "context", lambda p: p.predict([GOOD_CONTEXT, [9.0, 9.0]], [GOOD_RANKING])),
    ("items not ascending", "items", lambda p: p.at(GOOD_CONTEXT, [3, 1, 2, 0])),
    ("items twice", "items", lambda p: p.at(GOOD_CONTEXT, [0, 1, 1, 2, 3])),
    ("items negative", "items", lambda p: p.at(GOOD_CONTEXT, [-1, 0, 1, 2])),
    ("items out of range", "items", lambda p: p.at(GOOD_CONTEXT, [0, 1, 2, N_ITEMS])),
    ("pending reward not a number", "value", lambda p: p.reward(0, np.nan)),
    ("pending reward infinite", "value", lambda p: p.reward(0, np.inf)),
    ("contexts of different lengths", "contexts", lambda p: p.show([[1.0, 2.0], [1.0]], [GOOD_RANKING] * 2)),
]


def assert_refused(refuse: Callable[[Posterior], object], field: str) -> None:
    posterior = empty().observe(*draw(1, 30, among=8).rows).show(*draw(5, 3, among=8).rows[:2])
    before = answer(posterior)
    with pytest.raises(InvalidArgumentError) as caught:
        refuse(posterior)
    assert caught.value.field == field
    assert same(answer(posterior), before)
    assert (posterior.n_rows, posterior.n_pending) == (30, 3)


@pytest.mark.parametrize(("field", "refuse"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED])
def test_what_cannot_be_used_is_refused_by_name_and_changes_nothing(
    field: str, refuse: Callable[[Posterior], object]
) -> None:
    assert_refused(refuse, field)


NO_SUCH_ROW = """
import numpy as np
from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.learning.kendall import weighted_convolutional_kendall
from topk_bandit.learning.posterior import Posterior

prior = Posterior.prior(weighted_convolutional_kendall(9, 3), context_dim=1, noise_variance=0.1)
three = prior.show(np.ones((3, 1)), [[0, 1, 2], [3, 4, 5], [0, 5, 6]])
for posterior in (prior, three):
    for chosen in (-1, posterior.n_pending, 10**6):
        for refuse in (lambda: posterior.reward(chosen, 1.0), lambda: posterior.discard(chosen)):
            try:
                refuse()
            except Exception as error:
                print(type(error).__name__, getattr(error, "field", error))
            else:
                print("accepted", chosen)
"""


def test_a_pending_slate_that_is_not_there_is_refused() -> None:
    # In a process of its own: compiled loops do not check their indices, and a write past the end would end this one.
    ran = subprocess.run([sys.executable, "-c", NO_SUCH_ROW], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.splitlines() == ["InvalidArgumentError chosen"] * 12


@pytest.mark.parametrize(
    ("field", "context_dim", "noise_variance"),
    [("context_dim", 0, 0.1), ("noise_variance", 1, 0.0), ("noise_variance", 1, -1.0), ("noise_variance", 1, np.inf)],
)
def test_a_prior_that_cannot_be_is_refused_by_name(field: str, context_dim: int, noise_variance: float) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        Posterior.prior(WCK.make(5, 2), context_dim=context_dim, noise_variance=noise_variance)
    assert caught.value.field == field
