"""Messages of the library in the words of the command line."""

from __future__ import annotations

import re

# Options that stand for parameters; any other parameter is given by --set.
_OPTIONS = {
    "drop": "--drop",
    "groups": "--group",
    "loss": "--family",
    "missing": "--missing",
    "missing_target": "--missing-target",
    "order": "--order",
    "subsample": "--subsample",
    "task_column": "--task",
    "unseen": "--unseen",
}
_PHRASES = {
    "relation='residual'": "--method r-mssl",
    "relation='coef'": "--method p-mssl",
    "y of shape (n, K)": "--time, where every task has one row at each time",
    "task_column": "--task",
}


def in_options(text: str) -> str:
    """A message that speaks of parameters (``unseen='mean'``), speaking of options (``--unseen mean``).

    Examples
    --------
    >>> in_options("give groups='day' to fit, or features='spline'")
    'give --group day, or --set features=spline'
    """
    for phrase, words in _PHRASES.items():
        text = text.replace(phrase, words)
    return re.sub(r"\b([a-z_]+)=(?:'([^']*)'| (?=to fit\b))(?: ?to fit\b)?", _option, text)


def _option(found: re.Match[str]) -> str:
    name, value = found[1], found[2]
    if name in _OPTIONS:
        return f"{_OPTIONS[name]} {value or 'COLUMN'}"
    return f"--set {name}={value}"
