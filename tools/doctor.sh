#!/usr/bin/env bash
# Reports missing tools on stderr: as an error if nothing works without them, as a note if something will be slow or
# missing. Silent, with exit code 0, if nothing is missing.
#
# PYTHON is the interpreter for a new environment; empty if none was found. CC has the same meaning as for setuptools.

set -u
cd "$(dirname "$0")/.." || exit 1

VENV_PYTHON=.venv/bin/python

fail() {
    printf 'logwright: %s\n' "$@" >&2
    exit 1
}

note() {
    printf 'logwright: note: %s\n' "$@" >&2
}

check_python() {
    if [ -e .venv/constraints.txt ]; then # written when the environment is complete
        "$VENV_PYTHON" -c '' 2>/dev/null ||
            fail "the environment in .venv no longer runs; remove it with 'make clean', and try again"
        return
    fi
    [ -n "${PYTHON:-}" ] ||
        fail "Python 3.11 or later was not found; install it, or say where it is: make PYTHON=/path/to/python3 ..."
    "$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null ||
        fail "$PYTHON is not Python 3.11 or later"
    "$PYTHON" -c 'import venv, ensurepip' 2>/dev/null ||
        fail "$PYTHON lacks the venv module; on Debian and Ubuntu install the package python3-venv"
}

kernels_are_built() {
    local suffix source
    [ -x "$VENV_PYTHON" ] || return 1
    suffix=$("$VENV_PYTHON" -c 'import sysconfig; print(sysconfig.get_config_var("EXT_SUFFIX"))') || return 1
    while IFS= read -r source; do
        [ -e "$source$suffix" ] || return 1
    done < <(find src -name '_*.pyx' | sed 's/\.pyx$//'
        grep -rlx --include='*.py' ' *import cython' src | sed 's|\([^/]*\)\.py$|_\1|')
}

compiler_works() {
    local python=$1 scratch compiler include
    compiler=${CC:-$("$python" -c 'import sysconfig; print(sysconfig.get_config_var("CC") or "cc")')}
    include=$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')
    scratch=$(mktemp -d) || return 1
    printf '#include <Python.h>\nint main(void) { return 0; }\n' >"$scratch/probe.c"
    # $compiler may contain options, so it is split into words on purpose.
    # shellcheck disable=SC2086
    $compiler -I"$include" -c "$scratch/probe.c" -o "$scratch/probe.o" >/dev/null 2>&1 && [ -s "$scratch/probe.o" ]
    local worked=$?
    rm -rf "$scratch"
    return $worked
}

check_kernels() {
    local python=$VENV_PYTHON
    kernels_are_built && return
    [ -x "$python" ] || python=$PYTHON
    if ! compiler_works "$python"; then
        note "a C compiler with the headers of Python was not found: everything works, but reads and writes about ten" \
            "times slower; after installing one (on Debian and Ubuntu: gcc and python3-dev) run 'make kernels'"
    elif [ -e .venv/installed ]; then
        note "the kernels are not compiled although there is a compiler; 'make kernels' compiles them"
    fi
}

check_java() {
    local version
    version=$(java -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p' | head -n 1)
    if [ -z "$version" ]; then
        note "Java 17 was not found: Spark and its tests need it"
    elif [ "$version" -lt 17 ]; then
        note "Java 17 was not found, only Java $version: Spark and its tests need it"
    fi
}

check_python
check_kernels
check_java
