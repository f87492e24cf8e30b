"""Input that cannot be fitted to: each estimator says what came and what to do, in one form."""

import re

import numpy as np
import pandas as pd
import pytest

import mssl
from mssl.structures import Independent

X = np.random.default_rng(0).normal(size=(12, 3))
Y = np.tile([0.0, 1.0], 6)
TASKS = np.repeat([0, 1, 2], 4)
REMEDY = re.compile(r"\b(give|drop|replace|convert|reshape|use|set)\b", re.IGNORECASE)

ESTIMATORS = {
    "MSSLRegressor": mssl.MSSLRegressor(),
    "MSSLClassifier": mssl.MSSLClassifier(),
    "MSSLRegressorCV": mssl.MSSLRegressorCV(),
    "MSSLClassifierCV": mssl.MSSLClassifierCV(),
    "MultiTaskGLM": mssl.MultiTaskGLM(Independent()),
    "MultiTaskGLMCV": mssl.MSSLRegressorCV(mssl.MultiTaskGLM(Independent()), {"penalty__alpha": [1.0]}, refit="best"),
    "BayesianMSSLRegressor": mssl.BayesianMSSLRegressor(),
    "BayesianMSSLClassifier": mssl.BayesianMSSLClassifier(),
    "StabilitySelection": mssl.StabilitySelection(),
}


def with_entry(value, dtype=object):
    """X with one entry replaced."""
    changed = X.astype(dtype)
    changed[4, 1] = value
    return changed


def missing_target():
    y = Y.copy()
    y[[3, 5]] = np.nan
    return y


# What is given, and what the message must name besides a remedy.
INPUTS = {
    "text in an array": (with_entry("12 kg"), Y, TASKS, "column 1 holds '12 kg'"),
    "a number too large": (with_entry(10**400), Y, TASKS, "column 1 holds 10000"),
    "objects": (with_entry({"kg": 12}), Y, TASKS, r"column 1 holds \{'kg': 12\}"),
    "complex X": (X + 1j, Y, TASKS, "X holds complex"),
    "complex y": (X, Y + 1j, TASKS, "y holds complex"),
    "no rows": (X[:0], Y[:0], TASKS[:0], r"0 sample\(s\)"),
    "no columns": (X[:, :0], Y, TASKS, r"0 feature\(s\)"),
    "one dimension": (X[:, 0], Y, TASKS, "1D array"),
    "infinite X": (with_entry(np.inf, float), Y, TASKS, "X contains infinity"),
    "missing X": (with_entry(np.nan, float), Y, TASKS, "X.*x1"),
    "missing y": (X, missing_target(), TASKS, r"y contains NaN.*\b2\b.*rows"),
    "fewer targets": (X, Y[:-1], TASKS, "X has 12 rows, y has 11"),
    "fewer task ids": (X, Y, TASKS[:-1], "11 task ids for 12 rows"),
    "no targets": (X, None, TASKS, "y is None"),
    "times": (X.astype("datetime64[s]"), Y, TASKS, "X holds times"),
    "text in y": (X, np.where(Y > 0, "12 kg", "no"), TASKS, "'12 kg'|'no'"),
}


@pytest.mark.parametrize("name", INPUTS)
@pytest.mark.parametrize("estimator", ESTIMATORS.values(), ids=ESTIMATORS)
def test_every_estimator_says_what_came_and_what_to_do(estimator, name):
    features, targets, tasks, told = INPUTS[name]
    if name == "text in y" and "Classifier" in type(estimator).__name__:
        pytest.skip("two texts are two classes")
    with pytest.raises((ValueError, TypeError)) as caught:
        estimator.fit(features, targets, tasks=tasks)
    message = str(caught.value)
    assert re.search(told, message), message
    assert REMEDY.search(message), message


@pytest.mark.parametrize("name", [name for name in INPUTS if name != "no rows"])  # a chunk may be empty
def test_moments_say_so_too(name):
    features, targets, tasks, told = INPUTS[name]
    with pytest.raises((ValueError, TypeError)) as caught:
        mssl.Moments.from_rows(features, targets, tasks=tasks)
    message = str(caught.value)
    assert re.search(told, message), message
    assert REMEDY.search(message), message


def test_a_column_of_numbers_with_a_few_texts_is_named():
    """A frame's column of text is a category; numbers and text in one column are more likely a slip."""
    frame = pd.DataFrame(X, columns=["a", "b", "c"]).astype({"b": object})
    frame.loc[4, "b"] = "12 kg"
    with pytest.raises(mssl.exceptions.DataError, match=r"Column 'b' holds .*'12 kg'.*correct the text"):
        mssl.MSSLRegressor().fit(frame, Y, tasks=TASKS)
