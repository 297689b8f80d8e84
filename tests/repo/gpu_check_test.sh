#!/usr/bin/env bash
# Tests of scripts/gpu-check on a machine without a GPU: its parts that a CPU can run, and, with stand-ins for the program,
# what it says of failures, of altered results and of a missing device. usage: gpu_check_test.sh PROGRAM
set -uo pipefail

export XFORMER_PROGRAM=$1
program=$1
check_script=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd)/scripts/gpu-check
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset XFORMER_CACHE
. "$(dirname -- "${BASH_SOURCE[0]}")/checks.sh"
matches() { grep -qE -- "$2" <<<"$1"; }
# Runs the script; leaves $code and $text.
gpu_check() {
  code=0
  text=$("$check_script" --out "$work/results.tar.gz" "$@" 2>&1 </dev/null) || code=$?
}
from_archive() { tar -xzOf "$work/results.tar.gz" "results/$1"; }
stand_in() { # text from stdin
  { printf '#!%s\n' "$(command -v bash)" && cat; } >"$work/program"
  chmod +x "$work/program"
  XFORMER_PROGRAM=$work/program
}

gpu_check --device cpu --small --part resume --part bench
check "runs that were killed and resumed pass on a CPU, and so does the bench" equal "$code" 0
check "each part is told" matches "$(from_archive summary.txt | tr '\n' ' ')" '^resume +PASS .*bench +PASS'
check "the killed run was resumed twice" contains "$(from_archive resume/log.txt)" "resumed 2 times, same bits: yes"
check "the bench has a row for every name" equal "$(from_archive bench/bench-graph-off.json | grep -c '"status": "ok"')" 10
check "and its table" matches "$(from_archive bench/bench-graph-off.md)" '^\| `performer` \| 128 \| 2 \|'
gpu_check --device cpu --small --part train --model linear
check "a whole training leaves its record" contains "$(from_archive train-linear/record.json)" '"status": "completed"'

# The fourth call is the one that finishes the resumed run.
stand_in <<PROGRAM
[[ " \$* " == *" train "* ]] && printf x >>"$work/calls"
[[ -e $work/calls && \$(wc -c <"$work/calls") == 4 ]] || exec "$program" "\$@"
"$program" "\$@" && echo tampered >>"\${!#}/predictions.csv"
PROGRAM
gpu_check --device cpu --small --part resume
check "other results after going on are a failure" equal "$code" 1
check "which is told" matches "$text" '^resume +FAIL'
check "with what differs" contains "$text" "predictions.csv"

stand_in <<'PROGRAM'
case "$*" in
  *contract*) echo "a claim that does not hold"; exit 70 ;;
  *) echo "stand-in"; exit 0 ;;
esac
PROGRAM
gpu_check --part contract --part captured
check "a failing part makes the whole fail" equal "$code" 1
check "its last lines are shown" contains "$text" "a claim that does not hold"
check "the parts after it are run" matches "$(from_archive summary.txt | tr '\n' ' ')" '^contract +FAIL .*captured +PASS'
gpu_check --part captured
check "what passes alone passes" equal "$code" 0

stand_in <<'PROGRAM'
[[ $1 == --version ]] || { echo "CUDA: there is no usable device" >&2; exit 4; }
PROGRAM
gpu_check
check "no device is no failure" equal "$code" 77
check "and the program's words are shown" contains "$text" "there is no usable device"
if [[ ! -e /dev/nvidiactl ]]; then
  XFORMER_PROGRAM=$program
  gpu_check
  check "the program itself says so too" equal "$code" 77
  check "and says what is missing" contains "$text" "CUDA"
fi

gpu_check --part contrat
check "an unknown part is a wrong option" equal "$code" 2
check "the known ones are named" contains "$text" "contract captured"
gpu_check --device gpu
check "an unknown device is a wrong option" equal "$code" 2
gpu_check --out "$work/nowhere/x.tar.gz"
check "an archive without a folder is refused at once" equal "$code" 2

printf '%s passed, %s failed\n' "$passed" "$failed"
((failed == 0))
