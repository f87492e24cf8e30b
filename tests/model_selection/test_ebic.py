"""The extended Bayesian information criterion: its value by hand, blocks found, units that do not matter."""

import numpy as np
import pytest

from mssl.exceptions import DataError, ParameterError
from mssl.model_selection import ebic_path


def test_ebic_finds_blocks_and_its_score_is_the_criterion():
    random = np.random.default_rng(1)
    centre = random.standard_normal((2, 300))
    Q = np.repeat(centre, [3, 2], axis=0) + 0.6 * random.standard_normal((5, 300))
    path = ebic_path(Q, tasks="abcde")
    assert sorted(map(sorted, path.graph.components())) == [["a", "b", "c"], ["d", "e"]]
    assert path.scores[path.best] == path.scores.min()
    S = Q @ Q.T / 300 + 0.01 * np.diag(np.diagonal(Q @ Q.T / 300))
    dense = ebic_path(Q, lambdas=[1e-9])
    free = 300 * (5 + np.linalg.slogdet(S)[1]) + 10 * np.log(300) + 4 * 10 * 0.5 * np.log(5)
    assert dense.scores[0] == pytest.approx(free, rel=1e-6)


def test_ebic_refuses_what_it_cannot_use():
    with pytest.raises(DataError, match="shape"):
        ebic_path(np.zeros(3))
    with pytest.raises(ParameterError, match="gamma"):
        ebic_path(np.eye(3), gamma=2)
    rows = np.eye(3) + 0.1
    with pytest.raises(ParameterError, match="empty"):
        ebic_path(rows, lambdas=[])
    for lambdas in ([np.nan], [-1.0], [np.inf, 0.1], "a"):
        with pytest.raises(ParameterError, match="lambdas is"):
            ebic_path(rows, lambdas=lambdas)
    for floors in (-1.0, [1.0, 2.0], np.nan, "a"):
        with pytest.raises(ParameterError, match="floors is"):
            ebic_path(rows, floors=floors)
    with pytest.raises(ParameterError, match="n_points"):
        ebic_path(rows, n_points=0)
    with pytest.raises(ParameterError, match="2 names"):
        ebic_path(rows, tasks="ab")
    rows[1] = 0.0
    with pytest.raises(DataError, match="task 1 is all zeros"):
        ebic_path(rows)
    assert ebic_path(rows, floors=0.1).graph.adjacency[1].sum() == 0


@pytest.mark.parametrize("units", [np.full(4, 1e150), np.full(4, 1e-300), np.array([1.0, 1e-200, 1e200, 1e-320])])
def test_ebic_does_not_depend_on_the_tasks_units(units):
    random = np.random.default_rng(0)
    Q = random.standard_normal((4, 50))
    Q[1] += Q[0]
    plain, other = ebic_path(Q), ebic_path(units[:, None] * Q)
    assert other.best == plain.best
    # Numbers near 1e-320 have few digits left.
    accuracy = 1e-9 if units.min() > 1e-307 else 1e-2
    np.testing.assert_allclose(other.graph.weights, plain.graph.weights, rtol=accuracy, atol=accuracy)
    np.testing.assert_allclose(other.scores - plain.scores, 100 * np.log(units).sum(), rtol=accuracy)
