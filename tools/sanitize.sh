#!/usr/bin/env bash
# Runs the tests of the kernels with AddressSanitizer and UndefinedBehaviorSanitizer; needs GCC. An error ends the test
# process, so the test fails; with -s, and without -n, pytest shows the stack.
#
#     tools/sanitize.sh                             all tests of the kernels
#     tools/sanitize.sh tests/sej -k codec          others; the arguments are those of pytest
#
# The kernels are built in build/sanitize, from a copy of the sources. Those in src are not changed.

set -euo pipefail
cd "$(dirname "$0")/.."

TREE=$PWD/build/sanitize
PYTHON=$PWD/.venv/bin/python

TESTS=(
    tests/core/test_{crc32c,column_builder}.py
    tests/sej/test_checksums.py
    tests/contract/test_{bytes,fuzz,twins}.py
    tests/*/test_{changes,codec,columns,gathering,golden,ids,kernel,packing,protobuf,reentry,replay}.py
    tests/*/test_{shapes,store,survey,queue,queue_threads,threads,database_modify}.py
    tests/versioned/bonjson
    tests/servers/queue/test_parser.py
)
# Sanitizers need memory themselves.
EXCEPT="not takes_no_more_memory and not take_as_much_memory"
shopt -s nullglob

echo "== compiling the kernels with sanitizers, in build/sanitize"
mkdir -p "$TREE"
tar --create --exclude='*.so' --exclude='__pycache__' setup.py pyproject.toml README.md LICENSE src \
    | tar --extract --directory "$TREE"
(
    cd "$TREE"
    CC=gcc LOGWRIGHT_CFLAGS="-O1 -g -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=undefined" \
        "$PYTHON" setup.py --quiet build_ext --inplace --parallel "${JOBS:-2}" >build.log 2>&1 \
        || { cat build.log; exit 1; }
)

# The libraries must be loaded before the interpreter allocates anything; that of C++ is for extensions that throw.
LD_PRELOAD="$(gcc -print-file-name=libasan.so) $(gcc -print-file-name=libubsan.so) $(gcc -print-file-name=libstdc++.so.6)"
export LD_PRELOAD
export ASAN_OPTIONS=detect_leaks=0:abort_on_error=1:allocator_may_return_null=1:handle_segv=1:log_exe_name=1
export UBSAN_OPTIONS=halt_on_error=1:abort_on_error=1:print_stacktrace=1
export PYTHONMALLOC=malloc
export PYTHONPATH=$TREE/src${PYTHONPATH:+:$PYTHONPATH}

kernels=$(find "$TREE/src" -name '*.so' | wc -l)
sources=$({ find src -name '_*.pyx'; grep -rlx --include='*.py' ' *import cython' src; } | wc -l)
if [ "$kernels" != "$sources" ]; then
    cat "$TREE/build.log"
    exit 1
fi
"$PYTHON" - "$TREE" <<'CHECK'
import sys
from logwright.core.bytes import _crc32c

sys.exit(None if _crc32c.__file__.startswith(sys.argv[1]) else f"{_crc32c.__file__} is not in the sanitized tree")
CHECK
echo "== $kernels kernels with sanitizers: pytest"
if [ $# -gt 0 ]; then
    exec "$PYTHON" -m pytest -q -p no:cacheprovider "$@"
fi
existing=()
for test in "${TESTS[@]}"; do
    if [ -e "$test" ]; then existing+=("$test"); fi
done
exec "$PYTHON" -m pytest -q -p no:cacheprovider -n "${JOBS:-2}" -m "not torture" -k "$EXCEPT" "${existing[@]}"
