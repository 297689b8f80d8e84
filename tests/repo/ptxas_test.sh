#!/usr/bin/env bash
# usage: ptxas_test.sh FOLDER   no kernel of the plugin keeps anything on a stack or spills registers to memory, by what the
# assembler said when it was built (FOLDER/**/*.ptxas). Skips where there is no CUDA compiler.
set -euo pipefail

reports=$(find "$1" -name '*.ptxas' 2>/dev/null)
if [[ -z $reports ]]; then
  echo "ptxas: the plugin is not built here"
  exit 77
fi
failed=0
for report in $reports; do
  # One kernel for one architecture: its name, its stack and spills, its registers.
  kernels=$(awk '/Compiling entry function/ { name = $0; sub(/.*function /, "", name) }
                 /bytes stack frame/ { memory = $0 }
                 /Used [0-9]+ registers/ { print memory, "|", name }' "$report")
  if [[ -z $kernels ]]; then
    echo "ptxas: $report tells of no kernel"
    failed=1
  fi
  grep -vE '^ *0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads \|' <<<"$kernels" && failed=1
  echo "ptxas: $(wc -l <<<"$kernels") kernels in ${report#"$1"/}, most registers $(grep -oE 'Used [0-9]+' "$report" | sort -k2n | tail -1)"
done
((failed == 0))
