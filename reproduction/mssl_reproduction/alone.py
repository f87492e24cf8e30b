"""Each task by itself: what all experiments are compared with."""

from __future__ import annotations

from typing import Any

import numpy as np

from mssl._typing import Array, Labels


class TaskByTask:
    """Least squares, or ridge with its strength by leave-one-out, one model a task."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def fit(self, X: Array, y: Array, tasks: Labels) -> TaskByTask:
        """Fit one model a task."""
        from sklearn.linear_model import LinearRegression, RidgeCV

        def make() -> Any:
            return LinearRegression() if self.kind == "OLS" else RidgeCV(np.logspace(-3, 3, 25))

        self.models_ = {task: make().fit(X[tasks == task], y[tasks == task]) for task in np.unique(tasks)}
        return self

    def predict(self, X: Array, tasks: Labels) -> Array:
        """Predict row by row with the model of its task."""
        prediction = np.empty(len(X))
        for task in np.unique(tasks):
            prediction[tasks == task] = self.models_[task].predict(X[tasks == task])
        return prediction
