#!/bin/sh
# Print 1 if `make wheel` compiles the hot modules, 0 if the wheel is pure Python, and tell the reason on standard error.
#
# usage: wheel_form.sh PYTHON. OTTLA_COMPILE=0 or 1 in the environment decides. Without it, the modules are compiled where the
# C compiler of that Python, or the one in CC, finds Python's headers.
set -eu

if [ -n "${OTTLA_COMPILE:-}" ]; then
    echo "the wheel has the form of OTTLA_COMPILE=$OTTLA_COMPILE (1: hot modules compiled, 0: pure Python)" >&2
    echo "$OTTLA_COMPILE"
    exit
fi
compiler=${CC:-$("$1" -c 'import sysconfig; print(sysconfig.get_config_var("CC"))')}
headers=$("$1" -c 'import sysconfig; print(sysconfig.get_path("include"))')
# CC may hold options besides the program. shellcheck disable=SC2086
if echo '#include <Python.h>' | $compiler -fsyntax-only "-I$headers" -x c - 2>/dev/null; then
    echo "hot modules are compiled for $("$1" --version) (minutes); OTTLA_COMPILE=0 makes a pure wheel for every release" >&2
    echo 1
else
    echo "the wheel is pure Python: \"$compiler\" finds no $headers/Python.h (Debian: gcc and python3-dev)" >&2
    echo 0
fi
