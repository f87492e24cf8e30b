r"""Cross-validated choice of candidates: predictive densities of held-out rows, and the best mixture of candidates.

Every candidate, its feature maps included, is fitted on the training part of every fold. The fit gives each held-out
row a density. Stacking (Yao, Vehtari, Simpson & Gelman 2018, doi:10.1214/17-BA1091) chooses the weights that solve

.. math:: \max_{w \ge 0, \sum w = 1} \; \sum_i \log \sum_m w_m \, p_m(y_i \mid y_{-i}) ,

Stacking does not assume that one of the candidates is the true model. If none is, the best predictor may be a mixture.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy import sparse
from scipy.optimize import minimize

from mssl._typing import Array, Index, Mask
from mssl.data.layouts import TaskData, subset
from mssl.evidence.climb import ROUGH_GAIN
from mssl.evidence.fit import EvidenceFit, Options, can_share, fit_evidence
from mssl.features.maps import FeatureBlocks, fit_maps
from mssl.files.checkpoint import Checkpoint
from mssl.judge.held_out import MIN_GAIN_NATS, gain, stack, wins
from mssl.losses import Calibration, Forecast, Loss
from mssl.metrics import HeldOut, area_under_curve, base_log_loss, mean_of_known, share_explained, task_means

# Largest number of compressed rows for which structure="auto" tries dense task covariances. More rows would find more
# relations but take longer: about 20 s at the limit. Labels and counts repeat the computation for every sweep of the
# sites, so that they take as long with fewer rows. The first limit was raised from 600 to 1500 on 13 tasks with 100
# features and 60 rows each, where the excess risk fell from 0.98 to 0.58 of that of a ridge around a mean.
LARGEST_AUTO, LARGEST_AUTO_SITES = 1500, 600
# Weight 1/4 for rows of one occasion: a fixed alternative to a learned error covariance. It was set on cuts 100 and 101
# of wind-120 and atlas-5, where the error falls by 0.2 to 2 %.
OCCASION_TEMPERATURE = 4.0
# Members with a smaller stacking weight are dropped: each costs a whole fit and hardly changes the mixture.
LEAST_WEIGHT = 0.03


_FACTORS = (0.5, 3.0)  # Bounds of a calibration factor: a safeguard where few rows are held out.


def calibrate(forecast: Forecast, y: Array, weights: Array) -> Calibration:
    """Return the factors that maximise the density of held-out targets.

    A normal prior on the logarithm of each factor shrinks it towards one.

    Parameters
    ----------
    forecast : Forecast
        Predictive distributions of the held-out rows.
    y : ndarray of shape (N,)
        Targets of the held-out rows.
    weights : ndarray of shape (N,)
        Frequency weights of the held-out rows.
    """
    if not forecast.factors:
        return Calibration()

    def calibration(q: Array) -> Calibration:
        return Calibration(**dict(zip(forecast.factors, np.exp(q).tolist(), strict=True)))

    def loss(q: Array) -> float:
        densities = np.maximum(forecast.calibrated(calibration(q)).log_density(y), -1e3)
        return -float(weights @ densities) + 0.5 * float(q @ q)

    start = np.zeros(len(forecast.factors))
    bounds = [np.log(_FACTORS)] * len(start)
    best = minimize(loss, start, method="L-BFGS-B", bounds=bounds, options={"eps": 1e-5, "gtol": 1e-3})
    return calibration(best.x) if best.fun < loss(start) else Calibration()


def forecast(fit: EvidenceFit, X: Any, task: Index) -> Forecast:
    """Return the predictive distribution of each row; task −1 is a new task."""
    n = X.shape[0]
    mean, variance, noise, degrees = np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    for k in np.unique(task).tolist():
        rows = np.flatnonzero(task == k)
        which = None if k < 0 else k
        mean[rows], variance[rows] = fit.predictor(X[rows], which)
        noise[rows], degrees[rows] = fit.noise(which), fit.degrees(which)
    return fit.loss.forecast(mean, variance, noise, degrees)


@dataclass(frozen=True)
class Candidate:
    """A combination of features and options that can be fitted.

    Attributes
    ----------
    features : str or sequence of FeatureMap
        Maps from columns to features.
    options : Options
        Structure, errors, intercepts and temperature.
    note : str
        Addition to the name in tables that distinguishes the candidate from others with the same structure.
    """

    features: Any
    options: Options
    note: str = ""

    @property
    def name(self) -> str:
        """Name of the candidate in tables."""
        parts = [self.options.name]
        if isinstance(self.features, str) and self.features != "linear":
            parts.append(self.features)
        if self.options.errors != "independent":
            parts.append("shared errors")
        if self.options.temperature != 1:
            parts.append(f"temperature {self.options.temperature:g}")
        if self.note:
            parts.append(self.note)
        return ", ".join(parts)


@dataclass(eq=False)
class Part:
    """A subset of the rows with its feature maps and fits. Each of them is computed once.

    Attributes
    ----------
    train : TaskData
        Training rows before the feature maps.
    loss : Loss
        The loss of one row.
    """

    train: TaskData
    loss: Loss
    _maps: dict[str, tuple[FeatureBlocks, TaskData]] = field(default_factory=dict)
    _fits: dict[Candidate, EvidenceFit] = field(default_factory=dict)

    def mapped(self, features: Any) -> tuple[FeatureBlocks, TaskData]:
        """Return the feature maps, fitted to these rows, and the rows with their features."""
        key = repr(features)
        if key not in self._maps:
            maps, data = fit_maps(features, self.train), self.train
            mapped = data if maps.linear else replace(data, X=maps.map_rows(data.X), feature_names=None)
            self._maps[key] = maps, mapped
        return self._maps[key]

    def fit(self, candidate: Candidate) -> EvidenceFit:
        """Return the candidate's fit to these rows."""
        if candidate not in self._fits:
            maps, data = self.mapped(candidate.features)
            # In each block there is one relevance per input column, and one per product of columns.
            groups = np.where(maps.column_of_ >= 0, maps.column_of_, -1 - np.arange(len(maps.column_of_)))
            before = candidate.options.base
            base = None if before is None else self.fit(Candidate(candidate.features, before))
            self._fits[candidate] = fit_evidence(
                data, maps.blocks_, groups, candidate.options, loss=self.loss, base=base
            )
        return self._fits[candidate]


@dataclass(eq=False)
class Trials:
    """Densities of held-out rows under each candidate, fold by fold.

    Attributes
    ----------
    data : TaskData
        All rows.
    folds : sequence of (train, test) masks over flat rows
        Training rows and held-out rows of each fold.
    record : Checkpoint
        Forecasts of held-out rows by the names of the candidates. Recorded forecasts are not computed again.
    rows, fold, task : ndarrays of int of shape (M,)
        Flat index, fold and task of each held-out row, fold after fold.
    y, counts : ndarrays of shape (M,)
        Target and frequency weight of each held-out row.
    """

    data: TaskData
    folds: Sequence[tuple[Mask, Mask]]
    loss: Loss
    report: Callable[[str, float], None] = lambda name, density: None
    record: Checkpoint = field(default_factory=lambda: Checkpoint(None, ""))
    densities: dict[Candidate, Array] = field(default_factory=dict)
    calibrations: dict[Candidate, Calibration] = field(default_factory=dict)

    def __post_init__(self) -> None:
        data = self.data
        self.parts = [Part(subset(data, train, all_tasks=False), self.loss) for train, _ in self.folds]
        self.fold, self.rows = np.nonzero([test for _, test in self.folds])
        self.y, self.counts = data.y[self.rows], data.row_weights[self.rows]
        self.task = data.task_of_row[self.rows]

    def _forecast(self, candidate: Candidate, folds: int) -> Forecast:
        """Return the forecasts of the held-out rows of the first folds.

        No fit starts from the fit of another fold. The other fold was trained on the rows that this fold holds out,
        and a rough climb keeps part of the information in its start.
        """
        forecasts, tol = [], max(candidate.options.tol, ROUGH_GAIN)
        rough = replace(candidate, options=replace(candidate.options, tol=tol))
        for part, (_, test) in zip(self.parts[:folds], self.folds, strict=False):
            held = subset(self.data, test, all_tasks=False)
            X = part.mapped(candidate.features)[0].map_rows(held.X)
            X = np.tile(X, (held.n_tasks, 1)) if held.shared else X
            forecasts.append(forecast(part.fit(rough), X, held.task_of_row))
        return forecasts[0].joined(forecasts[1:])

    def trails(self, candidate: Candidate, other: Candidate) -> bool:
        """Whether the candidate predicts no better than the other in two folds; then the other folds are skipped."""
        if len(self.folds) <= 2 or candidate.name in self.record:
            return False
        first = self.fold < 2
        densities = [self._forecast(one, 2).log_density(self.y[first]) for one in (candidate, other)]
        return not self.counts[first] @ (densities[0] - densities[1]) > 0

    def judge(self, candidate: Candidate) -> Array:
        """Return the log density of every held-out row."""
        if candidate not in self.densities:
            if candidate.name not in self.record:
                arrays = self._forecast(candidate, len(self.folds)).arrays().items()
                kept = {name: part if self.record.path is None else part.tolist() for name, part in arrays}
                self.record[candidate.name] = kept
            whole = self.forecast(candidate)
            self.calibrations[candidate] = calibrate(whole, self.y, self.counts)
            self.densities[candidate] = _densities(whole.calibrated(self.calibrations[candidate]), self.y)
            self.report(candidate.name, float(self.counts @ self.densities[candidate] / self.counts.sum()))
        return self.densities[candidate]

    def forecast(self, candidate: Candidate) -> Forecast:
        """Return the recorded forecast of every held-out row."""
        return self.loss.forecast(**{n: np.asarray(part, float) for n, part in self.record[candidate.name].items()})

    def lead(self, candidate: Candidate, other: Candidate) -> tuple[float, float]:
        """Return the gain of the candidate over the other in total log density, and the standard error of the gain.

        The standard error is the larger of two: over cells and over tasks. A cell holds one task's rows of a fold or,
        if the tasks share occasions, all rows of one occasion.
        """
        difference, occasions = self.counts * (self.judge(candidate) - self.judge(other)), self.data.occasions
        cell = self.fold * self.data.n_tasks + self.task if occasions is None else occasions[self.rows]
        return gain(difference, cell, self.task)


def _densities(forecasts: Forecast, y: Array) -> Array:
    return np.nan_to_num(forecasts.log_density(y), nan=-1e3, neginf=-1e3)


@dataclass(frozen=True, eq=False)
class Member:
    """One fit of an ensemble.

    Attributes
    ----------
    name : str
        Name in tables.
    fit : EvidenceFit
        The fit to all rows.
    width : int
        Number of features that the fit uses. They are the first features of the ensemble.
    calibration : Calibration
        Factors that calibrate the fit's forecasts.
    weight : float
        Stacking weight.
    density : float
        Mean log density of held-out rows under this fit; NaN if no rows were held out.
    """

    name: str
    fit: EvidenceFit
    width: int
    calibration: Calibration
    weight: float
    density: float


@dataclass(frozen=True, eq=False)
class Ensemble:
    """A weighted mixture of fits.

    Attributes
    ----------
    members : list of Member
        The fits by falling weight.
    maps : FeatureBlocks or None
        Maps from the columns to the features; None if the columns are the features.
    judged : list of tuple of (str, float, float)
        Name, mean log density of held-out rows and weight of every candidate.
    held_out : HeldOut or None
        Score of cross-fitted mixtures on held-out rows; None if no rows were held out.
    """

    members: list[Member]
    maps: FeatureBlocks | None
    judged: list[tuple[str, float, float]]
    held_out: HeldOut | None = None

    @property
    def weights(self) -> Array:
        """Stacking weight of each member."""
        return np.asarray([member.weight for member in self.members])

    def forecast(self, X: Any, task: Index) -> Forecast:
        """Return the predictive distribution of each row of features; task −1 is a new task."""
        parts = [
            forecast(member.fit, X[:, : member.width], task).calibrated(member.calibration) for member in self.members
        ]
        return parts[0].mixed(parts[1:], self.weights) if parts[1:] else parts[0]


def choose(
    data: TaskData,
    features: Any,
    options: Options,
    loss: Loss,
    folds: Sequence[tuple[Mask, Mask]],
    report: Callable[[str, float], None] = lambda name, density: None,
    record: Checkpoint | None = None,
    *,
    free_intercepts: bool = False,
) -> Ensemble:
    """Fit the model; cross-validation settles every option that is "auto".

    The features are chosen first, with the structure "mean+ard". The structures and error models are then stacked.

    Parameters
    ----------
    data : TaskData
        Tasks with their columns.
    features : str or sequence of FeatureMap
        "auto", the name of a map, or maps.
    options : Options
        Options of the fit. Cross-validation settles a structure or errors of "auto".
    loss : Loss
        The loss of one row.
    folds : sequence of (train, test) masks over flat rows
        Folds for the choice and the calibration. Without folds the first candidate is fitted without calibration.
    report : callable
        Called with the name of each judged candidate and its mean log density of held-out rows.
    record : Checkpoint, optional
        Record of finished candidates, which are not fitted again.
    free_intercepts : bool
        Whether free intercepts are judged in addition to the intercepts of the options.
    """
    whole, open_ = Part(data, loss), options.structure == "auto"
    centre = "mean+ard" if open_ else options.structure
    errors = "independent" if options.errors == "auto" else options.errors
    words = _words(features, data)
    candidates = [Candidate(word, replace(options, structure=centre, errors=errors)) for word in words]
    if not folds:
        only, (maps, mapped) = candidates[0], whole.mapped(candidates[0].features)
        member = Member(only.name, whole.fit(only), mapped.n_features, Calibration(), 1.0, np.nan)
        return Ensemble([member], None if maps.linear else maps, [(only.name, np.nan, 1.0)])
    held = Trials(data, folds, loss, report, Checkpoint(None, "") if record is None else record)
    best = candidates[0]
    for candidate in candidates[1:]:
        if not held.trails(candidate, best):
            held.judge(candidate)
            if wins(held.lead(candidate, best), least=MIN_GAIN_NATS):
                best = candidate
    widths = [whole.mapped(maps)[1].n_features for maps in (words[0], best.features)]
    for variant in _variants(options, data, widths, loss):
        # With structure="auto" a dense task covariance is judged with straight lines, since curves cost far more.
        held.judge(Candidate(words[0] if variant.dense and open_ else best.features, variant))
    if free_intercepts and open_:
        for structure in ("ridge", "mean+ard"):
            variant = replace(best.options, structure=structure, intercepts="flat")
            held.judge(Candidate(best.features, variant, "free intercepts"))
    return _stacked(whole, held)


def _words(features: Any, data: TaskData) -> list[Any]:
    """Return the feature maps to try, straight lines first."""
    if not (isinstance(features, str) and features == "auto"):
        return [features]
    return ["linear"] if sparse.issparse(data.X) else ["linear", "spline"]


def _variants(options: Options, data: TaskData, widths: list[int], loss: Loss) -> list[Options]:
    """Return the options that are judged with the chosen features: structures, error models and temperatures.

    ``widths`` holds two numbers of features: of the first maps, which dense covariances use, and of the best maps.
    """
    open_ = options.structure == "auto"
    structures: list[Any] = ["mean+ard" if open_ else options.structure]
    if open_ and data.n_tasks == 1:
        structures = ["ridge", "ard"]
    elif open_:
        total = int(np.minimum(data.n_rows, widths[0] + 1).sum())
        largest = LARGEST_AUTO if loss.quadratic else LARGEST_AUTO_SITES
        dense = ["iw", "iw+ard"] if data.shared or total <= largest else []
        structures = ["ridge", "mean", "mean+ard", *dense]
    alone = [replace(options, structure=structure, errors="independent") for structure in structures]
    plain = [variant for variant in alone if not variant.dense]
    shared = [replace(variant, errors="shared") for variant in plain or alone]
    if options.errors == "shared":
        return shared
    if options.errors == "independent" or not (loss.quadratic and can_share(data, widths[1] + 1)):
        return alone
    return [*alone, *shared, *(replace(variant, temperature=OCCASION_TEMPERATURE) for variant in plain)]


def _stacked(whole: Part, held: Trials) -> Ensemble:
    """Return the mixture of all judged candidates. A narrower candidate uses the first features of the widest one."""
    names, counts = list(held.densities), held.counts
    densities = np.column_stack(list(held.densities.values()))
    weights, means = stack(densities, counts), counts @ densities / counts.sum()
    fits = {c: whole.fit(c) for c, heavy in zip(names, _heavy(weights), strict=True) if heavy}
    # If the sites of labels or counts did not converge, the fit may differ from the fits that the folds scored.
    kept = [c for c, fit in fits.items() if fit.promise <= ROUGH_GAIN or whole.loss.quadratic] or list(fits)
    shares = np.array([weight if c in kept else 0.0 for c, weight in zip(names, weights, strict=True)])
    judged = [
        (c.name, float(mean), float(share)) for c, mean, share in zip(names, means, shares / shares.sum(), strict=True)
    ]
    members = [
        Member(name, fits[c], whole.mapped(c.features)[1].n_features, held.calibrations[c], share, density)
        for c, (name, density, share) in zip(names, judged, strict=True)
        if c in kept
    ]
    members.sort(key=lambda member: -member.weight)
    widest = max((whole.mapped(c.features) for c in kept), key=lambda mapped: mapped[1].n_features)[0]
    possible = [c for c in names if c in kept or c not in fits]
    return Ensemble(members, None if widest.linear else widest, judged, _crossed(held, possible))


def _heavy(weights: Array) -> Mask:
    return weights >= min(LEAST_WEIGHT, float(weights.max()))


def _crossed(held: Trials, candidates: list[Candidate]) -> HeldOut | None:
    """Score the mixture on held-out rows, with weights and calibrations from the held-out rows of the other folds.

    The baselines (base rates and task means) come from the training rows of the same fold.
    """
    data, loss, y, counts = held.data, held.loss, held.y, held.counts
    whole = [held.forecast(candidate) for candidate in candidates]
    density, centre, base = np.empty((3, len(y)))
    alone = {m: np.empty(len(y)) for m, c in enumerate(candidates) if c.options.structure == "ridge"}
    areas = []
    for number, (train, test) in enumerate(held.folds):
        own, others = np.flatnonzero(held.fold == number), np.flatnonzero(~test[held.rows])
        if not len(others):
            return None
        taken = [part.take(others) for part in whole]
        factors = [calibrate(part, y[others], counts[others]) for part in taken]
        fits = (part.calibrated(factor) for part, factor in zip(taken, factors, strict=True))
        weights = stack(np.column_stack([_densities(fit, y[others]) for fit in fits]), counts[others])
        kept = np.flatnonzero(_heavy(weights))
        each = [part.take(own).calibrated(factor) for part, factor in zip(whole, factors, strict=True)]
        mixture = each[kept[0]].mixed([each[m] for m in kept[1:]], weights[kept] / weights[kept].sum())
        density[own], centre[own] = _densities(mixture, y[own]), mixture.expectation()
        for m, values in alone.items():
            values[own] = _densities(each[m], y[own])
        rates = task_means(data.y[train], data.task_of_row[train], data.row_weights[train], data.n_tasks)
        base[own] = rates[held.task[own]]
        areas.append(area_under_curve(y[own], centre[own], counts[own]))
    score = float(counts @ density / counts.sum())
    separate = max((float(counts @ values / counts.sum()) for values in alone.values()), default=None)
    if loss.labels:
        rate, separate = base_log_loss(y, base, counts), None if separate is None else -separate
        return HeldOut("log loss of held-out rows", -score, rate, mean_of_known(areas), separate=separate)
    share = share_explained(y, centre, base, counts) if loss.quadratic else np.nan
    explained = None if np.isnan(share) else share
    return HeldOut("mean log density of held-out rows", score, explained=explained, separate=separate)
