"""Bayesian estimators, which integrate the weights out, need no tuning, and give intervals also for new tasks."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Hashable, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field, replace
from itertools import count
from os import PathLike
from time import monotonic
from typing import Any, Self

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from mssl._progress import Progress
from mssl._typing import Array, ClassWeight, with_callbacks
from mssl._validation import check_choice, check_flag, check_number, check_whole_number, refused, warn
from mssl.data.folds import Folds
from mssl.data.hints import warn_of_ids, warn_of_residuals
from mssl.data.inputs import CHUNK, is_dask, listing, read_labels
from mssl.data.layouts import TaskData
from mssl.estimators.base import TaskEstimator
from mssl.estimators.fitted import normal_ends, of_version_2, typed
from mssl.estimators.moments import FromMoments
from mssl.estimators.prediction import Forecasts, LabelEstimator, OccasionPredictor
from mssl.evidence.choice import Ensemble, choose
from mssl.evidence.fit import STRUCTURES, Options, join_task
from mssl.evidence.prior import Prior, TaskKernel
from mssl.exceptions import DataError, MSSLError, all_or_nothing
from mssl.files.checkpoint import Checkpoint
from mssl.graph.information import evidence_on_weights
from mssl.graph.task_graph import TaskGraph, partial_correlation
from mssl.losses import LabelForecast, Loss
from mssl.metrics import HeldOut
from mssl.solvers.fit import Settings, prepare


@dataclass(eq=False, repr=False)
class BayesianEstimator(TaskEstimator):
    """Base class of the Bayesian estimators, which reads tasks, chooses and fits priors, and forecasts."""

    prior: str | TaskKernel | Prior = "auto"
    _: KW_ONLY
    features: str | Sequence[Any] = "auto"
    intercepts: str = "auto"
    calibrate: bool = True
    cv: Any = None
    tol: float = 1e-3
    max_iter: int = 300
    checkpoint: str | PathLike[str] | None = None
    residual_covariance: str = field(default="independent", init=False)
    scale_targets: bool | str = field(default=False, init=False)
    _takes_empty_tasks = True

    @staticmethod
    def _state_from_version_2(state: dict[str, Any]) -> dict[str, Any]:
        """Convert a state from a file of version 2, in which some parameters have other names."""
        state = of_version_2(state)
        state["prior"] = state.pop("structure")
        free = {"auto": "auto", True: "shrunk", False: "free"}[state.pop("random_intercepts")]
        state["intercepts"] = free if state.pop("fit_intercept") else "none"
        if "errors" in state:
            state["residual_covariance"] = state.pop("errors")
        return state

    @all_or_nothing
    @with_callbacks
    def fit(
        self,
        X: Any,
        y: Any,
        tasks: Any = None,
        sample_weight: Any = None,
        groups: Any = None,
        order: Any = None,
        offset: Any = None,
    ) -> Self:
        """Learn hyperparameters, the posterior of all tasks' weights, and the calibration of forecasts.

        Parameters
        ----------
        X, y, tasks, sample_weight, offset
            As for :class:`mssl.MSSLRegressor`. If all rows of a task have weight 0, or if all its targets are missing,
            it is predicted from what all tasks share.
        groups, order
            As for :class:`mssl.MSSLRegressorCV`. Folds split neither groups nor blocks of time. The model can include
            errors that the tasks of a group share.

        Returns
        -------
        self
        """
        if is_dask(X) and self._fitted_on_workers(X, y, tasks, sample_weight, offset):
            return self
        data = self._read(X, y, tasks, sample_weight, offset, groups, order)
        empty = data.tasks[data.n_rows == 0].tolist()
        if empty:
            warn(f"Tasks {listing(empty)} have no rows; they are predicted from what all tasks share.")
        folds = self._folds(data)
        own = bool(folds) and (self.cv is None or isinstance(self.cv, int | np.integer))
        if own:
            warn_of_ids(data)
        self._fit_tasks(data, X, y, folds)
        if own:
            warn_of_residuals(data, self._residuals(replace(data, X=self._mapped(data.X))))
        return self

    def _fit_tasks(self, data: TaskData, X: Any, y: Any, folds: Sequence[Any] = ()) -> Self:
        """Choose and fit priors. For moments there are no folds, because they give no densities of single rows."""
        loss = self._loss()
        options, both = self._options(data, loss)
        features = tuple(self.features) if isinstance(self.features, list) else self.features  # candidates are hashed
        context = self._init_callback_context(max_subtasks=None)
        context.call_on_fit_task_begin(estimator=self, X=X, y=y)
        record = Checkpoint.of(self, data, data.occasions, folds)
        began, numbers = monotonic(), count(1)
        with Progress(0, type(self).__name__, 1) as progress:

            def report(name: str, density: float) -> None:
                progress.advance()
                if self.verbose:
                    line = f"candidate {next(numbers)}: {name}, log density {density:.4f} per held-out row"
                    print(f"{line}, after {monotonic() - began:.1f} s", file=sys.stderr)
                self._pass(context, "candidate")

            progress.stage("candidates judged by folds" if folds else "fits", 0)
            ensemble = choose(data, features, options, loss, folds, report, record, free_intercepts=both)
        if ensemble.maps is not None:
            self._note_maps(data, ensemble.maps)
        evidence = None
        if np.all(data.n_rows > 0):  # The tests of relations need rows of every task.
            with suppress(MSSLError), warnings.catch_warnings():  # Only the tests use the fits that may warn.
                warnings.simplefilter("ignore")
                settings = Settings(fit_intercept=self.intercepts != "none")
                evidence = evidence_on_weights(prepare(data, loss, settings), data)
        summary = self._summarised(ensemble, data.dtype, evidence)
        self._end(loss=ensemble.members[0].fit.loss, unseen="mean", **summary)
        context.call_on_fit_task_end(estimator=self, X=X, y=y)
        late = [f"{one.name} ({one.fit.promise:.2g})" for one in ensemble.members if not one.fit.converged]
        varies = np.any(data.y != data.y[data.offsets[data.task_of_row]])  # Otherwise noise and weights shrink forever.
        if late and varies:
            warn(
                f"The climb of {listing(late)} stopped while its next step promised more than tol ({self.tol:g}): "
                f"after max_iter ({self.max_iter}) steps, or where no step gained more. Raise max_iter, or raise tol "
                "to accept the fit.",
                ConvergenceWarning,
            )
        return self

    def _options(self, data: TaskData, loss: Loss) -> tuple[Options, bool]:
        """The options of the fit to these data, and whether free intercepts are candidates too."""
        if not isinstance(self.prior, TaskKernel | Prior):
            check_choice("prior", self.prior, ("auto", *STRUCTURES), also="a TaskKernel or a Prior of mssl.priors")
        check_choice("residual_covariance", self.residual_covariance, ("auto", "independent", "shared"))
        intercepts, both = check_choice("intercepts", self.intercepts, ("auto", "free", "shrunk", "none")), False
        check_number("tol", self.tol, above=0)
        if not isinstance(loss.noise_variance, str):
            raise refused("loss", loss, "Bayesian fits learn the noise variance: leave noise_variance at 'auto'")
        check_whole_number("max_iter", self.max_iter, low=1)
        if intercepts == "auto":
            intercepts = "shrunk" if data.layout == "long" and data.n_tasks > 2 else "free"
            both = intercepts == "shrunk" and loss.labels
        scaled = self.scale_targets
        if isinstance(scaled, str):
            check_choice("scale_targets", scaled, ("auto",), also="True or False")
            scaled = data.layout == "shared" and loss.quadratic
        if self.residual_covariance == "shared" and data.occasions is None:
            allowed = "shared errors need rows that belong together: the shared or aligned layout, or groups="
            raise refused("residual_covariance", self.residual_covariance, allowed)
        options = Options(
            structure=self.prior,
            errors=self.residual_covariance,
            intercepts="flat" if intercepts == "free" else intercepts,
            scale_targets=bool(scaled),
            tol=float(self.tol),
            max_iter=int(self.max_iter),
        )
        return options, both

    def _folds(self, data: TaskData) -> list[Any]:
        """Folds for the choice and the calibration; an empty list if neither is needed or if there are too few rows."""
        check_flag("calibrate", self.calibrate)
        parts = (self.prior, self.residual_covariance, self.features)
        needed = self.calibrate or any(isinstance(part, str) and part == "auto" for part in parts)
        units = len(np.unique(data.occasions)) if data.occasions is not None else int(data.n_rows.max())
        if not needed or (self.cv is None and (len(data.y) < 10 or units < 3)):
            return []
        cv = min(5, units) if self.cv is None and data.order is None else self.cv
        return [(train, test) for train, test in Folds.from_cv(data, cv) if train.any() and test.any()]

    @property
    def held_out_(self) -> HeldOut:
        """Scores of the mixture on held-out rows of the folds; an AttributeError explains why there are none."""
        check_is_fitted(self)
        if self.has_offset_ and not self.loss_.quadratic:
            raise AttributeError("held_out_ is not known: with an offset the folds judge rates instead of targets.")
        if self.ensemble_.held_out is None:
            raise AttributeError(
                "held_out_ is not known: nothing was held out. Fit rows (not moments) with calibrate=True and cv=5, or "
                "as many folds as the largest task has rows; tasks of one row each cannot be held out."
            )
        return self.ensemble_.held_out

    def _summarised(self, ensemble: Ensemble, dtype: Any, evidence: Any) -> dict[str, Any]:
        """The fitted attributes of an ensemble, in the user's units; weights get the type of the features."""
        D, parts = len(self.features_), []
        for member in ensemble.members:
            fit, more = member.fit, (0, D - member.width)  # Narrow members use the first features only.
            W, level, variances = fit.weights()
            W, new, level, new_level = W[:-1], W[-1], level[:-1], level[-1]
            T, R = fit.task_covariances()
            edf = np.append(fit.edf, [task.edf for task in fit.joined])
            wide = [np.pad(part, [(0, 0), more]) for part in (W, variances + W**2)]
            own = [np.pad(part, more) for part in (new, fit.relevance())]
            parts.append([*wide, *own, level, new_level, edf, T, member.calibration.spread**2 * R])
        averages = (np.tensordot(ensemble.weights, part, 1) for part in zip(*parts, strict=True))
        coef, square, mean, relevance, level, mean_level, edf, covariance, residual = averages
        coef, level = typed(coef, level, dtype)
        std = np.sqrt(np.maximum(square - coef**2, 0.0))
        # The small term on the diagonal keeps a covariance factorisable that rounding makes singular.
        size = np.sqrt(np.diagonal(covariance))
        factor = np.linalg.cholesky(covariance / np.outer(size, size) + 1e-12 * np.eye(len(size)))
        root = np.linalg.solve(factor, np.diag(1 / size))
        precision = root.T @ root
        return {
            "ensemble": ensemble,
            "coef": coef,
            "intercept": level,
            "mean_coef": mean,
            "unseen_coef": mean,
            "unseen_intercept": float(mean_level),
            "feature_relevance": relevance / max(float(relevance.mean()), 1e-300),
            "covariance": covariance,
            "precision": precision,
            "partial_correlation": partial_correlation(precision),
            "residual_covariance": residual,
            "noise_variance": np.diag(residual).copy(),
            "graph": replace(TaskGraph.from_edges([], self.tasks_.tolist()), evidence=evidence),
            "errors": {"std": std, "dof": edf, "log_likelihood": None, "rows": None},
        }

    def _forecast(self, X: Any, tasks: Any, unseen: str | None, offset: Any = None) -> Forecasts:
        """Flat distributions of all rows, the shape of the predictions, and the type of the rows."""
        values, index, shape, dtype = self._rows(X, tasks, unseen)
        own = np.arange(int(np.prod(shape)))
        if index is None:  # Each row belongs to all tasks.
            own, index = own // shape[1], own % shape[1]
        step = max(1, CHUNK // max(1, values.shape[1]))
        parts = [slice(start, start + step) for start in range(0, max(len(own), 1), step)]
        forecasts = [self.ensemble_.forecast(values[own[part]], index[part]) for part in parts]
        forecast = forecasts[0].joined(forecasts[1:])
        return replace(forecast, mean=forecast.mean + np.ravel(self._offset(offset, shape))), shape, dtype

    def sample_posterior(self, n_samples: int = 100, *, random_state: Any = None) -> Array:
        """Posterior draws of the weights of all tasks, in the user's units.

        Parameters
        ----------
        n_samples : int, default=100
            Number of draws.
        random_state : None, int or numpy.random.RandomState
            Seed of the draws.

        Returns
        -------
        ndarray of shape (n_samples, K, D)
        """
        check_is_fitted(self)
        check_whole_number("n_samples", n_samples, low=1)
        rng = np.random.default_rng(check_random_state(random_state).randint(2**31))
        members = self.ensemble_.members
        which = rng.choice(len(members), size=n_samples, p=self.ensemble_.weights)
        draws = np.zeros((n_samples, *self.coef_.shape))
        for number, member in enumerate(members):
            rows = np.flatnonzero(which == number)
            if len(rows):
                draws[rows, :, : member.width] = member.fit.draw(len(rows), rng)
        return draws

    def coef_interval(self, level: float = 0.9) -> Array:
        """Posterior intervals of the weights, shape (K, D, 2).

        Parameters
        ----------
        level : float, default=0.9
            Posterior probability of each interval.
        """
        check_is_fitted(self)
        check_number("level", level, above=0, below=1)
        return np.stack(normal_ends(self.coef_, np.asarray(self.coef_std_), level), axis=-1)

    def _effect_std(self, steps: Array, effect: Array, index: int | None) -> Array | None:
        """Standard deviation of each point of the curve, from the mean and the variance of the mixture."""
        square = np.zeros(len(effect))
        for member in self.ensemble_.members:
            mean, variance = member.fit.contrast(steps[:, : member.width], index)
            square += member.weight * (variance + (mean - effect) ** 2)
        return np.sqrt(square)

    @all_or_nothing
    def adapt(self, X: Any, y: Any, task: Hashable) -> Self:
        """Add a new task with a few rows without a refit; hyperparameters and other tasks do not change.

        Parameters
        ----------
        X : array or frame of shape (n, d)
            Features of the new task.
        y : array of shape (n,)
            Targets of the new task.
        task : hashable
            Name of the new task.

        Returns
        -------
        self
        """
        check_is_fitted(self)
        if task in self.tasks_.tolist():
            raise refused("task", task, "give a name that no task has yet", "Refit to change a task.")
        X = self._own_columns(X)
        if hasattr(X, "columns") and self.task_column in list(X.columns):
            named = sorted({str(name) for name in np.asarray(read_labels(X[self.task_column]))})
            if named != [str(task)]:
                allowed = f"the column {self.task_column!r} holds {listing(named)}"
                raise refused("task", task, allowed, "Give the rows of one task, or leave the column out.")
        names = np.repeat(np.asarray([task]), len(y))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            values = self._rows(X, names, "mean").values
        targets = self._targets(y)
        if len(targets) != values.shape[0]:
            raise DataError(f"X has {values.shape[0]} rows, y has {len(targets)}; give one target per row.")
        members = [
            replace(member, fit=join_task(member.fit, values[:, : member.width], targets))
            for member in self.ensemble_.members
        ]
        rates = self.fitted_.input.base_rates
        if rates is not None:  # The mean rate counts as one row, as in the fit.
            rates = np.append(rates, (targets.sum() + rates.mean()) / (len(targets) + 1))
        self._note(tasks=np.append(self.tasks_, [task]), base_rates=rates)
        evidence = None if self.graph_.evidence is None else self.graph_.evidence.with_unknown()
        ensemble = replace(self.ensemble_, members=members)
        self.fitted_ = replace(self.fitted_, **self._summarised(ensemble, self.coef_.dtype, evidence))
        return self


@dataclass(eq=False, repr=False)
class BayesianMSSLRegressor(FromMoments, BayesianEstimator, OccasionPredictor):
    r"""Bayesian multi-task regression without tuning, with intervals and predictions for new tasks.

    The estimator integrates the weights out. The K weights of feature j have the prior
    :math:`W_j \sim N(0, \psi_j T)`, with a relevance ψ for each feature and a covariance T over tasks: :math:`vI`
    (ridge), :math:`vI + t 1 1^\top` (a shared mean) or dense. The hyperparameters maximise the evidence; see
    :mod:`mssl.evidence.prior`. Folds that never split the rows of an occasion choose among features, priors and models
    of the errors. They also adjust the width of intervals.

    Fits to moments and to Dask collections (:meth:`fit_moments`) use no folds: ``prior="auto"`` is then "mean+ard", and
    the evidence alone determines the width of intervals.

    Parameters
    ----------
    prior : {"auto", "mean+ard", "mean", "ard", "ridge", "iw", "iw+ard"}, TaskKernel or Prior, default="auto"
        Prior over tasks and features: a shared mean ("mean"), learned relevances ("ard"), both, neither ("ridge"), or a
        dense covariance over tasks ("iw"). "auto" averages several priors, with weights that maximise the density of
        held-out rows (stacking).
    features : "auto", "linear", "spline", "spline+interactions" or list of maps, default="auto"
        Features that are made of the columns; "auto" uses splines if the folds prefer them. See :mod:`mssl.features`.
    residual_covariance : {"auto", "independent", "shared"}, default="auto"
        Whether the errors of tasks on one occasion (a row of the shared and aligned layouts, or a group) are related.
        "auto" lets the folds decide; without occasions it is "independent".
    intercepts : {"auto", "free", "shrunk", "none"}, default="auto"
        Kind of the tasks' intercepts: free, shrunk towards their mean as in a mixed model, or none. "auto" shrinks them
        in the long layout with three tasks or more. For labels with ``prior="auto"``, free intercepts are candidates
        too.
    scale_targets : "auto" or bool, default="auto"
        Whether the targets of each task are scaled separately. "auto" scales them in the shared layout, in which one
        design has many targets.
    loss : {"gaussian", "poisson", "gamma"}, default="gaussian"
        The loss of one observation. Fits use expectation propagation unless it is Gaussian. A
        :class:`mssl.losses.Loss` of your own needs ``log_base``, and ``cdf`` for intervals. Its parameters listed in
        ``learned`` are estimated.
    target_transform : {None, "log", "yeo-johnson", "auto"}, default=None
        Transform of the targets (Gaussian loss), as for :class:`mssl.MSSLRegressor`. Predictions, standard deviations,
        intervals and scores are in the targets' own units. Coefficients, noise and evidence are on the transformed
        scale.
    calibrate : bool, default=True
        Whether the folds adjust the width of forecasts.
    missing : {"error", "indicator"}, default="error"
        "error" refuses missing values in X. "indicator" replaces them by the column's mean and marks them by a further
        column.
    categorical_features : sequence of str or int, optional
        Columns of X that are categories even if they hold numbers, by name or by position.
    cv : None, int, splitter or iterable, default=None
        Folds for the choice and the calibration; 5 folds by default.
    task_column : str or int, optional
        The column of X that holds task ids.
    tol : float, default=1e-3
        A fit ends when its next step would reduce −2 log evidence by less than this number.
    max_iter : int, default=300
        Largest number of computations of the evidence in each stage of a fit.
    checkpoint : path, optional
        A file that stores the forecasts of every judged candidate, so that a killed fit can be continued. Saved models
        do not keep this path.
    verbose : int, default=0
        1 prints one line per candidate, with its number and the time since the fit began.

    Attributes
    ----------
    coef_, coef_std_ : ndarrays of shape (K, D)
        Posterior means and standard deviations of the weights.
    intercept_ : ndarray of shape (K,)
        Posterior means of the intercepts.
    mean_coef_ : ndarray of shape (D,)
        Expected weights of a new task.
    feature_relevance_ : ndarray of shape (D,)
        Prior variances of the features' weights, with mean 1.
    task_covariance_, residual_covariance_ : ndarrays of shape (K, K)
        Covariance over tasks of the weights of a feature with relevance one, and covariance of the errors.
    noise_variance_ : ndarray of shape (K,)
        Variances of the noise.
    effective_dof_ : ndarray of shape (K,)
        Degrees of freedom that the weights of each task use.
    evidence_ : float
        Log evidence of the member with the largest weight.
    structure_ : str
        Name of the member with the largest weight.
    candidates_ : list of tuple of (str, float, float)
        Name, mean log density of held-out rows, and weight of every candidate.
    held_out_ : mssl.metrics.HeldOut
        Scores of the mixture on held-out rows of the folds (``held_out_.score``), and those of the tasks' means.
    graph_ : TaskGraph
        Tests of relations: ``graph_.relations()`` and ``graph_.edges(fdr=0.1)``. The graph has no fitted edges.
    tasks_ : ndarray of shape (K,)
        Task names.

    References
    ----------
    MacKay (1992), Bayesian interpolation, doi:10.1162/neco.1992.4.3.415.
    Yao, Vehtari, Simpson & Gelman (2018), doi:10.1214/17-BA1091.

    Examples
    --------
    >>> from mssl import BayesianMSSLRegressor
    >>> from mssl.datasets import make_clustered_tasks
    >>> data = make_clustered_tasks(n_features=5, n_samples=20, random_state=0)
    >>> model = BayesianMSSLRegressor("mean+ard", features="linear").fit(data.X, data.y, tasks=data.tasks)
    >>> mean, std = model.predict(data.X_test, tasks=data.tasks_test, return_std=True)
    >>> model.predict_interval(data.X_test, tasks=data.tasks_test).shape
    (520, 2)
    """

    _integrates = True
    _: KW_ONLY
    residual_covariance: str = "auto"
    scale_targets: bool | str = "auto"
    loss: str | Loss = "gaussian"
    target_transform: str | None = None

    def _loss(self) -> Loss:
        loss = super()._loss()
        if loss.labels or type(loss).log_base is Loss.log_base:
            allowed = "a Bayesian regressor takes 'gaussian', 'poisson', 'gamma', or another Loss with log_base"
            raise refused("loss", self.loss, allowed, "Use mssl.BayesianMSSLClassifier for two classes.")
        return loss

    def impute(self, X: Any, Y: Any) -> Array:
        """Replace missing targets of the shared or aligned layout by their expectations given the known targets.

        Parameters
        ----------
        X : array or frame of shape (n, d) or (n, K, d)
            Features.
        Y : array of shape (n, K)
            Targets; NaN marks missing ones.

        Returns
        -------
        ndarray of shape (n, K)
        """
        Y = np.asarray(Y, dtype=float)
        return np.where(np.isnan(Y), self.predict(X, known=Y), Y)

    def predict_interval(
        self, X: Any, level: float = 0.9, tasks: Any = None, unseen: str | None = None, *, offset: Any = None
    ) -> Array:
        """Intervals that hold new targets with a given probability.

        Parameters
        ----------
        X, tasks, unseen, offset
            As for :meth:`predict`.
        level : float, default=0.9
            Probability that a new target lies inside.

        Returns
        -------
        ndarray of shape (N, 2) or (n, K, 2)
            Lower and upper ends.
        """
        check_number("level", level, above=0, below=1)
        forecast, shape, _ = self._forecast(X, tasks, unseen, offset)
        levels = np.asarray([0.5 - level / 2, 0.5 + level / 2])
        ends = forecast.quantile(levels)
        return (ends if self.target_ is None else self.target_.inverse(ends)).reshape(*shape, 2)


@dataclass(eq=False, repr=False)
class BayesianMSSLClassifier(LabelEstimator, BayesianEstimator):
    r"""Bayesian multi-task classification, which integrates the weights out by expectation propagation.

    This is the model of :class:`BayesianMSSLRegressor` with the logistic likelihood. Probabilities are averages over
    the posterior, :math:`E\,\sigma(f)`. Factors of the mean and of the standard deviation of f, which the folds
    determine, calibrate them; nearly separable tasks are then neither under- nor overconfident.

    Parameters
    ----------
    prior, features, intercepts, calibrate, missing, categorical_features
        As for :class:`BayesianMSSLRegressor`.
    cv, task_column, tol, max_iter, checkpoint, verbose
        As for :class:`BayesianMSSLRegressor`.
    class_weight : None, "balanced" or dict of label → weight, default=None
        Weights of the classes; "balanced" gives both classes of each task the same total weight.

    Attributes
    ----------
    classes_ : ndarray of shape (2,)
        The labels; probabilities and decisions refer to the second.
    coef_, coef_std_, intercept_, mean_coef_, feature_relevance_, task_covariance_, effective_dof_, evidence_
        As for :class:`BayesianMSSLRegressor`, on the scale of log-odds.
    structure_, candidates_, held_out_, graph_, tasks_
        As for :class:`BayesianMSSLRegressor`.

    References
    ----------
    Minka (2001), Expectation propagation for approximate Bayesian inference, arXiv:1301.2294.

    Examples
    --------
    >>> from mssl import BayesianMSSLClassifier
    >>> from mssl.datasets import make_clustered_tasks
    >>> data = make_clustered_tasks(family="binary", n_features=5, n_samples=30, random_state=0)
    >>> model = BayesianMSSLClassifier("mean+ard", features="linear").fit(data.X, data.y, tasks=data.tasks)
    >>> model.predict_proba(data.X_test, tasks=data.tasks_test).shape
    (520, 2)
    """

    _: KW_ONLY
    class_weight: ClassWeight = None

    def decision_function(self, X: Any, tasks: Any = None, unseen: str | None = None) -> Array:
        """Log-odds of the second class's predictive probability.

        Parameters
        ----------
        X, tasks, unseen
            As for :meth:`predict`.

        Returns
        -------
        ndarray of shape (N,) or (n, K)
        """
        forecast, shape, dtype = self._forecast(X, tasks, unseen)
        assert isinstance(forecast, LabelForecast)  # for the type checker
        return self._as_given(forecast.log_odds().reshape(shape), dtype)
