"""What the data sets are, where the public gets them and by which hash they are known.

Every file is named by its path inside the data folder (``MSSL_DATA``, or the cache).
"""

from dataclasses import dataclass

from mssl._validation import refused

_PAGES = "https://andreric.github.io/files/datasets"
_MNIST_MIRRORS = (
    "https://ossci-datasets.s3.amazonaws.com/mnist",
    "https://storage.googleapis.com/cvdf-datasets/mnist",
)
_ATLAS = "https://raw.githubusercontent.com/IPCC-WG1/Atlas/HEAD/reference-regions"


@dataclass(frozen=True)
class DataFile:
    r"""One file: its place, its addresses and its hash.

    ``check`` names what the hash is taken of: ``"sha256"`` the bytes, ``"git-blob-sha1"`` the header
    ``blob <size>\0`` and the bytes, ``"sha256-unpacked"`` the content of a gzip file (mirrors pack alike
    content differently).
    """

    path: str
    check: str
    digest: str
    urls: tuple[str, ...] = ()
    size: int | None = None
    origin: str = ""


@dataclass(frozen=True)
class DatasetInfo:
    """One data set as ``available`` lists it."""

    name: str
    title: str
    licence: str
    source: str
    citation: str
    files: tuple[DataFile, ...] = ()
    task_column: str = "task"
    target_column: str = "label"

    @property
    def size(self) -> int | None:
        """Bytes of all files together; None where a size is not known."""
        sizes = [file.size for file in self.files]
        return None if None in sizes else sum(size for size in sizes if size is not None)


def _page(path: str, digest: str, size: int | None = None, check: str = "sha256") -> DataFile:
    return DataFile(path, check, digest, (f"{_PAGES}/{path.rsplit('/', 1)[-1]}",), size)


def _mnist(name: str, digest: str, size: int) -> DataFile:
    return DataFile(
        f"mnist/{name}", "sha256-unpacked", digest, tuple(f"{mirror}/{name}" for mirror in _MNIST_MIRRORS), size
    )


_NOT_STATED = "not stated by its publisher; research use"
_CMIP5_LICENCE = "not stated by its publisher; CMIP5 model output (terms of the modelling centres), CRU observations"
_TAYLOR = (
    "Taylor, Stouffer, Meehl (2012), An overview of CMIP5 and the experiment design, Bulletin of the American "
    "Meteorological Society 93, 485–498. https://doi.org/10.1175/BAMS-D-11-00094.1"
)
_SPAM = "ECML-PKDD Discovery Challenge 2006 (personalised spam filtering), Bickel (editor)."

_INFOS = (
    DatasetInfo(
        "digit-pairs",
        "45 pairs of scikit-learn's 8 × 8 digits; needs no download",
        "CC BY 4.0",
        "bundled with scikit-learn",
        "Alpaydin, Kaynak (1998), Optical Recognition of Handwritten Digits, UCI Machine Learning Repository. "
        "https://doi.org/10.24432/C50P49",
        task_column="pair",
    ),
    DatasetInfo(
        "landmine",
        "19 fields, mine or clutter, 9 radar features",
        _NOT_STATED,
        _PAGES,
        "Xue, Liao, Carin, Krishnapuram (2007), Multi-task learning for classification with Dirichlet process "
        "priors, Journal of Machine Learning Research 8, 35–63.",
        (
            _page(
                "landmine/LandmineData_19.mat",
                "8c4dc40e94a21af0e6322db0efdc85dd5a49e5758d50ae821f5fd2ea026a83df",
                671_420,
            ),
        ),
        task_column="field",
    ),
    DatasetInfo(
        "spam-3",
        "mail of 3 users, spam or not, 2000 word counts",
        _NOT_STATED,
        _PAGES,
        _SPAM,
        (
            _page(
                "spam/spam_3users_mtl.mat",
                "da4165809b126aba49bd06cfcbddfa83212f29e56fc905246658e225da5853d1",
                976_943,
            ),
        ),
        task_column="user",
    ),
    DatasetInfo(
        "spam-15",
        "mail of 15 users, spam or not, 2000 word counts",
        _NOT_STATED,
        _PAGES,
        _SPAM,
        (
            _page(
                "spam/spam_15users_mtl.mat",
                "3eb3122d834b2886ff6ece00bf547ec8c77a1ac838a1c7cde16f673a5a4513ec",
                1_027_565,
            ),
        ),
        task_column="user",
    ),
    DatasetInfo(
        "letter",
        "8 pairs of handwritten letters, 16 × 8 pixels",
        _NOT_STATED,
        _PAGES,
        "Taskar, Guestrin, Koller (2003), Max-margin Markov networks, NIPS 16; letters collected by Kassel (1995).",
        (
            _page(
                "letter/letter.mat",
                "966c32257974bc2e9ff46085d86763694b444573ba17446b6e6f7a4c2b646294",
                689_938,
            ),
        ),
        task_column="pair",
    ),
    DatasetInfo(
        "mnist-pairs",
        "45 pairs of handwritten digits, 28 × 28 pixels",
        "CC BY-SA 3.0 (as its mirrors commonly state)",
        _MNIST_MIRRORS[0],
        "LeCun, Bottou, Bengio, Haffner (1998), Gradient-based learning applied to document recognition, "
        "Proceedings of the IEEE 86, 2278–2324. https://doi.org/10.1109/5.726791",
        (
            _mnist(
                "train-images-idx3-ubyte.gz",
                "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
                9_912_422,
            ),
            _mnist(
                "train-labels-idx1-ubyte.gz",
                "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
                28_881,
            ),
            _mnist(
                "t10k-images-idx3-ubyte.gz",
                "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
                1_648_877,
            ),
            _mnist(
                "t10k-labels-idx1-ubyte.gz",
                "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
                4_542,
            ),
        ),
        task_column="pair",
    ),
    DatasetInfo(
        "climate-fiveloc",
        "temperature of 25 grid cells in 5 regions, 10 CMIP5 models, 1199 months",
        _CMIP5_LICENCE,
        _PAGES,
        _TAYLOR,
        (
            _page(
                "climate/fiveloc.mat",
                "0e69827fcf04243349728719a5c3a21431d92943e045d54faffa4cfc733ad1e6",
                1_160_460,
            ),
        ),
        task_column="location",
        target_column="observed",
    ),
    DatasetInfo(
        "climate-atlas",
        "temperature of the 46 AR6 land regions, 10 CMIP5 models, 456 months",
        "CC BY 4.0",
        "https://github.com/IPCC-WG1/Atlas",
        "Iturbide et al. (2020), An update of IPCC climate reference regions for subcontinental analysis of "
        "climate model data, Earth System Science Data 12, 2959–2970. https://doi.org/10.5194/essd-12-2959-2020; "
        + _TAYLOR,
        (
            DataFile(
                "climate/atlas_cmip5.npz",
                "sha256",
                "289febeb211d7bdb1a0f54130142b8c573250a5e40128defcd171f728e561622",
                size=686_706,
                origin="it is derived from the monthly regional land means of tas (historical and rcp85) in "
                "https://github.com/IPCC-WG1/Atlas (CC BY 4.0) and has no public address of its own",
            ),
            DataFile(
                "climate/ar6_regions.csv",
                "sha256",
                "2f664c6d2aae07ea354641bc616bc138f4595cdae0445c5acd0aad59ec42b0b3",
                (f"{_ATLAS}/IPCC-WGI-reference-regions-v4_coordinates.csv",),
                6_429,
            ),
        ),
        task_column="location",
        target_column="observed",
    ),
    DatasetInfo(
        "climate-south-america",
        "temperature of 250 South American grid cells, 10 CMIP5 models (the paper's set)",
        _CMIP5_LICENCE,
        _PAGES,
        _TAYLOR,
        (
            _page(
                "climate/south_america.mat",
                "6bf26249152e627a5160ec820851741c1632867f",
                check="git-blob-sha1",
            ),
        ),
        task_column="location",
        target_column="observed",
    ),
    DatasetInfo(
        "climate-north-america",
        "temperature of 490 North American grid cells, 10 CMIP5 models",
        _CMIP5_LICENCE,
        _PAGES,
        _TAYLOR,
        (
            _page(
                "climate/north_america.mat",
                "33b7239ac39812aade7252529709cf603bcbd653",
                check="git-blob-sha1",
            ),
        ),
        task_column="location",
        target_column="observed",
    ),
)

REGISTRY = {info.name: info for info in _INFOS}


def info(name: str) -> DatasetInfo:
    """Entry of a data set; underscores count as hyphens."""
    entry = REGISTRY.get(str(name).replace("_", "-"))
    if entry is None:
        raise refused("name", name, f"the data sets are {', '.join(REGISTRY)}")
    return entry
