"""The faults: rules of decision, widths of intervals, and what keeps files and data whole."""

from __future__ import annotations

from typing import NamedTuple


class Fault(NamedTuple):
    """A change of one file: a text that stands in it once, what takes its place, and the tests that must fail."""

    name: str
    path: str
    before: str
    after: str
    tests: tuple[str, ...]


_EVIDENCE = ("tests/evidence",)
_BAYESIAN = ("tests/evidence", "tests/estimators/test_bayesian.py", "tests/estimators/test_held_out.py")
_GRAPH = ("tests/graph",)
_SELECTION = ("tests/model_selection",)
_DATA = ("tests/data",)
_FEATURES = ("tests/features",)
_FILES = ("tests/files",)
_CLI = ("tests/cli",)

FAULTS = [
    # evidence: intervals
    Fault(
        "rows of all tasks count for each task's degrees of freedom",
        "evidence/fit.py",
        "max(float(free[task]) + min(NOISE_PRIOR, total), 1.0)",
        "max(total, 1.0)",
        _EVIDENCE,
    ),
    Fault(
        "a flat intercept has no variance",
        "evidence/fit.py",
        "variance = variance + self.prior.noise.variances[task] / max(self.counts[task], 1.0)",
        "variance = variance + 0.0",
        _EVIDENCE,
    ),
    Fault(
        "a new task's level is as certain as the tasks' mean",
        "evidence/fit.py",
        "/ size**2 * (1 + 1 / K) if K > 1 else 1.0",
        "/ size**2 / K if K > 1 else 1.0",
        _BAYESIAN,
    ),
    Fault(
        "a task's weights do not move with the mean",
        "evidence/posterior.py",
        "Parts(float(shares @ shares) * self.deviation, moved @ self.mean_root,",
        "Parts(float(shares @ shares) * self.deviation, X @ self.mean_root,",
        _EVIDENCE,
    ),
    Fault(
        "a new task deviates from the mean by nothing",
        "evidence/posterior.py",
        "Parts(self.deviation, X @ self.mean_root, X[:, :0])",
        "Parts(0.0 * self.deviation, X @ self.mean_root, X[:, :0])",
        _EVIDENCE,
    ),
    Fault(
        "members of a mixture do not disagree",
        "losses.py",
        'averages["variance"] + between',
        'averages["variance"]',
        _EVIDENCE,
    ),
    Fault(
        "labels are mixed on the scale of log-odds",
        "losses.py",
        "return replace(super().mixed(others, weights), mean=second - first, variance=np.zeros(len(first)))",
        "return super().mixed(others, weights)",
        _EVIDENCE,
    ),
    Fault(
        "calibration is not drawn to one",
        "evidence/choice.py",
        "-float(weights @ densities) + 0.5 * float(q @ q)",
        "-float(weights @ densities)",
        _EVIDENCE,
    ),
    Fault(
        "noise is left out of quantiles",
        "losses.py",
        "self._scale()[:, None] * stdtrit",
        "np.sqrt(self.variance)[:, None] * stdtrit",
        _EVIDENCE,
    ),
    Fault(
        "a Student density has a normal's tails",
        "losses.py",
        "nu, scale = self.freedom, self._scale()",
        "nu, scale = 1e9 + 0 * self.freedom, self._scale()",
        _EVIDENCE,
    ),
    # evidence: decisions
    Fault(
        "curves need no standard error to win",
        "evidence/choice.py",
        "if wins(held.lead(candidate, best), least=MIN_GAIN_NATS):",
        "if held.lead(candidate, best)[0] > 0:",
        _EVIDENCE,
    ),
    Fault(
        "stacking believes in no member to begin with",
        "judge/held_out.py",
        "new = (w * ((counts / (p @ w)) @ p) + prior / M) / (counts.sum() + prior)",
        "new = w * ((counts / (p @ w)) @ p) / counts.sum()",
        _EVIDENCE,
    ),
    Fault(
        "stacking does not look at frequency weights",
        "judge/held_out.py",
        "counts = np.ones(N) if weights is None else weights",
        "counts = np.ones(N)",
        _EVIDENCE,
    ),
    Fault(
        "errors of leads are those of single rows",
        "evidence/choice.py",
        "return gain(difference, cell, self.task)",
        "return gain(difference, np.arange(len(difference)))",
        _BAYESIAN,
    ),
    Fault(
        "calibration of a fold sees its rows",
        "evidence/choice.py",
        "np.flatnonzero(~test[held.rows])",
        "np.arange(len(held.rows))",
        _BAYESIAN,
    ),
    # evidence: mathematics
    Fault(
        "log evidence forgets the unit of the targets",
        "evidence/fit.py",
        "(np.log(2 * np.pi) + 2 * np.log(units.sizes))",
        "np.full(K, np.log(2 * np.pi))",
        _EVIDENCE,
    ),
    Fault(
        "noise is drawn to no common level",
        "evidence/prior.py",
        "own * up + NOISE_PRIOR * self._level / own",
        "own * up + NOISE_PRIOR",
        _EVIDENCE,
    ),
    Fault(
        "relevances are drawn to no common level",
        "evidence/prior.py",
        "psi * sums[1] + RELEVANCE_PRIOR * self._level / psi",
        "psi * sums[1] + RELEVANCE_PRIOR",
        _EVIDENCE,
    ),
    Fault(
        "a flat intercept costs no degree of freedom",
        "data/factors.py",
        "np.maximum(self.n - self.centred, 0.0)",
        "np.maximum(self.n, 0.0)",
        _EVIDENCE,
    ),
    Fault(
        "what no feature explains is forgotten",
        "data/factors.py",
        "filled[alike], rest[alike] = small[:, :d], small[:, d, d] ** 2",
        "filled[alike] = small[:, :d]",
        _EVIDENCE,
    ),
    Fault(
        "a task that joins knows its weights before its rows",
        "evidence/fit.py",
        "V = np.eye(len(A)) + A @ CA",
        "V = 0.5 * np.eye(len(A)) + A @ CA",
        _EVIDENCE,
    ),
    Fault(
        "a light row loses more than its site",
        "evidence/sites.py",
        "np.minimum(self.weights, 1.0)",
        "np.ones(len(self.weights))",
        _EVIDENCE,
    ),
    # graph: decisions
    Fault(
        "conditional edges are tested between groups",
        "graph/tests.py",
        "tested = self.groups[i] == self.groups[j]",
        "tested = np.ones(len(p), dtype=bool)",
        _GRAPH,
    ),
    Fault(
        "signs about zero and about the mean may differ",
        "graph/information.py",
        "p = np.where(sign == found[0].sign, np.maximum(p, found[0].p), 1.0)",
        "p = np.maximum(p, found[0].p)",
        _GRAPH,
    ),
    Fault(
        "observations of partial correlations are not moved",
        "graph/information.py",
        "moved = (count * sigma + np.diag(np.diagonal(sigma))) / (count + 1)",
        "moved = sigma",
        _GRAPH,
    ),
    Fault(
        "groups are joined by a false discovery rate",
        "graph/tests.py",
        'adjusted_p(self._relations[3], "holm") <= error',
        'adjusted_p(self._relations[3], "bh") <= error',
        _GRAPH,
    ),
    Fault(
        "any dependence has no price",
        "graph/tests.py",
        "false_discovery_control(p, method=method)",
        "false_discovery_control(p)",
        _GRAPH,
    ),
    Fault(
        "false discovery rates are single p-values",
        "graph/tests.py",
        "np.asarray(false_discovery_control(p, method=method)) if len(p) else p",
        "p",
        _GRAPH,
    ),
    Fault(
        "the smaller p-value of the two roles counts",
        "graph/information.py",
        "return _Statistics(np.sign(cosines + cosines.T), np.maximum(p, p.T)",
        "return _Statistics(np.sign(cosines + cosines.T), np.minimum(p, p.T)",
        _GRAPH,
    ),
    Fault(
        "two columns are enough to test relations",
        "graph/information.py",
        "_FEWEST_COLUMNS = 3",
        "_FEWEST_COLUMNS = 2",
        _GRAPH,
    ),
    # graph: widths
    Fault(
        "estimation error takes nothing from a correlation",
        "graph/tests.py",
        "root = np.sqrt(np.maximum(self.reliability, _SMALLEST_RELIABILITY))\n        return",
        "root = np.ones(len(self.reliability))\n        return",
        _GRAPH,
    ),
    Fault(
        "a known mean costs no observation",
        "graph/tests.py",
        "left = np.maximum(freedom - 1, 0.5)\n    r = np.clip(r",
        "left = np.maximum(freedom, 0.5)\n    r = np.clip(r",
        _GRAPH,
    ),
    Fault(
        "autocorrelated residuals count fully",
        "graph/tests.py",
        "* np.minimum((1 - product) / (1 + product), 1.0)",
        "* 1.0",
        _GRAPH,
    ),
    Fault(
        "parameters of residuals cost nothing",
        "graph/tests.py",
        "freedom = np.maximum(counts - self.used, 1.0)",
        "freedom = np.maximum(counts, 1.0)",
        _GRAPH,
    ),
    Fault(
        "a permutation test can have p = 0",
        "graph/tests.py",
        "GlobalTest((1 + sum(q <= found for q in chance)) / (1 + n), found, n)",
        "GlobalTest(sum(q <= found for q in chance) / n, found, n)",
        _GRAPH,
    ),
    Fault(
        "permuted scores keep their signs and places",
        "graph/information.py",
        "u[k, kept] = random.permutation(white.scores[k, kept]) * random.choice([-1.0, 1.0], size=kept.sum())",
        "u[k, kept] = white.scores[k, kept]",
        _GRAPH,
    ),
    Fault(
        "other tasks of the group cost no observation",
        "graph/tests.py",
        "theta = (vectors / np.maximum(values, SMALLEST_EIGENVALUE)) @ vectors.T\n            direct, used = theta, K - 2.0",
        "theta = (vectors / np.maximum(values, SMALLEST_EIGENVALUE)) @ vectors.T\n            direct, used = theta, 0.0",
        _GRAPH,
    ),
    # model selection
    Fault(
        "curves of a search need not win",
        "judge/held_out.py",
        "MARGIN = 2.0",
        "MARGIN = 0.0",
        ("tests/judge/test_held_out.py",),
    ),
    Fault(
        "errors of an advantage are those over folds alone",
        "judge/held_out.py",
        "error = np.maximum(error, error_of_mean(np.nanmean(by_task[..., scored], axis=-2)))",
        "pass",
        _SELECTION,
    ),
    Fault(
        "one standard error is none",
        "judge/held_out.py",
        "means[ranking[0]] - error_of_mean(self.reports[ranking[0], :, SCORE])",
        "means[ranking[0]]",
        _SELECTION,
    ),
    Fault(
        "the extended criterion does not extend",
        "model_selection/stability.py",
        " + 4 * edges * gamma * np.log(K))",
        ")",
        _SELECTION,
    ),
    Fault(
        "false edges of stability selection are fewer than bounded",
        "model_selection/stability.py",
        "self.n_selected_**2 / ((2 * self.threshold - 1) * pairs)",
        "self.n_selected_ / ((2 * self.threshold - 1) * pairs)",
        _SELECTION,
    ),
    Fault(
        "the λ limit has no second look",
        "estimators/spec.py",
        "        limit = border(has_edges, [multiple * limit for multiple in _NEAR])\n",
        "",
        ("tests/model_selection/test_path.py",),
    ),
    Fault(
        "errors of means have n for n - 1",
        "judge/held_out.py",
        "values.std(axis=-1, ddof=1)",
        "values.std(axis=-1)",
        ("tests/judge/test_held_out.py", "tests/model_selection/test_scores.py"),
    ),
    Fault(
        "the least gain does not count",
        "judge/held_out.py",
        "gained[0] > max(margin * gained[1], least)",
        "gained[0] > margin * gained[1]",
        ("tests/judge/test_held_out.py",),
    ),
    Fault(
        "a gain's error is that over the first groups",
        "judge/held_out.py",
        "return float(parts.sum()), max(errors)",
        "return float(parts.sum()), errors[min(1, len(errors) - 1)]",
        ("tests/judge/test_held_out.py",),
    ),
    Fault(
        "training parts are taken to share no rows",
        "judge/compare.py",
        "np.sqrt(1 / k + 1 / (k - 1))",
        "np.sqrt(1 / k)",
        ("tests/judge/test_compare.py", "tests/cli/test_compare.py"),
    ),
    Fault(
        "a search is judged by the folds that chose",
        "model_selection/scores.py",
        "choice(one.table.without(number))",
        "choice(one.table)",
        ("tests/estimators/test_held_out.py",),
    ),
    Fault(
        "all settings are averaged",
        "judge/held_out.py",
        "zip(others, gains > errors, strict=True)",
        "zip(others, gains > np.inf, strict=True)",
        ("tests/model_selection/test_scores.py",),
    ),
    Fault(
        "a chain stops where its scores are uncertain",
        "judge/held_out.py",
        "highest = gains.mean(axis=1) + 2.0 * error_of_mean(gains)",
        "highest = gains.mean(axis=1)",
        ("tests/model_selection/test_scores.py",),
    ),
    Fault(
        "kinds of features are scored in units of their own",
        "model_selection/search.py",
        "fold.noise = first.noise  # The scores then have the same units.",
        "fold.noise = 1.0 * fold.noise",
        ("tests/model_selection/test_features.py",),
    ),
    Fault(
        "a fold may hold out all of a class",
        "data/folds.py",
        "if len(rows) > 1 and np.ptp(fold[rows]) == 0 and fold[rows[0]] >= 0:",
        "if False:",
        ("tests/data/test_folds.py",),
    ),
    Fault(
        "a task within one block is held out as a whole",
        "data/folds.py",
        "return np.where(kept[of_row], -1, fold)",
        "return fold",
        ("tests/data/test_folds.py",),
    ),
    # data
    Fault(
        "folds have the class shares of their tasks",
        "data/folds.py",
        'order = order[np.argsort(of_row[order], kind="stable")]',
        "order = order[np.lexsort((np.isin(order, classes[0]) if len(classes) else of_row[order], of_row[order]))]",
        ("tests/data", "tests/estimators/test_held_out.py"),
    ),
    Fault(
        "groups are parted",
        "data/folds.py",
        "return deal_groups(code, of_row,",
        "return deal_groups(np.arange(len(code)), of_row,",
        _DATA,
    ),
    Fault(
        "rows of a later time are trained on",
        "data/folds.py",
        "fold < k if self.forward else fold != k",
        "fold != k",
        _DATA,
    ),
    Fault(
        "moments are added without what lies between their means",
        "data/moments.py",
        "rooted = np.moveaxis(np.sqrt(common)[..., None] * off, 0, -2)",
        "rooted = np.moveaxis(np.sqrt(common)[..., None] * 0.0 * off, 0, -2)",
        ("tests/data/test_moments.py",),
    ),
    Fault(
        "a density of the logarithm is one of the target",
        "data/targets.py",
        "return -np.log(y)",
        "return np.zeros(len(y))",
        ("tests/data/test_targets.py",),
    ),
    Fault(
        "the mean of a log-normal is its median",
        "data/targets.py",
        "return np.exp(np.minimum(mu + 0.5 * variance, LARGEST_EXPONENT))",
        "return np.exp(np.minimum(mu, LARGEST_EXPONENT))",
        ("tests/data/test_targets.py",),
    ),
    Fault(
        "another scale of targets wins by nothing",
        "data/targets.py",
        "return chosen if gain > 2.0 else None",
        "return chosen if gain > 0 else None",
        ("tests/data/test_targets.py",),
    ),
    Fault(
        "unseen levels are the first one",
        "data/encoding.py",
        "place.get(level, other) for level in found]",
        "place.get(level, 0) for level in found]",
        _DATA,
    ),
    # features
    Fault(
        "curves keep a slope of their own",
        "features/maps.py",
        "coef = (np.eye(p) - line @ slopes)[:, 1:-1]",
        "coef = np.eye(p)[:, 1:-1]",
        _FEATURES,
    ),
    Fault(
        "curves bend outside the training range",
        "features/maps.py",
        "values[beyond] += curve.derivative()(inside[beyond]) * (z - inside)[beyond, None]",
        "values[beyond] += curve.derivative()(inside[beyond]) * ((z - inside) ** 2)[beyond, None]",
        _FEATURES,
    ),
    Fault(
        "knots do not know frequency weights",
        "features/maps.py",
        'np.quantile(z, shares[1:-1], weights=weights, method="inverted_cdf")',
        'np.quantile(z, shares[1:-1], method="inverted_cdf")',
        _FEATURES,
    ),
    # files
    Fault(
        "no fsync before the rename",
        "files/atomic.py",
        "            stream.flush()\n            os.fsync(stream.fileno())\n            if sys",
        "            stream.flush()\n            if sys",
        _FILES,
    ),
    Fault(
        "no fsync of a checkpoint's line",
        "files/atomic.py",
        "    stream.write(content)\n    stream.flush()\n    os.fsync(stream.fileno())",
        "    stream.write(content)\n    stream.flush()",
        _FILES,
    ),
    Fault(
        "a checkpoint of other data is continued",
        "files/checkpoint.py",
        'if header.get("identity") != identity:',
        "if False:",
        _FILES,
    ),
    Fault(
        "a damaged record counts as finished work",
        "files/checkpoint.py",
        'whole = zlib.crc32(body.encode()) == outer["crc"] and isinstance(outer["body"], dict)',
        'whole = isinstance(outer["body"], dict)',
        _FILES,
    ),
    Fault(
        "a model is not asked for an answer when it is read",
        "files/models.py",
        "        _check_answers(model)\n        return model",
        "        return model",
        _FILES,
    ),
    Fault(
        "a model file may name files to read",
        "files/codec.py",
        "if belongs_to_run(name, content)):\n        raise",
        "if False):\n        raise",
        _FILES,
    ),
    # command line, transfer
    Fault(
        "one time twice in every task is taken",
        "cli/_tables.py",
        "np.any(lacking | twice)",
        "np.any(lacking)",
        _CLI,
    ),
    Fault(
        "base rates come from the rows that are judged",
        "judge/compare.py",
        "base = task_means(y[train], task[train], weights[train], K)[task[test]]",
        "base = task_means(y[test], task[test], weights[test], K)[task[test]]",
        ("tests/judge/test_compare.py",),
    ),
    Fault(
        "the error of a gain has n for n - 1",
        "transfer.py",
        "np.sqrt(test.task_sums(centred**2) / (rows - 1) / rows)",
        "np.sqrt(test.task_sums(centred**2) / rows / rows)",
        ("tests/test_transfer.py",),
    ),
    Fault(
        "task means are not drawn to one another",
        "metrics.py",
        "return centre + between * precision * (means - centre)",
        "return np.where(rows > 0, means, centre)",
        ("tests/estimators/test_held_out.py",),
    ),
    # report
    Fault(
        "the rows of a heat map are named in the tasks' own order",
        "plots/support.py",
        "(label, values, order.tolist())",
        "(label, values, sorted(order.tolist()))",
        ("tests/report/test_report.py",),
    ),
]
