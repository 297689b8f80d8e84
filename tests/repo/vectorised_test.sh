#!/usr/bin/env bash
# usage: vectorised_test.sh LIBRARY   every function marked XFORMER_VECTORISED has its versions for the instruction sets
# in LIBRARY (libxformer_kernels.a), vector registers in them, and no call to a lambda or template that was to be part of
# them: a compiler that leaves out the one or the other says nothing, and the kernels are several times slower.
set -euo pipefail

root=$(cd -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/../.." && pwd)
if [[ $(uname -m) != *x86_64 ]] || ! command -v nm >/dev/null; then
  echo "vectorised: versions are made on x86-64 only, and nm shows them"
  exit 77
fi
marked=$(grep -rh '^XFORMER_VECTORISED' "$root/src/kernels" --include='*.cpp' | wc -l)
for level in v4 v3; do
  made=$(nm "$1" 2>/dev/null | grep -c " [tT] .*arch_x86_64_$level" || true)
  echo "vectorised: $marked functions marked, $made versions for x86-64-$level"
  ((marked > 0 && made >= marked)) || exit 1
done
command -v objdump >/dev/null || exit 0
plain=$(objdump -d --no-show-raw-insn -C "$1" 2>/dev/null | awk '
  /^[0-9a-f]+ <.*clone .arch_x86_64_v4\]>:/ { name = substr($0, index($0, "<")); vectors = 0; next }
  /%[yz]mm/ { ++vectors }
  /^$/ && name { if (!vectors) print "  " name; name = "" }
  END { if (name && !vectors) print "  " name }')
[[ -z $plain ]] || {
  printf 'vectorised: no vector register of 256 or 512 bits in\n%s\n' "$plain"
  exit 1
}
called=$(objdump -d --no-show-raw-insn -C "$1" 2>/dev/null | awk '
  /^[0-9a-f]+ <.*>:/ { name = substr($0, index($0, "<")); version = name ~ /clone .arch_x86_64_v[34]\]>:/; next }
  version && /call .*<xformer::.*\(anonymous namespace\)/ { print "  " name "\n    " substr($0, index($0, "<")) }')
[[ -z $called ]] || {
  printf 'vectorised: a call for each number, compiled for any processor, in\n%s\n' "$called"
  exit 1
}
# Whether what is asked for reaches batches of files: Philox for 32 blocks at once has 8 products side by side, and two
# for what is left.
products=$(objdump -d --no-show-raw-insn -C "$1" 2>/dev/null | awk '/^[0-9a-f]+ <.*by_512::draw\(/ { draws = 1 } /^$/ { draws = 0 } draws && /vpmuludq/' | wc -l)
echo "vectorised: $products products in what draws by AVX-512"
((products >= 10)) || {
  echo "vectorised: loops over registers are not unrolled; was the layer compiled with another's precompiled header?"
  exit 1
}
