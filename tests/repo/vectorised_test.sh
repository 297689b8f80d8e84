#!/usr/bin/env bash
# usage: vectorised_test.sh LIBRARY   every function marked XFORMER_VECTORISED has its versions for the instruction sets
# in LIBRARY (libxformer_kernels.a): a compiler that leaves them out says nothing, and the kernels are several times slower.
set -euo pipefail

root=$(cd -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/../.." && pwd)
if [[ $(uname -m) != *x86_64 ]] || ! command -v nm >/dev/null; then
  echo "vectorised: versions are made on x86-64 only, and nm shows them"
  exit 77
fi
marked=$(grep -rh '^XFORMER_VECTORISED' "$root/src/kernels" --include='*.cpp' | wc -l)
made=$(nm "$1" 2>/dev/null | grep -c ' [tT] .*arch_x86_64_v4' || true)
echo "vectorised: $marked functions marked, $made versions for x86-64-v4"
((marked > 0 && made >= marked))
