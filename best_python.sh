#!/bin/sh
# Print the path of the fastest Python that can run Ottla, and tell on standard error how it was chosen.
#
# Candidates are python3 and python3.11 to python3.13 on PATH, SYSTEM_PYTHON (/usr/bin/python3), and pyenv's versions. The
# pinned dependencies have wheels for these releases; immutables has none for 3.14. Speed decides, because it depends on how
# an interpreter was built more than on its release: pyenv's default build, without profile-guided optimisation, can take
# twice as long as Debian's. The measure is the least of several runs of a loop with calls, attributes, integers and bytes,
# a quarter of a second each.
set -eu

versions='3.11 3.12 3.13'
measure='
import sys, time
if "%d.%d" % sys.version_info[:2] not in sys.argv[1].split():
    sys.exit(1)
import ctypes, ensurepip, os, ssl, venv, zlib  # modules that a build may lack
class Row:
    __slots__ = ("n",)
    def __init__(self, n): self.n = n
    def step(self, data, i): self.n = (self.n + data[i & 255]) & 0xFFFF; return self.n
def loop(row, data, seen):
    for i in range(20000): seen[row.step(data, i) & 63] = Row(i)
best, end = 9.0, time.perf_counter() + 0.25
while time.perf_counter() < end:
    began = time.process_time(); loop(Row(1), bytes(range(256)), {}); best = min(best, time.process_time() - began)
print("%d %d.%d.%d %s" % ((best * 1e7,) + sys.version_info[:3] + (os.path.realpath(sys.executable),)))
'

candidates() {
    for name in python3 python3.11 python3.12 python3.13; do
        command -v "$name" || true
    done
    system=${SYSTEM_PYTHON-/usr/bin/python3}
    if [ -x "$system" ]; then echo "$system"; fi
    for version in $versions; do
        for path in "${PYENV_ROOT:-$HOME/.pyenv}/versions/$version".*/bin/python3; do
            if [ -x "$path" ]; then echo "$path"; fi
        done
    done
}

measured=$(
    candidates | sort -u | while read -r path; do
        "$path" -I -c "$measure" "$versions" 2>/dev/null || true  # a shim of pyenv, another release, a module is missing
    done | sort -n | awk '!seen[$3]++'
)
if [ -z "$measured" ]; then
    echo "Ottla needs Python 3.11 to 3.13 with ssl and ensurepip (Debian: python3-venv); none was found, set PYTHON= to its path" >&2
    exit 1
fi
best=$(echo "$measured" | head -n 1)
echo "$measured" | awk '{ printf "%s %s (%s), %.1f ms a loop\n", NR == 1 ? "uses Python" : "not used: Python", $2, $3, $1 / 10000 }' >&2
echo "$best" | cut -d ' ' -f 3-
