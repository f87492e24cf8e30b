#!/usr/bin/env bash
# Show that mssl installs where there is no C compiler: a PATH with everything but compilers, a fresh environment,
# `pip install '.[all]'` (or the extras named by the first argument, 'test' or none), which takes the package ziglang for
# the build alone, and a fit with what was installed; then the same with an editable install.
#
#   tools/without_compiler.sh [EXTRAS]     PYTHON is the interpreter to make the environments with
set -euo pipefail
cd "$(dirname "$0")/.."
extras=${1-all}
python=$(command -v "${PYTHON:-python3}")
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT

# A folder of links to all that is on the PATH, compilers, linkers and assemblers left out.
hidden='^(.*-)?(cc|c[0-9]{2}|gcc|g\+\+|cpp|clang|clang\+\+|tcc|icx|icc|zig|ld|as|gold|lld)(-[0-9.]+)?$|^(.*-)?ld\.|^c\+\+'
mkdir "$room/bin"
IFS=: read -ra folders <<<"$PATH"
for folder in "${folders[@]}"; do
    [ -d "$folder" ] || continue
    for file in "$folder"/*; do
        name=$(basename "$file")
        if [ -x "$file" ] && [ ! -e "$room/bin/$name" ] && ! [[ $name =~ $hidden ]]; then ln -s "$file" "$room/bin/$name"; fi
    done
done
export PATH=$room/bin
unset CC PYTHONPATH
for name in cc gcc clang zig ld as; do
    if command -v $name; then echo "$name is still on the PATH" >&2; exit 1; fi
done

# A copy of what git knows: nothing that was built before, and the tree stays as it is.
mkdir "$room/tree"
git ls-files -z | while IFS= read -r -d '' file; do
    if [ -f "$file" ]; then mkdir -p "$room/tree/$(dirname "$file")" && cp "$file" "$room/tree/$file"; fi
done

fit='
import pathlib, sys
import numpy as np
import mssl
from mssl import MSSLRegressor, kernels
from mssl.datasets import make_clustered_tasks
built = pathlib.Path(mssl.__file__).resolve()
assert (sys.argv[1] in built.parts) == (sys.argv[2] == "editable"), built
S = np.cov(np.random.default_rng(0).standard_normal((200, 90)).T)
assert kernels.graph_lasso(S, 0.1, None, np.zeros(90), 1e-6, 100)[0] == kernels.DONE
data = make_clustered_tasks(random_state=0)
model = MSSLRegressor().fit(data.X, data.y)
print("fitted at level", kernels.library().level, "with", built)
try:
    import ziglang
    raise SystemExit("ziglang stayed behind")
except ImportError:
    pass
'
for way in plain editable; do
    echo "== $way install"
    "$python" -m venv "$room/$way"
    what=".${extras:+[$extras]}"
    started=$SECONDS
    if [ $way = plain ]; then
        (cd "$room/tree" && "$room/$way/bin/pip" install -q --disable-pip-version-check "$what")
    else
        (cd "$room/tree" && "$room/$way/bin/pip" install -q --disable-pip-version-check -e "$what")
    fi
    echo "installed in $((SECONDS - started)) s"
    [ $way = plain ] && rm -f "$room"/tree/src/mssl/kernels/_kernels.*
    (cd "$room" && "$room/$way/bin/python" -c "$fit" tree $way)
    if [ $way = plain ] && [ "$extras" = all ]; then (cd "$room" && "$room/$way/bin/mssl" demo >demo.txt && tail -5 demo.txt); fi
done
echo "Both installs work without a compiler."
