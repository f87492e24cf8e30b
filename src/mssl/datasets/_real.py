"""Loaders of the classification sets: landmine, spam, letter, MNIST and scikit-learn's digits.

References
----------
- Landmine: Xue, Liao, Carin, Krishnapuram (2007), Multi-task learning for classification with Dirichlet
  process priors, Journal of Machine Learning Research 8, 35–63. Licence not stated by the publisher.
- Spam: ECML-PKDD Discovery Challenge 2006. Licence not stated by the publisher.
- Letter: Taskar, Guestrin, Koller (2003), Max-margin Markov networks, NIPS 16. Licence not stated.
- MNIST: LeCun, Bottou, Bengio, Haffner (1998), https://doi.org/10.1109/5.726791.
- Digits: Alpaydin, Kaynak (1998), https://doi.org/10.24432/C50P49. CC BY 4.0.
"""

from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse
from scipy.io import loadmat
from sklearn.utils import Bunch

from mssl._typing import Labels, Seed
from mssl._validation import check_choice, check_whole_number, refused
from mssl.datasets._fetch import fetch, unpack
from mssl.datasets._layout import Rows, bunch, names
from mssl.datasets._registry import info
from mssl.exceptions import DatasetError


def read_cells(path: Path) -> tuple[list[np.ndarray], list[np.ndarray], dict[str, Any]]:
    """Cells ``x`` and ``y`` of a MAT file, one design and one flat target per task."""
    try:
        content = loadmat(path)
        designs = [np.asarray(cell) for cell in content["x"].ravel()]
        targets = [np.asarray(cell).ravel() for cell in content["y"].ravel()]
    # NotImplementedError is what loadmat raises for MAT files of version 7.3.
    except (KeyError, ValueError, TypeError, OSError, NotImplementedError) as error:
        raise DatasetError(
            f"{path} cannot be read as a MAT file with the cells x and y ({error}); fetch the file again."
        ) from error
    if len(designs) != len(targets) or any(len(x) != len(y) for x, y in zip(designs, targets, strict=True)):
        raise DatasetError(f"The cells x and y of {path} do not belong together; fetch the file again.")
    return designs, targets, content


def _classes(
    name: str,
    designs: list[Rows],
    targets: list[np.ndarray],
    task_names: Labels,
    feature: str,
    known: dict[str, Labels] | None = None,
    **how: Any,
) -> Bunch:
    """A binary problem, one design and one target per task: tasks have rows of their own."""
    part = designs, [target.astype(np.int64) for target in targets]
    known = {"target_names": np.array([0, 1]), **(known or {})}
    features = names(feature, designs[0].shape[1])
    return bunch(info(name), part, occasions=False, task_names=task_names, feature_names=features, known=known, **how)


def load_landmine(*, layout: str = "long", as_frame: bool = False) -> Bunch:
    """Land mine or clutter in 19 fields, from radar images (9 674 rows, 9 features, 6 % mines).

    Fields 1–10 are overgrown (foliage), 11–19 are bare (desert). Always answering "clutter" errs on 6.1 %
    only: report the area under the ROC curve beside the error.

    Parameters
    ----------
    layout : {"long"}
        The fields have rows of their own, so the other layouts are refused.
    as_frame : bool
        pandas tables; X gets a column ``task``.

    Returns
    -------
    sklearn.utils.Bunch
        ``X`` (9674, 9), ``y`` in {0, 1} (1: mine), ``tasks``, ``task_names``, ``feature_names``,
        ``groups`` (ground of every field), ``target_names``, ``DESCR``, ``licence``, ``source``.

    References
    ----------
    Xue, Liao, Carin, Krishnapuram (2007), Journal of Machine Learning Research 8, 35–63.

    Examples
    --------
    >>> from mssl.datasets import load_landmine
    >>> mines = load_landmine()  # doctest: +SKIP
    """
    designs, targets, _ = read_cells(fetch("landmine")[0])
    text = (
        "Labels: 1 mine, 0 clutter. Always answering 0 errs on 6.1 %, so report the AUC beside the error. "
        "Fields 1–10 are overgrown, 11–19 bare ground."
    )
    ground = {"groups": np.array(["foliage"] * 10 + ["desert"] * 9)}
    fields = names("field", len(designs))
    return _classes("landmine", designs, targets, fields, "x", ground, text=text, layout=layout, as_frame=as_frame)


def load_spam(users: int = 3, *, layout: str = "long", as_frame: bool = False) -> Bunch:
    """Spam in the mail boxes of 3 or 15 users (2000 word counts, half spam).

    Exact duplicate rows exist (766 of 7500 for 3 users, 377 of 6000 for 15), so random splits leak a little.

    Parameters
    ----------
    users : {3, 15}
        3 users with 2500 mails each (problem A), or 15 with 400 (problem B).
    layout : {"long"}
    as_frame : bool
        pandas tables with sparse columns; X gets a column ``task``.

    Returns
    -------
    sklearn.utils.Bunch
        ``X`` CSR (N, 2000) of counts, ``y`` in {0, 1} (1: spam), ``tasks``, names, ``DESCR``, ``licence``,
        ``source``.

    References
    ----------
    ECML-PKDD Discovery Challenge 2006.

    Examples
    --------
    >>> from mssl.datasets import load_spam
    >>> mails = load_spam(users=15)  # doctest: +SKIP
    """
    users = check_choice("users", check_whole_number("users", users), (3, 15))
    name = f"spam-{users}"
    designs, targets, _ = read_cells(fetch(name)[0])
    text = (
        "Labels: 1 spam, 0 wanted mail. Features: word counts. Exact duplicate rows exist "
        f"({766 if users == 3 else 377} of {sum(map(len, targets))}), so random splits leak."
    )
    counts = [sparse.csr_array(design.astype(np.float64)) for design in designs]
    return _classes(name, counts, targets, names("user", users), "word", text=text, layout=layout, as_frame=as_frame)


def load_letter(*, layout: str = "long", as_frame: bool = False) -> Bunch:
    """Eight pairs of handwritten letters that look alike (128 binary pixels).

    Parameters
    ----------
    layout : {"long"}
    as_frame : bool
        pandas tables; X gets a column ``task``.

    Returns
    -------
    sklearn.utils.Bunch
        ``X`` (45869, 128), ``y`` in {0, 1}, ``tasks`` such as "a-g", names, ``DESCR``, ``licence``, ``source``.

    References
    ----------
    Taskar, Guestrin, Koller (2003), Max-margin Markov networks, NIPS 16.

    Examples
    --------
    >>> from mssl.datasets import load_letter
    >>> letters = load_letter()  # doctest: +SKIP
    """
    designs, targets, content = read_cells(fetch("letter")[0])
    pairs = np.array([str(cell.ravel()[0]) for cell in content["tasknames"].ravel()])
    text = "Labels as in the file: 0 and 1 for the two letters. Pixels of a 16 × 8 image, 0 or 1."
    pixels = [design.astype(np.float64) for design in designs]
    return _classes("letter", pixels, targets, pairs, "pixel", text=text, layout=layout, as_frame=as_frame)


def _read_idx(path: Path) -> np.ndarray:
    content = unpack(path.read_bytes())
    axes = content[3]
    shape = np.frombuffer(content, dtype=">u4", count=axes, offset=4).astype(int)
    return np.frombuffer(content, dtype=np.uint8, offset=4 + 4 * axes).reshape(shape)


def _check_subsample(subsample: Any) -> float | None:
    """Rows per pair as int, a share as float, or None for all."""
    if subsample is None:
        return None
    if isinstance(subsample, (int, np.integer)) and not isinstance(subsample, bool) and subsample > 0:
        return int(subsample)
    if isinstance(subsample, (float, np.floating)) and 0 < subsample <= 1:
        return float(subsample)
    raise refused(
        "subsample", subsample, "give None (all rows), a whole number ≥ 1 (rows per pair) or a share in (0, 1]"
    )


def _pairs(name: str, pixels: Any, digits: np.ndarray, share: float | None, random_state: Seed, **how: Any) -> Bunch:
    """All pairs of digits, optionally a random part of each; the label is 1 for the second digit."""
    rng, rows, second, pairs = np.random.default_rng(random_state), [], [], list(combinations(range(10), 2))
    for pair in pairs:
        chosen = np.flatnonzero(np.isin(digits, pair))
        if share is not None:
            wanted = share if isinstance(share, int) else round(share * chosen.size)
            chosen = np.sort(rng.permutation(chosen)[: max(1, wanted)])
        rows.append(chosen)
        second.append(digits[chosen] == pair[1])
    pair_names = np.array([f"{a} vs {b}" for a, b in pairs])
    designs = [pixels[chosen] for chosen in rows]
    return _classes(name, designs, second, pair_names, "pixel", {"images": np.concatenate(rows)}, **how)


def load_mnist_pairs(
    subsample: float | None = None,
    *,
    dtype: Any = "float64",
    layout: str = "long",
    as_frame: bool = False,
    random_state: Seed = None,
) -> Bunch:
    """All 45 pairs of the digits of MNIST as binary tasks (70 000 images, 28 × 28 pixels).

    At full size X has 630 000 rows and some 94 million non-zero pixels: about 1.1 GiB as float64, 0.7 GiB as
    float32. Every image is in nine pairs; ``images`` tells which, so that splits need not leak.

    Parameters
    ----------
    subsample : None, int or float
        All rows; so many rows of each pair; or that share of each pair. Drawn at random without replacement.
    dtype : {"float64", "float32"} or the NumPy type
        Of the pixels, which are scaled to [0, 1].
    layout : {"long"}
    as_frame : bool
        pandas tables with sparse columns.
    random_state : None, int or numpy.random.Generator
        For ``subsample``.

    Returns
    -------
    sklearn.utils.Bunch
        ``X`` CSR (N, 784), ``y`` in {0, 1} (1: the second digit of the pair), ``tasks`` such as "3 vs 8",
        ``images`` (number of the image, 60 000 and above from the original test set), names, ``DESCR``,
        ``licence``, ``source``.

    References
    ----------
    LeCun, Bottou, Bengio, Haffner (1998), Gradient-based learning applied to document recognition,
    Proceedings of the IEEE 86, 2278–2324. https://doi.org/10.1109/5.726791

    Examples
    --------
    >>> from mssl.datasets import load_mnist_pairs
    >>> pairs = load_mnist_pairs(subsample=200, random_state=0)  # doctest: +SKIP
    """
    check_choice("dtype", np.dtype(dtype).name, ("float64", "float32"))
    share = _check_subsample(subsample)
    train_images, train_labels, test_images, test_labels = (_read_idx(path) for path in fetch("mnist-pairs"))
    blocks = [sparse.csr_array(images.reshape(len(images), -1)).astype(dtype) for images in (train_images, test_images)]
    pixels = sparse.vstack(blocks, format="csr")
    pixels.data /= np.asarray(255, dtype=dtype)
    digits = np.concatenate([train_labels, test_labels])
    text = "Labels: 1 for the second digit of the pair, 0 for the first. Pixels in [0, 1]; each image is in 9 pairs."
    return _pairs("mnist-pairs", pixels, digits, share, random_state, text=text, layout=layout, as_frame=as_frame)


def load_digit_pairs(
    subsample: float | None = None, *, layout: str = "long", as_frame: bool = False, random_state: Seed = None
) -> Bunch:
    """All 45 pairs of scikit-learn's bundled digits as binary tasks: real data without a download.

    Parameters
    ----------
    subsample : None, int or float
        All rows; so many rows of each pair; or that share of each pair.
    layout : {"long"}
    as_frame : bool
        pandas tables; X gets a column ``task``.
    random_state : None, int or numpy.random.Generator
        For ``subsample``.

    Returns
    -------
    sklearn.utils.Bunch
        ``X`` (16173, 64) of pixels 0 … 16, ``y`` in {0, 1} (1: the second digit of the pair), ``tasks`` such as
        "3 vs 8", ``images`` (number of the image, each is in nine pairs), names, ``DESCR``, ``licence``, ``source``.

    References
    ----------
    Alpaydin, Kaynak (1998), Optical Recognition of Handwritten Digits. https://doi.org/10.24432/C50P49

    Examples
    --------
    >>> from mssl.datasets import load_digit_pairs
    >>> digits = load_digit_pairs()
    >>> digits.X.shape, len(digits.task_names), str(digits.tasks[-1])
    ((16173, 64), 45, '8 vs 9')
    """
    from sklearn.datasets import load_digits

    pixels, digits = load_digits(return_X_y=True)
    text = "Labels: 1 for the second digit of the pair, 0 for the first. Pixels 0 … 16; each image is in 9 pairs."
    share = _check_subsample(subsample)
    return _pairs("digit-pairs", pixels, digits, share, random_state, text=text, layout=layout, as_frame=as_frame)
