r"""Which candidates, by what folds say: predictive densities of held-out rows, and the mixture that suits them best.

Every candidate is fitted on the training part of every fold, maps of features included, and gives each held-out row a
density. Stacking (Yao, Vehtari, Simpson & Gelman 2018, doi:10.1214/17-BA1091) weighs the candidates so that

.. math:: \max_{w \ge 0, \sum w = 1} \; \sum_i \log \sum_m w_m \, p_m(y_i \mid y_{-i}) ,

which does not ask whether one of them is right, and gives a mixture where none is.
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
from mssl.evidence.fit import EvidenceFit, Options, can_share, fit_evidence, relevance_groups
from mssl.evidence.prior import Prior, TaskKernel
from mssl.features.maps import FeatureBlocks, fit_maps
from mssl.files.checkpoint import Checkpoint
from mssl.judge.held_out import MIN_GAIN_NATS, gain, stack, wins
from mssl.losses import Calibration, Forecast, Loss
from mssl.metrics import HeldOut, area_under_curve, base_log_loss, mean_of_known, share_explained, task_means

# Compressed rows up to which dense covariances are judged unasked. At the limit they take some 20 s; labels and counts,
# whose sites are found by many such computations, take as long with fewer rows.
LARGEST_AUTO, LARGEST_AUTO_SITES = 1500, 600
OCCASION_TEMPERATURE = 4.0  # rows of one occasion count a quarter: a model of errors that needs nothing learned
LEAST_WEIGHT = 0.03  # members that weigh less are left out: they cost time and change nothing


_FACTORS = (0.5, 3.0)  # least and largest factor of a calibration


def calibrate(forecast: Forecast, y: Array, weights: Array) -> Calibration:
    """The factors that give held-out targets the highest density, drawn towards one by one row's worth.

    Parameters
    ----------
    forecast : Forecast
        Of held-out rows.
    y : ndarray of shape (N,)
        Their targets.
    weights : ndarray of shape (N,)
        Their frequency weights.
    """
    if not forecast.factors:
        return Calibration()

    def made(q: Array) -> Calibration:
        return Calibration(**dict(zip(forecast.factors, np.exp(q).tolist(), strict=True)))

    def lost(q: Array) -> float:
        densities = np.maximum(forecast.calibrated(made(q)).log_density(y), -1e3)
        return -float(weights @ densities) + 0.5 * float(q @ q)

    start = np.zeros(len(forecast.factors))
    bounds = [np.log(_FACTORS)] * len(start)
    found = minimize(lost, start, method="L-BFGS-B", bounds=bounds, options={"eps": 1e-5, "gtol": 1e-3})
    return made(found.x) if found.fun < lost(start) else Calibration()


def forecast(fit: EvidenceFit, X: Any, task: Index) -> Forecast:
    """Predictive distributions of rows of tasks; −1 is a new task."""
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
    """One way to fit.

    Attributes
    ----------
    features : str or sequence of FeatureMap
        What is made of the columns.
    options : Options
        Structure, errors, intercepts, temperature.
    note : str
        What sets it apart from others of that structure, for tables.
    """

    features: Any
    options: Options
    note: str = ""

    @property
    def name(self) -> str:
        """Words for tables."""
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
    """Some rows, with their maps of features and fits by candidate, each made once.

    Attributes
    ----------
    train : TaskData
        Rows to fit to, before maps.
    occasions : ndarray of int or None
        Occasions of those rows.
    loss : Loss
        The loss of one row.
    """

    train: TaskData
    occasions: Index | None
    loss: Loss
    _maps: dict[str, tuple[FeatureBlocks, TaskData]] = field(default_factory=dict)
    _fits: dict[Candidate, EvidenceFit] = field(default_factory=dict)

    def mapped(self, features: Any) -> tuple[FeatureBlocks, TaskData]:
        """The maps, fitted to these rows, and the rows with their features."""
        key = repr(features)
        if key not in self._maps:
            maps, data = fit_maps(features, self.train), self.train
            mapped = data if maps.linear else replace(data, X=maps.map_rows(data.X), feature_names=None)
            self._maps[key] = maps, mapped
        return self._maps[key]

    def fit(self, candidate: Candidate) -> EvidenceFit:
        """The candidate's fit to these rows."""
        if candidate not in self._fits:
            maps, data = self.mapped(candidate.features)
            groups = relevance_groups(maps.blocks_, maps.column_of_)
            before = candidate.options.base
            base = None if before is None else self.fit(Candidate(candidate.features, before))
            self._fits[candidate] = fit_evidence(
                data, maps.blocks_, groups, candidate.options, loss=self.loss, occasions=self.occasions, base=base
            )
        return self._fits[candidate]


@dataclass(eq=False)
class Trials:
    """Densities of held-out rows under candidates, fold by fold.

    Attributes
    ----------
    data : TaskData
        All rows.
    folds : sequence of (train, test) masks over flat rows
        What is fitted and what is held out.
    record : Checkpoint
        Forecasts of held-out rows by the candidates' names; what is there is not computed again.
    """

    data: TaskData
    folds: Sequence[tuple[Mask, Mask]]
    occasions: Index | None
    loss: Loss
    report: Callable[[str, float], None] = lambda name, density: None
    record: Checkpoint = field(default_factory=lambda: Checkpoint(None, ""))
    parts: list[Part] = field(default_factory=list)
    densities: dict[Candidate, Array] = field(default_factory=dict)
    calibrations: dict[Candidate, Calibration] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for train, _ in self.folds:
            part = subset(self.data, train, all_tasks=False)
            self.parts.append(Part(part, None if self.occasions is None else self.occasions[train], self.loss))

    @property
    def rows(self) -> Index:
        """The flat rows that are held out, fold after fold."""
        return np.concatenate([np.flatnonzero(test) for _, test in self.folds])

    def _forecast(self, candidate: Candidate, folds: int) -> Forecast:
        """What the first training parts say of their held-out rows.

        No fit starts from that of another fold: a rough climb keeps some of what its start knew, and the other fold
        was trained on the rows that are held out here.
        """
        made, tol = [], max(candidate.options.tol, ROUGH_GAIN)
        rough = replace(candidate, options=replace(candidate.options, tol=tol))
        for part, (_, test) in zip(self.parts[:folds], self.folds, strict=False):
            held = subset(self.data, test, all_tasks=False)
            X = part.mapped(candidate.features)[0].map_rows(held.X)
            X = np.tile(X, (held.n_tasks, 1)) if held.shared else X
            made.append(forecast(part.fit(rough), X, held.task_of_row))
        return made[0].joined(made[1:])

    def trails(self, candidate: Candidate, other: Candidate) -> bool:
        """Whether the first predicts no better in two folds, so that the others are not worth their time."""
        if len(self.folds) <= 2 or candidate.name in self.record:
            return False
        y = np.concatenate([self.data.y[test] for _, test in self.folds[:2]])
        ahead = self._forecast(candidate, 2).log_density(y) - self._forecast(other, 2).log_density(y)
        return not self.row_weights()[: len(y)] @ ahead > 0

    def judge(self, candidate: Candidate) -> Array:
        """Log density of every held-out row."""
        if candidate not in self.densities:
            if candidate.name not in self.record:
                made = self._forecast(candidate, len(self.folds))
                arrays = made.arrays().items()
                kept = {name: part if self.record.path is None else part.tolist() for name, part in arrays}
                self.record[candidate.name] = kept
            whole = self.forecast(candidate)
            y, counts = self.data.y[self.rows], self.row_weights()
            self.calibrations[candidate] = calibrate(whole, y, counts)
            self.densities[candidate] = _densities(whole.calibrated(self.calibrations[candidate]), y)
            self.report(candidate.name, float(counts @ self.densities[candidate] / counts.sum()))
        return self.densities[candidate]

    def forecast(self, candidate: Candidate) -> Forecast:
        """What a candidate that was judged says of every held-out row."""
        return self.loss.forecast(**{n: np.asarray(part, float) for n, part in self.record[candidate.name].items()})

    def row_weights(self) -> Array:
        """Frequency weights of the held-out rows."""
        return np.ones(len(self.rows)) if self.data.weights is None else self.data.weights[self.rows]

    def lead(self, candidate: Candidate, other: Candidate) -> tuple[float, float]:
        """How much better the first predicts, in total log density, and its error over cells and over tasks.

        A cell is a fold's rows of one task, or an occasion where tasks share them.
        """
        difference, task = self.row_weights() * (self.judge(candidate) - self.judge(other)), self.data.task_of_row
        if self.data.occasions is not None:
            cell = self.data.occasions[self.rows]
        else:
            fold = np.concatenate([np.full(int(test.sum()), number) for number, (_, test) in enumerate(self.folds)])
            cell = fold * self.data.n_tasks + task[self.rows]
        return gain(difference, cell, task[self.rows])


def _densities(made: Forecast, y: Array) -> Array:
    return np.nan_to_num(made.log_density(y), nan=-1e3, neginf=-1e3)


@dataclass(frozen=True, eq=False)
class Member:
    """One fit of an ensemble.

    Attributes
    ----------
    name : str
        Words for tables.
    fit : EvidenceFit
        What was learned.
    width : int
        How many of the ensemble's features it uses: the first ones.
    calibration : Calibration
        Factors of its forecasts.
    weight : float
        Its weight.
    density : float
        Mean log density that it gave held-out rows, NaN where there were none.
    """

    name: str
    fit: EvidenceFit
    width: int
    calibration: Calibration
    weight: float
    density: float


@dataclass(frozen=True, eq=False)
class Ensemble:
    """Fits with weights.

    Attributes
    ----------
    members : list of Member
        The heaviest first.
    maps : FeatureBlocks or None
        What makes the features of the columns; None where these are the features.
    judged : list of tuple of (str, float, float)
        All candidates: name, mean log density of held-out rows, weight.
    held_out : HeldOut or None
        How well mixtures made so predict held-out rows; None where there were none.
    """

    members: list[Member]
    maps: FeatureBlocks | None
    judged: list[tuple[str, float, float]]
    held_out: HeldOut | None = None

    @property
    def weights(self) -> Array:
        """The members' weights."""
        return np.asarray([member.weight for member in self.members])

    def forecast(self, X: Any, task: Index) -> Forecast:
        """Predictive distributions of rows of features; −1 is a new task."""
        made = [
            forecast(member.fit, X[:, : member.width], task).calibrated(member.calibration) for member in self.members
        ]
        return made[0].mixed(made[1:], self.weights) if made[1:] else made[0]


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
    """Fit what was asked for; where something was left open, what folds prefer.

    First the features, judged with the centre of the candidates (mean + ARD); then structures and errors, stacked.

    Parameters
    ----------
    data : TaskData
        Tasks with their columns.
    features : str or sequence of FeatureMap
        "auto", a word, or maps.
    options : Options
        How to fit; a structure or errors of "auto" are left to the folds.
    loss : Loss
        The loss of one row.
    folds : sequence of (train, test) masks over flat rows
        To choose and to calibrate by; none: the first candidate as it is.
    report : callable
        Told the name of every candidate that was judged, and its mean log density of held-out rows.
    record : Checkpoint, optional
        Where finished candidates are written down, and looked up.
    free_intercepts : bool
        Whether free intercepts are judged beside those of the options.
    """
    # Rows of one occasion: those of the input where these hold all tasks, whatever larger groups folds keep together.
    occasions = data.groups if data.layout == "long" else data.source_rows
    whole = Part(data, occasions, loss)
    open_ = options.structure == "auto"
    centre = "mean+ard" if open_ else options.structure
    errors = "independent" if options.errors == "auto" else options.errors
    words = _words(features, data)
    candidates = [Candidate(word, replace(options, structure=centre, errors=errors)) for word in words]
    if not folds:
        only, (maps, mapped) = candidates[0], whole.mapped(candidates[0].features)
        member = Member(only.name, whole.fit(only), mapped.n_features, Calibration(), 1.0, np.nan)
        return Ensemble([member], None if maps.linear else maps, [(only.name, np.nan, 1.0)])
    held = Trials(data, folds, occasions, loss, report, Checkpoint(None, "") if record is None else record)
    best = candidates[0]
    for candidate in candidates[1:]:
        if not held.trails(candidate, best):
            held.judge(candidate)
            if wins(held.lead(candidate, best), least=MIN_GAIN_NATS):
                best = candidate
    widths = [whole.mapped(maps)[1].n_features for maps in (words[0], best.features)]
    for structure, kind, temperature in _variants(options, data, widths, occasions, loss):
        # A dense covariance over tasks is judged unasked with straight lines: with curves it costs far more.
        variant = replace(best.options, structure=structure, errors=kind, temperature=temperature)
        held.judge(Candidate(words[0] if variant.dense and open_ else best.features, variant))
    if free_intercepts and open_:
        for structure in ("ridge", "mean+ard"):
            variant = replace(best.options, structure=structure, intercepts="flat")
            held.judge(Candidate(best.features, variant, "free intercepts"))
    return _stacked(whole, held)


def _words(features: Any, data: TaskData) -> list[Any]:
    """Features to try: straight lines first."""
    if not (isinstance(features, str) and features == "auto"):
        return [features]
    return ["linear"] if sparse.issparse(data.X) else ["linear", "spline"]


def _variants(
    options: Options, data: TaskData, widths: list[int], occasions: Index | None, loss: Loss
) -> list[tuple[str | TaskKernel | Prior, str, float]]:
    """Structures, errors and temperatures that are judged besides the centre.

    ``widths`` are the numbers of features of the first words, with which dense covariances are judged, and of the best.
    """
    structures: list[str | TaskKernel | Prior] = ["mean+ard" if options.structure == "auto" else options.structure]
    if options.structure == "auto" and data.n_tasks == 1:
        structures = ["ridge", "ard"]
    elif options.structure == "auto":
        total = int(np.minimum(data.n_rows, widths[0] + 1).sum())
        largest = LARGEST_AUTO if loss.quadratic else LARGEST_AUTO_SITES
        dense = ["iw", "iw+ard"] if data.shared or total <= largest else []
        structures = ["ridge", "mean", "mean+ard", *dense]
    made = [(structure, "independent", 1.0) for structure in structures if options.errors != "shared"]
    shared = options.errors == "shared" or (
        options.errors == "auto" and loss.quadratic and can_share(data, occasions, widths[1] + 1)
    )
    if shared:
        plain = [structure for structure in structures if not replace(options, structure=structure).dense]
        made += [(structure, "shared", 1.0) for structure in plain or structures]
        if options.errors == "auto":
            made += [(structure, "independent", OCCASION_TEMPERATURE) for structure in plain]
    return made


def _stacked(whole: Part, held: Trials) -> Ensemble:
    """The mixture of all candidates that were judged; features of the narrower ones are the first of the widest."""
    names, counts = list(held.densities), held.row_weights()
    densities = np.column_stack(list(held.densities.values()))
    weights, means = stack(densities, counts), counts @ densities / counts.sum()
    fits = {c: whole.fit(c) for c, heavy in zip(names, _heavy(weights), strict=True) if heavy}
    # Sites of labels and counts that swing to the end may be anywhere: what held-out rows said is not about such a fit.
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
    widest = max((whole.mapped(c.features) for c in kept), key=lambda made: made[1].n_features)[0]
    possible = [c for c in names if c in kept or c not in fits]
    return Ensemble(members, None if widest.linear else widest, judged, _crossed(held, possible))


def _heavy(weights: Array) -> Mask:
    return weights >= min(LEAST_WEIGHT, float(weights.max()))


def _crossed(held: Trials, candidates: list[Candidate]) -> HeldOut | None:
    """How well the mixture predicts held-out rows, with calibrations and weights from rows that other folds hold out.

    Base rates and means of tasks, which it is compared with, are those of the same folds' training rows.
    """
    data, loss, rows, counts = held.data, held.loss, held.rows, held.row_weights()
    y, task, whole = data.y[rows], data.task_of_row[rows], [held.forecast(candidate) for candidate in candidates]
    density, centre, base = np.empty((3, len(y)))
    alone = {m: np.empty(len(y)) for m, c in enumerate(candidates) if c.options.structure == "ridge"}
    areas, first = [], 0
    for train, test in held.folds:
        own = np.arange(first, first + int(test.sum()))
        first, others = int(own[-1]) + 1, np.flatnonzero(~np.isin(rows, rows[own]))
        if not len(others):
            return None
        taken = [part.take(others) for part in whole]
        factors = [calibrate(part, y[others], counts[others]) for part in taken]
        fits = (part.calibrated(factor) for part, factor in zip(taken, factors, strict=True))
        weights = stack(np.column_stack([_densities(fit, y[others]) for fit in fits]), counts[others])
        kept = np.flatnonzero(_heavy(weights))
        told = [part.take(own).calibrated(factor) for part, factor in zip(whole, factors, strict=True)]
        made = told[kept[0]].mixed([told[m] for m in kept[1:]], weights[kept] / weights[kept].sum())
        density[own], centre[own] = _densities(made, y[own]), made.expectation()
        for m, values in alone.items():
            values[own] = _densities(told[m], y[own])
        known = None if data.weights is None else data.weights[train]
        base[own] = task_means(data.y[train], data.task_of_row[train], known, data.n_tasks)[task[own]]
        areas.append(area_under_curve(y[own], centre[own], counts[own]))
    score = float(counts @ density / counts.sum())
    separate = max((float(counts @ values / counts.sum()) for values in alone.values()), default=None)
    if loss.labels:
        rate, separate = base_log_loss(y, base, counts), None if separate is None else -separate
        return HeldOut("log loss of held-out rows", -score, rate, mean_of_known(areas), separate=separate)
    share = share_explained(y, centre, base, counts) if loss.quadratic else np.nan
    explained = None if np.isnan(share) else share
    return HeldOut("mean log density of held-out rows", score, explained=explained, separate=separate)
