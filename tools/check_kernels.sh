#!/usr/bin/env bash
# Run the tests of the C kernels where every mistake with memory or arithmetic stops them:
#
#   tools/check_kernels.sh              under AddressSanitizer and UndefinedBehaviorSanitizer (needs gcc; about a minute)
#   tools/check_kernels.sh valgrind     some of them under valgrind, which also sees numbers that nobody wrote
#
# Hardly optimised: what an optimiser drops nobody can check, and it takes a third of the time.
# More arguments go to pytest (tests/kernels unless they name others). PYTHON is the interpreter of an environment with
# '.[dev]'; CC the gcc to use. The library is built in a temporary copy of the package: the one beside the sources stays.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
gcc=${CC:-gcc}
way=sanitizers
if [ "${1:-}" = valgrind ]; then way=valgrind; shift; fi

room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
mkdir "$room/src"
cp -r src/mssl "$room/src/mssl"
rm -f "$room"/src/mssl/kernels/_kernels.*

# Both ways want frames with names and lines.
flags="-g -fno-omit-frame-pointer"
[ $way = sanitizers ] && flags="$flags -fsanitize=address,undefined -fno-sanitize-recover=all"
CC="$gcc $flags" "$python" - "$room/src/mssl/kernels" <<'PYTHON'
import pathlib
import runpy
import sys
import types

try:
    import hatchling.builders.hooks.plugin.interface
except ImportError:  # building needs nothing of it
    name = "hatchling.builders.hooks.plugin.interface"
    sys.modules[name] = types.SimpleNamespace(BuildHookInterface=dict)
    for end in (9, 18, 24, 31):
        sys.modules[name[:end]] = types.ModuleType(name[:end])
build = runpy.run_path("hatch_build.py")["build"]
build.__globals__["FLAGS"].append("-O1")
build(pathlib.Path(sys.argv[1]))
PYTHON

export PYTHONPATH="$room/src" PYTHONDONTWRITEBYTECODE=1 OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
export PYTHONMALLOC=malloc # every array has memory of its own, with guards around it
where=$("$python" -c "import mssl; print(mssl.__file__)")
case $where in "$room"/*) ;; *) echo "tested would be $where, not the copy" >&2; exit 1 ;; esac

if [ $way = sanitizers ]; then
    [ $# -gt 0 ] || set -- tests/kernels
    # The interpreter itself is no sanitised program: the runtime has to be there first, and Python's own leaks are no news.
    LD_PRELOAD="$("$gcc" -print-file-name=libasan.so) $("$gcc" -print-file-name=libubsan.so) $("$gcc" -print-file-name=libstdc++.so)" \
        ASAN_OPTIONS="detect_leaks=0:log_path=$room/complaint" UBSAN_OPTIONS="print_stacktrace=1:log_path=$room/complaint" \
        "$python" -m pytest -q -p no:cacheprovider -p no:xdist "$@" || { head -n 40 "$room"/complaint* 2>/dev/null; exit 1; }
    echo "No complaint of the sanitizers."
else
    [ $# -gt 0 ] || set -- tests/kernels -k "slices or best_of_a_grid or many_features or warm or sums_over_rows or nothing"
    log=$room/valgrind.log
    valgrind --log-file="$log" --num-callers=12 --track-origins=no --leak-check=no \
        "$python" -m pytest -q -p no:cacheprovider -p no:xdist "$@" || { tail -40 "$log"; exit 1; }
    # Complaints about others (the interpreter, BLAS) are not ours to judge: those with a frame in the library are.
    ours="_kernels\.library\|mssl_[a-z_]*_\(base\|avx\)"
    if grep -q "$ours" "$log"; then
        grep -B6 -A12 "$ours" "$log" | head -100
        echo "valgrind complains about the kernels." >&2
        exit 1
    fi
    echo "No complaint of valgrind about the kernels."
fi
