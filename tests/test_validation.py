"""Checks of parameters: what lies in the range passes unchanged, all else is refused in one form of message."""

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from mssl._validation import (
    check_array,
    check_choice,
    check_flag,
    check_instance,
    check_number,
    check_whole_number,
    refused,
    shown,
)
from mssl.exceptions import DataError, ParameterError

ENDS = (None, 0)
NOT_NUMBERS = ["1", None, [1.0], np.ones(1), np.array(1.0), math.nan, math.inf, -math.inf, 1j, print]


def within(value, low, above, high, below):
    """The definition, with infinite ends where none is given."""
    ends = [(-math.inf if a is None else a) for a in (low, above)] + [
        math.inf if b is None else b for b in (high, below)
    ]
    return ends[0] <= value <= ends[2] and ends[1] < value < ends[3]


@pytest.mark.parametrize(("value", "low", "above", "high", "below"), list(product((-1, 0, 1), *[ENDS] * 4)))
def test_numbers_pass_exactly_where_they_lie_in_the_interval(value, low, above, high, below):
    ends = {"low": low, "above": above, "high": high, "below": below}
    if within(value, low, above, high, below):
        for kind in (int, float, np.float32, np.float64, np.int16, Fraction):
            got = check_number("a", kind(value), **ends)
            assert type(got) is float
            assert got == value
        assert check_array("a", [[value]], **ends) == value
    else:
        for check in (check_number, check_array):
            with pytest.raises(ParameterError, match=r"^a is -?\d(\.0)?; give .*numbers?\b"):
                check("a", float(value), **ends)


@pytest.mark.parametrize(("value", "low", "high"), list(product((-1, 0, 1), ENDS, ENDS)))
def test_whole_numbers_pass_exactly_where_they_lie_in_the_range(value, low, high):
    if within(value, low, None, high, None):
        got = check_whole_number("a", np.int64(value), low=low, high=high)
        assert type(got) is int
        assert got == value
    else:
        with pytest.raises(ParameterError, match=r"^a is -?\d; give a whole number"):
            check_whole_number("a", value, low=low, high=high)


@pytest.mark.parametrize("value", NOT_NUMBERS)
def test_what_is_no_number_is_refused(value):
    with pytest.raises(ParameterError, match=r"^a is .*; give a number above 0\. Try 1\.$"):
        check_number("a", value, above=0, remedy="Try 1.")
    with pytest.raises(ParameterError, match=r"^a is .*; give a whole number ≥ 1, or None\.$"):
        check_whole_number("a", value, low=1, also="None")


@pytest.mark.parametrize("value", [2.0, True])
def test_a_fraction_and_a_flag_are_no_whole_numbers(value):
    with pytest.raises(ParameterError, match=rf"^a is {value}; "):
        check_whole_number("a", value, low=1)


@pytest.mark.parametrize(
    ("ends", "words"),
    [
        ({}, "a number"),
        ({"low": 0}, "a number ≥ 0"),
        ({"above": 0.5}, "a number above 0.5"),
        ({"low": 0, "high": 1}, "a number from 0 to 1"),
        ({"above": 0.5, "high": 1}, "a number above 0.5 and ≤ 1"),
        ({"above": 0, "below": 1}, "a number above 0 and below 1"),
    ],
)
def test_intervals_in_words(ends, words):
    with pytest.raises(ParameterError, match=rf"^tol is 'x'; give {words}\.$"):
        check_number("tol", "x", **ends)


def test_choices():
    for value in ("a", "b"):
        assert check_choice("on", value, ("a", "b")) == value
    assert check_choice("neighbours", 4, (4, 8)) == 4
    for value in ("A", None, ["a"], {"a"}, np.array(["a", "b"]), 4.5, b"a"):
        with pytest.raises(ParameterError, match=r"^on is .*; allowed are 'a', 'b', or a number\.$"):
            check_choice("on", value, ("a", "b"), also="a number")
    with pytest.raises(ParameterError):
        check_choice("neighbours", True, (1, 8))


def test_flags():
    assert check_flag("verbose", np.True_) is True
    assert check_flag("verbose", False) is False
    for value in (0, 1, "yes", None, np.array([True])):
        with pytest.raises(ParameterError, match=r"^verbose is .*; allowed are True and False\.$"):
            check_flag("verbose", value)


def test_instances():
    assert check_instance("when", 1.5, (int, float)) == 1.5
    with pytest.raises(ParameterError, match=r"^when is the class int; give a int or a float, or None\.$"):
        check_instance("when", int, (int, float), also="None")


def test_arrays_of_the_right_shape_come_back_as_doubles():
    assert check_array("alpha", 2, (), (3,)).shape == ()
    assert check_array("alpha", (1, 2, 3), (), (3,)).dtype == np.float64
    assert check_array("x", np.ones((5, 2), np.int8), (None, 2)).shape == (5, 2)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([1.0, 2.0], "alpha is an array of shape (2,); give finite numbers ≥ 0 of shape () or (3,)."),
        ([1.0, -2.0, 3.0], "alpha is -2 at [1]; give finite numbers ≥ 0 of shape () or (3,)."),
        ([1.0, 2.0, math.nan], "alpha is nan at [2]; give finite numbers ≥ 0 of shape () or (3,)."),
        (math.inf, "alpha is inf; give finite numbers ≥ 0 of shape () or (3,)."),
        ("text", "alpha is 'text'; give finite numbers ≥ 0 of shape () or (3,)."),
        ([[1.0], [2.0, 3.0]], "alpha is [[1.0], [2.0, 3.0]]; give finite numbers ≥ 0 of shape () or (3,)."),
    ],
)
def test_arrays_that_do_not_fit(value, message):
    with pytest.raises(ParameterError) as caught:
        check_array("alpha", value, (), (3,), low=0)
    assert str(caught.value) == message


def test_values_are_shown_short_and_plain():
    assert shown(np.float64(0.5)) == "0.5"
    assert shown(np.int8(3)) == "3"
    assert len(shown("x" * 10_000)) <= 80
    assert len(shown(np.arange(10_000.0))) <= 80
    assert len(shown(list(range(10_000)))) <= 80


def test_refused_takes_the_class_of_the_error():
    error = refused("y", None, "give one target per row", "Leave out rows without one.", DataError)
    assert type(error) is DataError
    assert str(error) == "y is None; give one target per row. Leave out rows without one."
