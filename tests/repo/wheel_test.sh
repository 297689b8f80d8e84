#!/usr/bin/env bash
# Packs the build as a wheel, installs it with pip into a clean environment of Python and trains there with the LibTorch of
# that environment's PyTorch. PyTorch's own wheel is stood in for by its libraries, which scripts/setup took from it.
# usage: wheel_test.sh BUILD; 77 where there is no venv, or no NumPy and safetensors in BUILD/python (scripts/python-packages)
set -uo pipefail

build=$1
repo=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd)
libtorch=$(sed -n 's/^XFORMER_LIBTORCH:PATH=//p' "$build/CMakeCache.txt")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
. "$(dirname -- "${BASH_SOURCE[0]}")/checks.sh"
# Runs a command with nothing of this environment; leaves $code and $text.
bare() {
  code=0
  text=$(cd / && env -i PATH=/usr/bin:/bin HOME="$work" XFORMER_CACHE="$work/cache" OMP_WAIT_POLICY=passive "$@" 2>&1 </dev/null) || code=$?
}
[[ -d $build/python/safetensors && -d $build/python/numpy ]] || {
  echo "skipped: scripts/python-packages installs what is needed"
  exit 77
}
python3 -m venv "$work/venv" >/dev/null 2>&1 || {
  echo "skipped: python3 makes no venv here (Debian: python3-venv)"
  exit 77
}
python=$work/venv/bin/python

code=0
text=$("$repo/scripts/package" --wheel --build "$build" --out "$work/made/xformer" 2>&1) || code=$?
check "a finished build can be packed as a wheel" equal "$code" 0
wheels=("$work"/made/*.whl)
wheel=${wheels[0]}
check "its path is told" contains "$text" "$wheel"
[[ -f $wheel ]] || exit 1
first=$(sha256sum <"$wheel")
glibc=$(sed -E 's/.*-py3-none-manylinux_(2)_([0-9]+)_x86_64\.whl/\1.\2/' <<<"$wheel")
"$repo/scripts/package-wheel" "$work/made/xformer" 0.1.0 "$glibc" 2.11 "$work/made" >/dev/null
check "the same files make the same wheel" equal "$(sha256sum <"$wheel")" "$first"

# An environment with NumPy and safetensors, and a PyTorch of a version.
site=$(echo "$work"/venv/lib/python3*/site-packages)
echo "$build/python" >"$site/packages.pth"
torch() { # VERSION
  rm -rf "$site"/torch "$site"/torch-*
  mkdir -p "$site/torch" "$site/torch-$1.dist-info"
  touch "$site/torch/__init__.py"
  echo "__version__ = '$1'" >"$site/torch/version.py"
  ln -s "$libtorch/lib" "$site/torch/lib"
  printf 'Metadata-Version: 2.1\nName: torch\nVersion: %s\n' "$1" >"$site/torch-$1.dist-info/METADATA"
  printf 'pip\n' >"$site/torch-$1.dist-info/INSTALLER"
}
install=("$python" -m pip install --quiet --disable-pip-version-check --no-index "$wheel")
torch 2.10.0
bare "${install[@]}"
check "another PyTorch is refused" contains "$code $text" "torch==2.11"
torch 2.11.0
bare "${install[@]}"
check "pip installs it" equal "$code" 0

installed=$site/xformer
asked=$(readelf -V "$installed"/program/bin/xformer{,-engine} "$installed"/program/lib/* | grep -oE 'GLIBC_2\.[0-9]+' | sort -uV | tail -1)
check "its name has the C library that its files ask for" equal "GLIBC_$glibc" "$asked"
check "what runs can be run" test -x "$installed/program/bin/xformer-engine" -a -x "$installed/program/xformer"

bare "$work/venv/bin/xformer" list
check "the command is there" contains "$code $text" "mrs-linformer"
tiny=(--device cpu --threads 1 --batch 4 --steps 3 --set model.dim=16 model.head_dim=8 model.ff_dim=16 data.min_length=5
  data.max_length=30 data.train_examples=16 data.dev_examples=4 data.test_examples=4)
bare "$work/venv/bin/xformer" train --model linear --task listops "${tiny[@]}" --out "$work/run"
check "it trains with PyTorch's libraries" equal "$code" 0
check "to a record" contains "$(cat "$work/run/record.json")" '"status": "completed"'
bare "$python" -m xformer --version
check "so does the module" contains "$code $text" "0 xformer "
bare "$work/venv/bin/xformer" describe linformr
check "its exit code is the program's" equal "$code" 2
bare "$python" -c "
import xformer
lines = list(xformer.train('$work/run', model='linear', task='listops', batch=4, steps=3, threads=1, device='cpu', set={
    'model.dim': 16, 'model.head_dim': 8, 'model.ff_dim': 16, 'data.min_length': 5, 'data.max_length': 30,
    'data.train_examples': 16, 'data.dev_examples': 4, 'data.test_examples': 4}))
print(lines[-1]['event'], len(xformer.load_state('$work/run', 'numpy')) > 9, len(xformer.records('$work/run')))"
check "Python trains, reads weights and records" contains "$code $text" "finished True 1"

rm "$site/torch/lib"
bare "$work/venv/bin/xformer" list
check "without PyTorch's libraries it says what it needs" contains "$code $text" "XFORMER_LIBTORCH"

printf '%s passed, %s failed\n' "$passed" "$failed"
((failed == 0))
