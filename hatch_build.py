"""Build hook: compile the kernels into one shared library beside their sources.

``pip install .`` uses the machine's C compiler (the environment variable CC, or cc, gcc, clang). Where there is none,
the package ``ziglang``, a C compiler as a Python wheel, is asked for, for the build alone. No Python headers are
needed: the library does not know Python, so that one wheel serves every version.
"""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zlib
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCES = ("graph.c", "weights.c", "groups.c", "grams.c", "fit.c")  # once for every level
COMMON = ("cpu.c",)  # once
FLAGS = [
    # With gcc 12, -O3 compiles for almost three times as long, for 0.97 to 1.04 of the speed.
    *("-std=c11", "-O2", "-ftree-vectorize", "-fPIC", "-Wall", "-Wextra", "-Wno-vla-parameter"),
    # Sums may be taken in another order, so that loops use vectors; NaN and infinity keep their meaning.
    *("-fno-math-errno", "-fassociative-math", "-fno-signed-zeros", "-fno-trapping-math", "-ffp-contract=fast"),
]
X86_LEVELS = {
    "base": [],
    "avx2": ["avx2", "fma"],
    "avx512": ["avx2", "fma", "avx512f", "avx512dq", "avx512bw", "avx512vl"],
}
SUFFIX = ".dll" if sys.platform == "win32" else ".library"  # not .so, which Python would take for a module of its own


def find_compiler() -> list[str] | None:
    """The machine's own compiler, or None."""
    given = os.environ.get("CC")
    if given:
        return shlex.split(given)
    found = next((path for name in ("cc", "gcc", "clang") if (path := shutil.which(name))), None)
    return None if found is None or sys.platform == "win32" else [found]


def is_x86() -> bool:
    """Whether the levels of x86 processors are compiled."""
    return platform.machine().lower() in {"x86_64", "amd64"}


def level_flags(level: str, zig: bool) -> list[str]:
    """The instructions that a level may use; without a word zig would take all that this machine has."""
    features = X86_LEVELS[level]
    if zig:
        return [f"-mcpu=baseline{''.join(f'+{feature}' for feature in features)}"]
    return [f"-m{feature}" for feature in features]


def build(folder: Path) -> Path:
    """Compile the library beside its sources and return its path."""
    compiler = find_compiler()
    zig = compiler is None
    command = [sys.executable, "-m", "ziglang", "cc"] if compiler is None else compiler
    levels, header = list(X86_LEVELS) if is_x86() else ["base"], (folder / "mssl.h").read_bytes()
    library = folder / f"_kernels{SUFFIX}"
    # Zig would build all of a C library first, for three functions that every process has at hand.
    link = ["-shared", *(["-nostdlib"] if zig and sys.platform.startswith("linux") else ["-lm"])]
    with tempfile.TemporaryDirectory() as room:
        objects = []
        for level, source in [(level, source) for level in levels for source in SOURCES] + [
            ("", name) for name in COMMON
        ]:
            target = Path(room, f"{Path(source).stem}_{level}.o")
            more = [f"-DMSSL_LEVEL={level}" if level else f"-DMSSL_HEADER={zlib.crc32(header)}u"]
            _run(
                [
                    *command,
                    *FLAGS,
                    *level_flags(level or "base", zig),
                    *more,
                    "-c",
                    str(folder / source),
                    "-o",
                    str(target),
                ]
            )
            objects.append(str(target))
        made = Path(room, library.name)
        _run([*command, *link, "-o", str(made), *objects])
        beside = library.with_name(f"{library.name}.{os.getpid()}")
        shutil.copy(made, beside)
        beside.replace(library)  # in one step: a process that has the old one loaded keeps it
    return library


def _run(command: list[str]) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError) as error:
        told = getattr(error, "stderr", "") or str(error)
        raise RuntimeError(
            f"The kernels of mssl could not be compiled. The command was:\n  {' '.join(command)}\nand it said:\n"
            f"{told}\nInstall a C compiler (on Debian: apt-get install gcc; on macOS: xcode-select --install), or name "
            "one by the environment variable CC; with CC unset and no compiler on the PATH the package ziglang is used."
        ) from error


class KernelBuildHook(BuildHookInterface[Any]):
    """What hatchling calls."""

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        """A compiler where there is none."""
        return ["ziglang"] if self.target_name == "wheel" and find_compiler() is None else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and say what the wheel is for."""
        if self.target_name != "wheel":
            return
        library = build(Path(self.root, "src", "mssl", "kernels"))
        build_data["artifacts"].append(f"/src/mssl/kernels/{library.name}")
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"
