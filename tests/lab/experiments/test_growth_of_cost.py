from __future__ import annotations

import pickle

import numpy as np
import pytest

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.lab.experiments import growth_of_cost
from topk_bandit.lab.experiments.growth_of_cost import exponents, growth_exponent, marks_of, plan_of
from topk_bandit.lab.experiments.plan import Plan, Results
from topk_bandit.lab.simulation.round_costs import DEFAULT_SERVICE, FEATURE, FEW_ROWS_SERVICE, KERNEL, METHODS, NAIVE

UNITS = [1e6, 1e3, 1e3, 1e3]
PANELS = [f"{row}_by_{of}" for of in "Tck" for row in ("compute", "memory", "mvm", "update")]

GROWTH = {
    FEATURE: {"compute": 2.0, "memory": 1.0, "mvm": 1.0, "update": 0.0},
    KERNEL: {"compute": 3.0, "memory": 2.0, "mvm": 2.0, "update": 1.0},
    NAIVE: {"compute": 4.0, "memory": 2.0, "mvm": 2.0, "update": 1.0},
    DEFAULT_SERVICE: {"compute": 1.5, "memory": 2.0, "mvm": 2.0, "update": 2.0},
    FEW_ROWS_SERVICE: {"compute": 1.0, "memory": 0.0, "mvm": 0.0, "update": 0.0},
}


def power_laws(plan: Plan, *, changed: dict[tuple[str, str], float] | None = None) -> Results:
    """Return results that follow the paper exactly, but for some exponents."""
    values = []
    for panel in plan.panels:
        row, of = panel.key.split("_by_")
        x = np.array(panel.axis.values, dtype=np.float64)
        of_panel = np.full((1, len(METHODS), len(x)), np.nan)
        for m, method in enumerate(METHODS):
            power = {"T": GROWTH[method][row], "c": 1.0, "k": 2.0}[of]
            if of == "T" or method == FEATURE:
                of_panel[0, m] = 7.0 * x ** ((changed or {}).get((method, panel.key), power))
        values.append(of_panel)
    return Results(plan, tuple(values))


def missed(results: Results) -> list[str]:
    return [target.claim for target in results.plan.targets(results) if not target.met]


def test_growth_is_read_off_the_last_points() -> None:
    assert growth_exponent((1, 2, 4, 8), 3.0 * np.array([99.0, 4.0, 16.0, 64.0])) == pytest.approx(2.0)
    # Least squares over equal steps: the slope between the ends.
    assert growth_exponent((5, 10, 20), np.array([1.0, 7.0, 4.0])) == pytest.approx(1.0)


def test_rounds_are_halved() -> None:
    assert marks_of(800) == (50, 100, 200, 400, 800)
    with pytest.raises(InvalidArgumentError) as error:
        marks_of(63)
    assert error.value.field == "rounds"


def test_what_the_paper_says_is_met_by_exactly_that() -> None:
    plan = plan_of(seed=0)
    results = power_laws(plan)
    assert [panel.key for panel in plan.panels] == PANELS
    assert missed(results) == []
    fitted = {(one.method, one.quantity, one.of): one for one in exponents(results)}
    assert len(fitted) == 4 * len(METHODS) + 8
    assert fitted[KERNEL, "compute", "T"].paper == 3
    assert fitted[FEATURE, "memory", "k"].fitted == pytest.approx(2.0)
    assert fitted[DEFAULT_SERVICE, "compute", "T"].paper is None


@pytest.mark.parametrize(
    ("method", "panel", "power", "claim"),
    [
        (FEATURE, "compute_by_T", 2.2, "feature approach: compute grows as T^2"),
        (FEATURE, "compute_by_T", 1.8, "feature approach: compute grows as T^2"),
        (KERNEL, "update_by_T", 1.2, "kernel approach: update grows as T^1"),
        (NAIVE, "compute_by_T", 3.8, "naive: compute grows as T^4"),
        (FEATURE, "mvm_by_k", 2.2, "feature approach: mvm grows no faster than k^2"),
        (FEATURE, "update_by_c", 1.2, "feature approach: update grows no faster than c^1"),
        (FEW_ROWS_SERVICE, "compute_by_T", 1.2, f"{FEW_ROWS_SERVICE}: the work of a further round stops growing"),
        (FEW_ROWS_SERVICE, "memory_by_T", 0.2, f"{FEW_ROWS_SERVICE}: memory stops growing"),
        (DEFAULT_SERVICE, "compute_by_T", 2.05, f"{DEFAULT_SERVICE}: less compute than feature approach, T = 800"),
    ],
)
def test_what_grows_otherwise_is_missed(method: str, panel: str, power: float, claim: str) -> None:
    assert missed(power_laws(plan_of(seed=0), changed={(method, panel): power})) == [claim]


def test_less_than_the_paper_allows_for_sizes_is_met() -> None:
    assert missed(power_laws(plan_of(seed=0), changed={(FEATURE, "compute_by_k"): 1.5})) == []


def test_jobs_measure_each_panel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growth_of_cost, "SIZE_ROUNDS", 6)
    plan = plan_of(seed=1, trials=2, rounds=64)
    measured = [pickle.loads(pickle.dumps(job)).run() for job in plan.jobs]  # as other processes get them
    results = Results(plan, plan.gathered(measured))
    feature = METHODS.index(FEATURE)
    for p, (panel, values) in enumerate(zip(plan.panels, results.values, strict=True)):
        assert values.shape == (2, len(METHODS), len(panel.axis.values))
        if panel.axis.name == "T":
            for m in range(len(METHODS)):
                np.testing.assert_array_equal(values[1, m], measured[len(METHODS) + 2 + m][p] / UNITS[p])
        else:
            assert np.isnan(np.delete(values, feature, axis=1)).all()
            job = len(METHODS) + ["c", "k"].index(panel.axis.name)
            np.testing.assert_array_equal(values[0, feature], measured[job][p % 4] / UNITS[p % 4])
    assert not (results.values[0][0] == results.values[0][1]).all()
    np.testing.assert_array_equal(plan_of(seed=1, rounds=64).jobs[0].run(), measured[0])
    assert all(np.diff(results.mean[p][feature]).min() > 0 for p in range(8, 12))
