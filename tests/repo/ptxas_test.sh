#!/usr/bin/env bash
# usage: ptxas_test.sh FOLDER   no kernel of the plugin keeps anything on a stack or spills registers to memory, by what the
# assembler said when it was built (FOLDER/**/*.ptxas); those that only pass over memory leave room for many threads, and none
# does nothing, which shows in a handful of registers. Skips where there is no CUDA compiler.
set -euo pipefail

reports=$(find "$1" -name '*.ptxas' 2>/dev/null || true)
if [[ -z $reports ]]; then
  echo "ptxas: the plugin is not built here"
  exit 77
fi
failed=0
for report in $reports; do
  # One kernel for one architecture: its name, its stack and spills, its registers.
  kernels=$(awk '/Compiling entry function/ { name = $0; sub(/.*function /, "", name) }
                 /bytes stack frame/ { memory = $0 }
                 /Used [0-9]+ registers/ { print memory, $0, "|", name }' "$report")
  if [[ -z $kernels ]]; then
    echo "ptxas: $report tells of no kernel"
    failed=1
  fi
  # Tiles of products, and rows of pairs, fill a thread's registers; the widest rows and doubles come next.
  sed -nE 's/.* Used ([0-9]+) registers.*\| (.*)/\1 \2/p' <<<"$kernels" | while read -r registers name; do
    if [[ $name == *ProductKind* || $name == *Additive* ]]; then most=255; else most=160; fi
    ((registers >= 12 && registers <= most)) || echo "ptxas: $name has $registers registers, not 12 to $most"
  done | grep . && failed=1
  grep -vE '^ *0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads ' <<<"$kernels" && failed=1
  echo "ptxas: $(wc -l <<<"$kernels") kernels in ${report#"$1"/}, most registers $(grep -oE 'Used [0-9]+' "$report" | sort -k2n | tail -1)"
done
((failed == 0))
