from __future__ import annotations

from itertools import combinations, permutations

import numpy as np
import pytest
from scipy.stats import kendalltau

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.lab.simulation.kernel_tables import kernel_similarities, similarity_by_definition
from topk_bandit.learning.kendall import dcg_weight, weighted_convolutional_kendall


def test_table_2_is_the_paper_s_both_ways() -> None:
    cells = kernel_similarities()
    assert [(cell.kernel, cell.paper) for cell in cells] == [
        *(("WK", 0.0), ("WK", -1.0), ("WK", 0.33), ("WK", 0.33)),
        *(("CK", -0.6), ("CK", 0.6), ("CK", 0.87), ("CK", 0.87)),
        *(("WCK", -0.38), ("WCK", 0.09), ("WCK", 0.46), ("WCK", 0.87)),
    ]
    for cell in cells:
        assert cell.agrees
        assert cell.value == pytest.approx(cell.by_definition, abs=1e-12)


def test_a_value_that_is_off_does_not_agree() -> None:
    [cell] = [cell for cell in kernel_similarities() if (cell.kernel, cell.ranking) == ("WCK", (2, 1, 3))]
    assert not cell._replace(value=cell.value + 0.01).agrees
    assert not cell._replace(by_definition=cell.by_definition - 0.01).agrees


def test_of_full_rankings_with_equal_weights_it_is_kendall_s_tau() -> None:
    for other in permutations(range(4)):
        value = similarity_by_definition([0, 1, 2, 3], other, n_items=4, rank_weight=lambda _a, _b: 1.0)
        assert value == pytest.approx(kendalltau([0, 1, 2, 3], np.argsort(other)).statistic)


def test_it_is_the_sum_of_equation_4_term_by_term() -> None:
    def kernel(left: tuple[int, ...], right: tuple[int, ...]) -> float:
        total = 0.0
        for begin in permutations(set(range(5)) - set(left)):
            for end in permutations(set(range(5)) - set(right)):
                one, two = [*left, *begin], [*right, *end]
                for i, j in combinations(range(5), 2):
                    p, q, r, s = one.index(i), one.index(j), two.index(i), two.index(j)
                    agree = 1.0 if (p < q) == (r < s) else -1.0
                    total += agree * dcg_weight(p + 1, q + 1) * dcg_weight(r + 1, s + 1)
        return total

    expected = kernel((0, 3), (3, 4)) / np.sqrt(kernel((0, 3), (0, 3)) * kernel((3, 4), (3, 4)))
    assert similarity_by_definition([0, 3], [3, 4], n_items=5, rank_weight=dcg_weight) == pytest.approx(expected)
    assert weighted_convolutional_kendall(5, 2).gram([0, 3], [3, 4])[0, 0] == pytest.approx(expected)


@pytest.mark.parametrize(("left", "n_items", "field"), [([0, 0], 4, "left"), ([0, 1], 9, "n_items")])
def test_what_cannot_be_enumerated_is_refused(left: list[int], n_items: int, field: str) -> None:
    with pytest.raises(InvalidArgumentError) as error:
        similarity_by_definition(left, [1, 2], n_items=n_items, rank_weight=dcg_weight)
    assert error.value.field == field
