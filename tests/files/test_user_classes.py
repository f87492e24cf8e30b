"""Losses, penalties, structures and estimators of users: saved under their names, read where their classes come in."""

import numpy as np
import pytest
from sklearn.base import BaseEstimator

import mssl
from mssl.datasets import make_clustered_tasks
from mssl.exceptions import ModelFileError, ParameterError
from mssl.losses import Poisson
from mssl.penalties import L1
from mssl.structures import Independent

DATA = make_clustered_tasks(n_features=3, n_samples=8, random_state=0)


class Counts(Poisson):
    """A loss with a parameter, and something that is made of it."""

    def __init__(self, theta=2.0):
        self.theta = theta
        self.half = theta / 2


class Gentle(L1):
    """A penalty that inherits its parameter."""


class Anchored(Independent):
    """A structure with a parameter of its own."""

    def __init__(self, alpha=1.0, place=None):
        super().__init__(alpha)
        self.place = place


class Mine(mssl.MultiTaskGLM):
    """An estimator of one's own."""


class Forgetful(Poisson):
    """A loss that does not keep its parameter."""

    def __init__(self, theta=2.0):
        self._t = theta


def model(cls=mssl.MultiTaskGLM, loss=None):
    return cls(Anchored(2.0, np.arange(3.0)), Gentle(0.5), loss=Counts(3.0) if loss is None else loss)


def test_everything_of_users_survives(tmp_path):
    y = np.round(np.abs(DATA.y))
    fitted = model(Mine).fit(DATA.X, y, tasks=DATA.tasks)
    file = mssl.save(fitted, tmp_path / "m.npz")
    again = mssl.load(file, classes=[Counts, Gentle, Anchored, Mine])
    assert [type(part) for part in (again, again.loss, again.penalty, again.structure)] == [
        Mine,
        Counts,
        Gentle,
        Anchored,
    ]
    assert (again.loss.theta, again.loss.half, again.penalty.alpha, again.structure.alpha) == (3.0, 1.5, 0.5, 2.0)
    assert np.array_equal(again.structure.place, np.arange(3.0))
    assert np.array_equal(again.predict(DATA.X, tasks=DATA.tasks), fitted.predict(DATA.X, tasks=DATA.tasks))


def test_a_class_that_was_not_handed_in_is_named(tmp_path):
    file = mssl.save(model(), tmp_path / "m.npz")
    with pytest.raises(
        ModelFileError, match=r"m\.npz' holds an object of the class Counts.*classes=\[Counts\]"
    ) as caught:
        mssl.load(file, classes=[Gentle, Anchored])
    assert "intact" not in str(caught.value)


def test_a_class_of_ours_does_not_stand_in_for_one_of_the_same_name(tmp_path):
    """What a user named L1 is not read as mssl's."""
    mine = type("L1", (L1,), {})
    file = mssl.save(mssl.MultiTaskGLM(penalty=mine(0.5)), tmp_path / "m.npz")
    with pytest.raises(ModelFileError, match="class L1, which is not part of mssl"):
        mssl.load(file)
    assert type(mssl.load(file, classes=[mine]).penalty) is mine


def test_what_could_not_be_read_again_is_not_written(tmp_path):
    with pytest.raises(ModelFileError, match=r"loss is a Forgetful without the attribute 'theta'.*under its own name"):
        mssl.save(model(loss=Forgetful()), tmp_path / "m.npz")
    twin = type("Gentle", (Poisson,), {})
    with pytest.raises(ModelFileError, match="second class named Gentle"):
        mssl.save(model(loss=twin()), tmp_path / "m.npz")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("classes", [[3], ["Counts"], [int], [Counts()], Counts(), [Counts, type("Counts", (L1,), {})]])
def test_classes_have_to_be_classes(classes, tmp_path):
    with pytest.raises(ParameterError, match=r"^classes is .*; give .*classes"):
        mssl.load(tmp_path / "m.npz", classes=classes)


def test_a_file_cannot_turn_a_user_class_into_a_model(tmp_path):
    """Only what the file was saved as is made of the classes that come in."""

    class Loud(BaseEstimator):
        """Has a method that a file could try to hide."""

        def speak(self):
            """Say something."""
            return "loud"

    loud = Loud()
    loud.speak = "silent"
    file = mssl.save(loud, tmp_path / "m.npz")
    with pytest.raises(ModelFileError, match="do not fit"):
        mssl.load(file, classes=[Loud])
