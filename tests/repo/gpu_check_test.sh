#!/usr/bin/env bash
# Tests of scripts/gpu-check on a machine without a GPU: its plans as far as a CPU can run them, and, with stand-ins for the
# program, what it says of failures, of altered results, of time limits and of a missing device. usage: gpu_check_test.sh PROGRAM
set -uo pipefail

export XFORMER_PROGRAM=$1
program=$1
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset XFORMER_CACHE
. "$(dirname -- "${BASH_SOURCE[0]}")/checks.sh"
matches() { grep -qE -- "$2" <<<"$1"; }
# Runs the script with a fresh folder for its results; leaves $code, $text and $lines, the lines it saved.
gpu_check() {
  rm -rf "$work/results"
  code=0
  text=$("$root/scripts/gpu-check" --out "$work/results" "$@" 2>&1 </dev/null) || code=$?
  lines=$(cat "$work/results/results.jsonl" 2>/dev/null)
}
stand_in() { # text from stdin
  { printf '#!%s\n' "$(command -v bash)" && cat; } >"$work/program"
  chmod +x "$work/program"
  XFORMER_PROGRAM=$work/program
}
ended() { # ITEM STATUS: the line that an item left
  matches "$lines" "^\{\"item\": \"$1\", \"plan\": \"[ABC]\", \"status\": \"$2\""
}

gpu_check --plan A --plan B --plan C --device cpu --small
check "plans A, B and C pass on a CPU as far as it can run them" equal "$code" 0
for item in device graphs kernels bench operators resume memory train shapes; do
  check "$item passes" ended $item pass
done
for item in captured contract learning; do
  check "$item passes, or is cut short with what it found" ended $item '(pass|cut)'
done
for item in profile sanitizer; do
  check "$item says that it needs a GPU" matches "$lines" "\"$item\".*\"skip\".*needs a GPU"
done
for item in ceilings pairs; do # with PyTorch, where this checkout has it
  check "$item passes, or says what it lacks" matches "$lines" "\"$item\", \"plan\": \"[AB]\", \"status\": (\"pass\"|\"skip\".*PyTorch)"
done
check "the killed run was resumed twice" contains "$lines" '"resumed": 2, "same_bits": true'
check "a profile is saved for each of three models" equal "$(cd "$work/results/operators" && echo *.json)" "linformer-fp32.json none-fp32.json softmax-fused-fp32.json"
check "with its longest operators" matches "$lines" '"operators", "row": .*"model": "none".*"operators": \[\{"operator": "[a-z]+::'
check "rows of a bench are saved one by one" equal "$(grep -c '^{"item": "bench", "row"' <<<"$lines")" 2
check "a curve without a CPU's beside it says so" matches "$lines" '"item": "train", .*linear bf16, no stored CPU run of linear under this plan'
check "in its row, too" contains "$lines" '"beside_cpu": {"missing": "no stored CPU run of linear under this plan"}'
check "a training leaves its record" contains "$(<"$work/results/train/linear-bf16-record.json")" '"status": "stopped"'
check "the table has every item" equal "$(grep -cE '^[ABC]  [a-z]+ +(PASS|SKIP|CUT) ' <<<"$text")" 16

help=$("$root/scripts/gpu-check" --help)
declare -A bounds=([A]=540 [B]=540 [C]=420) # a borrowed machine takes no command of more than ten minutes
for plan in A B C; do
  most=$(tr -s ' \n' ' ' <<<"$help" | grep -oE "of each plan [A-Z0-9, ]+" | grep -oE "$plan [0-9]+")
  sum=$(awk -v plan=$plan '$2 == plan && $4 == "s" { sum += $3 } END { print sum }' <<<"$help")
  check "plan $plan has time for all its items: $sum s of ${most#* }" test "$sum" -le "${most#* }"
  check "and takes no more than it may: ${most#* } s of ${bounds[$plan]}" test "${most#* }" -le "${bounds[$plan]}"
done

# The fourth call is the one that finishes the resumed run.
stand_in <<PROGRAM
[[ " \$* " == *" train "* ]] && printf x >>"$work/calls"
[[ -e $work/calls && \$(wc -c <"$work/calls") == 4 ]] || exec "$program" "\$@"
"$program" "\$@"
for word; do [[ -z \${next:-} ]] || echo tampered >>"\$word/predictions.csv"; next=; [[ \$word != --out ]] || next=1; done
PROGRAM
gpu_check --device cpu --small --part resume
check "other results after going on are a failure" equal "$code" 1
check "which is told with what differs" matches "$text" '^C  resume +FAIL .*predictions.csv'

stand_in <<'PROGRAM'
case "$*" in
  *contract*) printf 'ok  one\nFAIL  a claim that does not hold (2.0)\n'; exit 70 ;;
  *) echo "ok  stand-in"; exit 0 ;;
esac
PROGRAM
gpu_check --part contract --part captured
check "a failing item makes the whole fail" equal "$code" 1
check "it is named" matches "$text" '^A  contract +FAIL .*a claim that does not hold'
check "the items after it are run" ended captured pass
gpu_check --part captured
check "what passes alone passes" equal "$code" 0

stand_in <<'PROGRAM'
case "$*" in
  *captured*) ulimit -c 0 && kill -SEGV $$ ;;
  *selftest*) echo "ok  stand-in" ;;
esac
PROGRAM
gpu_check --part captured --part contract
check "a program that a signal ends is a failure" equal "$code" 1
check "which names the signal" matches "$text" '^A  captured +FAIL .*was ended by SIGSEGV'
check "and costs no other item" ended contract pass
gpu_check --part graphs --part contract # a bench that leaves no report
check "an error in the script is a failure" equal "$code" 1
check "which is told and saved" matches "$lines" '^\{"item": "graphs", "plan": "A", "status": "fail".*FileNotFoundError'
check "and costs no other item either" ended contract pass

# A compute-sanitizer that finds something in $FAULT, sees a step that did not run in $UNRUN, and never ends in $SLOW.
mkdir "$work/bin"
cat >"$work/bin/compute-sanitizer" <<SANITIZER
#!$(command -v bash)
echo "\$*" >>"$work/sanitized"
[[ "\$*" =~ --tool\ ([a-z]+)\ .*\ --models\ ([a-z-]+)\ .*\ --json\ ([^ ]+) ]] || exit 2
now="\${BASH_REMATCH[1]} \${BASH_REMATCH[2]}" status=ok
[[ \$now != \${FAULT:-} ]] || { echo "========= ERROR SUMMARY: 1 error"; exit 9; }
[[ \$now != \${SLOW:-} ]] || exec sleep 100
[[ \$now != \${UNRUN:-} ]] || status=out-of-memory
printf '{"rows": [{"status": "%s", "message": "said"}]}' "\$status" >"\${BASH_REMATCH[3]}"
echo "========= ERROR SUMMARY: 0 errors"
SANITIZER
chmod +x "$work/bin/compute-sanitizer"
sanitized() { # WORDS...: gpu-check's item with that sanitizer
  rm -f "$work/sanitized"
  PATH=$work/bin:$PATH gpu_check --part sanitizer "$@"
}
found() { grep -cE "^\{\"item\": \"sanitizer\", \"row\": \{\"check\": \"$1\", \"model\": \"$2\", \"status\": \"$3\"" <<<"$lines"; }
sanitized
check "a sanitizer that finds nothing passes" equal "$code" 0
check "and says of how many checks" matches "$text" '^A  sanitizer  PASS .* 25 checks found nothing'
check "a row is saved for each model's accesses" equal "$(found memcheck '[a-z-]+' ok)" 16
check "and for the races of nine" equal "$(found racecheck '[a-z-]+' ok)" 9
check "two of them are causal" equal "$(grep -cE -- '--tool memcheck .*--task bytes/enwik8 ' "$work/sanitized")" 2
check "each is one plain step of one model on the device" equal \
  "$(grep -cE -- '--error-exitcode 9 .*/program bench --task [a-z0-9/]+ --models [a-z-]+ .*--steps 1 .*--cuda-graph off .*--device cuda ' "$work/sanitized")" 25
FAULT='memcheck longformer' UNRUN='racecheck reformer' sanitized
check "a model in which it finds something fails" equal "$code" 1
check "and is named with what it said" contains "$text" "memcheck of longformer in fp32 ended with 9: ========= ERROR SUMMARY: 1 error"
check "so does one whose step did not run" contains "$text" "racecheck of reformer in fp32 checked nothing: out-of-memory: said"
check "their rows say so" equal "$(found memcheck longformer failed) $(found racecheck reformer failed)" "1 1"
check "the others stand" equal "$(found '[a-z]+' '[a-z-]+' ok)" 23
check "and are counted" contains "$text" "23 checks found nothing"
SLOW='racecheck longformer' sanitized --budget 15
check "what has no time left is no failure" equal "$code" 0
check "but is cut short, and what was not run is named" matches "$text" \
  '^A  sanitizer  CUT .* 24 checks found nothing; not run: racecheck of longformer in fp32$'
check "and what had ended is saved" equal "$(found '[a-z]+' '[a-z-]+' ok)" 24
sanitized --model linformer --model none
check "of chosen models these alone are checked" equal "$(grep -oE -- '--models [a-z-]+' "$work/sanitized" | sort | tr '\n' ' ')" \
  "--models linformer --models linformer --models none "
sanitized --model luna
check "a model that none of it checks is told of" matches "$text" '^A  sanitizer  SKIP .* checks none, softmax-fused, .* alone$'
sanitized --precision bf16
check "in another precision every one is a step of that" equal "$(grep -c -- '--precision bf16 ' "$work/sanitized")" 25

# A program and a PyTorch that only answer. A step of ours takes 2 ms, PyTorch's eager 8, others less; the first of PyTorch's
# processes whose words match $FAULT ends, and what matches $SLOW is never ready.
cat >"$work/bin/python3" <<PYTHON
#!$(command -v bash)
[[ "\$*" != *"import torch"* ]] || { echo 2.11.0; exit; }
[[ "\$*" == *worker.py* ]] || exec $(python3 -c 'import sys; print(sys.executable)') "\$@"
echo "\$*" >>"$work/asked"
[[ -z \${FAULT:-} || ! "\$*" =~ \$FAULT ]] || { echo "out of memory" >&2; exit 1; }
[[ -z \${SLOW:-} || ! "\$*" =~ \$SLOW ]] || exec sleep 100
case "\$*" in *reduce-overhead*) ms=3 ;; *--compile*) ms=4 ;; *sdpa*) ms=6 ;; *) ms=8 ;; esac
echo '{"event": "ready", "setup_seconds": 1, "torch": "2.11.0", "gpu": "a GPU"}'
while read -r; do echo "{\"ms\": \$ms, \"host_ms\": 1, \"device_ms\": 1, \"peak_bytes\": \${ms}00000000}"; done
PYTHON
chmod +x "$work/bin/python3"
stand_in <<'PROGRAM'
case "$*" in
  --version) echo "xformer 1.2.3" ;;
  selftest*) echo "ok  stand-in" ;;
  *--paced*"--models reformer --lengths 1024 "*"--precision tf32"*) echo "a kernel failed" >&2; exit 70 ;;
  *--paced*)
    echo '{"row": {"captured": true, "kernels_launched": 21, "peak_bytes": 300000000}}'
    while read -r; do echo '{"ms": 2, "host_ms": 1, "device_ms": 1}'; done
    ;;
  *)
    [[ "$*" =~ --models\ ([^ ]+)\ --lengths\ ([0-9]+)\ --batch\ ([0-9]+)\ --precision\ ([a-z0-9]+)\ .*--json\ ([^ ]+) ]] || exit 0
    for model in ${BASH_REMATCH[1]//,/ }; do
      printf '%s{"model": "%s", "length": %d, "batch": %d, "precision": "%s", "status": "ok", "captured": true, "step_ms": {"median": 2.5},
        "kernels_launched": 22, "peak_bytes": 400000000, "joules_per_step": 0.51234}' "${rows:+,}" "$model" "${BASH_REMATCH[@]:2:3}"
      rows=1
    done >"${BASH_REMATCH[5]}.rows"
    printf '{"rows": [%s]}' "$(<"${BASH_REMATCH[5]}.rows")" >"${BASH_REMATCH[5]}"
    ;;
esac
PROGRAM
FAULT='reformer --length 2048 .* fp32 .*--compile$' PATH=$work/bin:$PATH gpu_check --part learning --part pairs --part shapes \
  --model softmax-fused --model reformer --precision fp32 --precision tf32
# ATTENTION LENGTH BATCH PRECISION WORDS: how often PyTorch was started so
asked() { grep -cE -- "worker.py --attention $1 --length $2 --batch $3 --device cuda --precision $4 .*--warmup 6$5\$" "$work/asked"; }
for precision in fp32 tf32; do # once to be compiled, once in its pair
  check "what pairs asks for in $precision is compiled before, at every shape" equal \
    "$(asked softmax 2048 32 $precision ' --compile') $(asked softmax 4096 16 $precision ' --compile reduce-overhead') $(
      asked reformer 1024 32 $precision ' --compile') $(asked softmax 1024 32 $precision '')" "2 2 2 1"
done
check "and how much of it is ready is told" contains "$lines" "torch.compile is ready with 23 of 24"
row() { # SHAPE MODEL PRECISION KIND STATUS: how many such rows pairs saved
  grep -cE "^\{\"item\": \"pairs\", \"row\": \{\"shape\": \"$1\", \"model\": \"$2\", \"precision\": \"$3\", \"kind\": \"$4\", \"status\": \"$5\"" <<<"$lines"
}
check "a row is saved for every kind of PyTorch in every pair" equal "$(row '[a-z0-9-]+' '[a-z-]+' '[a-z0-9]+' '[a-z-]+' ok)" $((6 * 4 + 5 * 3 - 1))
check "a PyTorch that ends costs its own row alone" equal "$(row listops reformer fp32 compile failed) $(row listops reformer fp32 '[a-z-]+' ok)" "1 2"
check "a program of ours that ends fails its pair" matches "$text" '^B  pairs +FAIL .*reformer tf32 image: ended with 70: a kernel failed'
check "the others stand, and the least of their ratios is told" matches "$text" '11 of 12 pairs; eager at least 4.00 .*; compile at least 2.00 '
check "shapes measures the same alone" equal "$(grep -c '^{"item": "shapes", "row"' <<<"$lines")" 12

table() { code=0 && text=$("$root/scripts/gpu-check" --table "$@" 2>&1) || code=$?; }
table "$work/results/results.jsonl"
check "the table has what was measured" equal "$code $(grep -c '^| `' <<<"$text")" "0 12"
check "a pair's row has times, ratios, kernels, memory and energy" contains "$text" \
  '| `softmax-fused` | text-4k, 4,096 x 16 | 2.000 | 4.00 | 2.00 | 1.50 | 3.00 | 21 | 300 | 800 | 400 | 300 | 600 | 0.512 |'
check "what PyTorch could not is missing there" contains "$text" \
  '| `reformer` | listops, 2,048 x 32 | 2.000 | 4.00 | - | 1.50 | - | 21 | 300 | 800 | - | 300 | - | 0.512 |'
check "of what was measured alone the rest is there" contains "$text" \
  '| `reformer`, tf32 | image, 1,024 x 32 | 2.500 | - | - | - | - | 22 | 400 | - | - | - | - | 0.512 |'
check "it says of which device and versions it is" equal "$(tail -1 <<<"$text")" "a GPU, xformer 1.2.3, PyTorch 2.11.0."
grep -v '"pairs"' "$work/results/results.jsonl" >"$work/alone.jsonl"
table "$work/alone.jsonl"
check "without pairs there is no table" equal "$code $text" "2 gpu-check: --table $work/alone.jsonl: nothing of the item pairs is in it"
echo '{"item": "pai' >>"$work/alone.jsonl"
table "$work/alone.jsonl"
check "half a line is named" matches "$code $text" '^2 gpu-check: --table .*: line [0-9]+ is none of gpu-check'
table "$work/nowhere"
check "so is a file that is not there" equal "$code $text" "2 gpu-check: --table $work/nowhere: No such file or directory"

SLOW='--length 1024' PATH=$work/bin:$PATH gpu_check --part pairs --budget 8 --model softmax-fused --model reformer --precision fp32
check "pairs that have no time left are no failure" equal "$code" 0
check "but are cut short with what was measured" matches "$text" '^B  pairs +CUT .* 4 of 6 pairs'
check "which is saved" equal "$(row '[a-z0-9-]+' '[a-z-]+' fp32 '[a-z-]+' ok)" 14
PATH=$work/bin:$PATH gpu_check --part pairs --model additive
check "a model that is not compared is said not to be" matches "$text" '^B  pairs +SKIP .*measures softmax-fused, linformer'

# Recorded steps of three precisions, of which $SLOW never end.
stand_in <<PROGRAM
[[ "\$*" == *captured* ]] || exit 0
echo "ok  softmax: recorded steps equal plain ones"
[[ "\$*" =~ --precision\ (\$SLOW)\  ]] || exit 0
echo \$\$ >"$work/pid"
sleep 100
PROGRAM
SLOW='fp32|fp16' gpu_check --part captured --part contract --budget 12
check "an item that takes too long fails" ended captured time
check "what it started is gone" matches "$(kill -0 "$(<"$work/pid")" 2>&1)" 'No such process'
check "what has no time left is left out" matches "$lines" '"contract".*"skip".*no time is left'
check "the whole fails" equal "$code" 1
SLOW=bf16 gpu_check --part captured --budget 12
check "what had seen enough by then is cut short" ended captured cut
check "and says how much" matches "$text" '^A  captured +CUT .* 3 claims hold, then the time was over'
check "and does not fail" equal "$code" 0

# Processes that a kill does not end, as those that are stuck in a driver.
mkdir "$work/stuck"
echo 'import os; os.killpg = lambda *_: None' >"$work/stuck/sitecustomize.py"
stand_in <<PROGRAM
[[ "\$*" == *"captured --precision fp32"* || "\$*" == *--paced* ]] || { echo "ok  stand-in"; exit; }
echo \$\$ >>"$work/stuck/pids"
exec sleep 30
PROGRAM
PYTHONPATH=$work/stuck gpu_check --part captured --part contract --budget 6
check "a process that does not end is told of, and not waited for" matches "$lines" \
  '"captured", "plan": "A", "status": "time", .*process [0-9]+ \(program\) was killed and did not end'
check "and what comes after it goes on" ended contract skip
PYTHONPATH=$work/stuck PATH=$work/bin:$PATH gpu_check --part pairs --budget 6 --model none --precision fp32 --shape image
check "so it is with those of a pair" matches "$lines" '"pairs", .*"time", .*process [0-9]+ \(program\) was killed and did not end'
kill $(<"$work/stuck/pids")

SLOW=fp32 "$root/scripts/gpu-check" --part graphs --part captured --out "$work/stopped" 2>/dev/null >&2 </dev/null &
stopped=$!
for ((i = 0; i < 200; ++i)); do
  [[ ! -s $work/stopped/captured/fp32.txt ]] || break
  sleep 0.05
done
kill -TERM $stopped
code=0
wait $stopped || code=$?
check "an interruption ends it with 6" equal "$code" 6
check "what had ended before is saved" contains "$(<"$work/stopped/results.jsonl")" '"item": "graphs"'

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
check "the known ones are named" contains "$text" "captured contract"
gpu_check --plan D
check "so is an unknown plan" equal "$code" 2
gpu_check --device gpu
check "an unknown device is a wrong option" equal "$code" 2
echo kept >"$work/file"
for out in "$work/nowhere/x" "$work/file" "$work/file/x" "$work/file/x/y"; do
  gpu_check --out "$out"
  check "a folder that cannot be made is refused at once" equal "$code" 2
  check "in a line, with what was expected and what came" matches "$(tr '\n' '|' <<<"$text")" \
    "^gpu-check: --out: expected a folder, or a new name in one, got '$out': [A-Za-z ]+\|$"
done
check "and a file stays as it was" equal "$(<"$work/file")" kept

# What Nsight Compute prints, in the shape of its documentation.
csv='==PROF== Connected
"ID","Process ID","Kernel Name","Metric Name","Metric Unit","Metric Value"
"0","7","drop(float)","gpu__time_duration.sum","us","1.50"
"0","7","drop(float)","dram__bytes.sum","Mbyte","2.00"
"1","7","gemm","gpu__time_duration.sum","ns","1,200"
"2","7","drop(float)","gpu__time_duration.sum","us","2.00"'
table=$(PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$root/scripts/gpu-check.d:$root/tests/peers python3 -c '
import sys, speed
print(*((row["kernel"], row["count"], row["ns"], row["bytes"]) for row in speed.kernel_table(sys.stdin.read())))' <<<"$csv")
check "kernels are added up by name, the longest first" equal "$table" \
  "('drop(float)', 2, 3500.0, 2000000.0) ('gemm', 1, 1200.0, 0.0)"

# A curve of a device beside a stored one of a CPU.
beside_cpu() { # PLAN MODEL: of the device's run, whose accuracy is 0.5, 0.75 at steps 50, 100
  mkdir -p "$work/stored/linear/plan/0"
  echo '{"hardware": {"device": "cpu"}, "plan": {"protocol": "mlpen-fp16", "training.precision": "fp32", "seed": 0}, "dev": [
    {"step": 50, "accuracy": 0.25}, {"step": 100, "accuracy": 0.625}, {"step": 150, "accuracy": 1}]}' >"$work/stored/linear/plan/0/record.json"
  PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$root/scripts/gpu-check.d:$root/tests/peers python3 -c '
import json, pathlib, sys, runs
dev = [{"step": 50, "accuracy": 0.5}, {"step": 100, "accuracy": 0.75}]
curve = runs.beside_cpu({"model": sys.argv[2], "plan": json.loads(sys.argv[1]), "dev": dev}, pathlib.Path(sys.argv[3]))
print(curve, runs.beside(curve), sep="\n")' "$1" "${2:-linear}" "$work/stored"
}
check "a curve is compared with a CPU's of the same plan" equal \
  "$(beside_cpu '{"protocol": "mlpen", "training.precision": "bf16", "seed": 0, "option.of.later": 1}')" \
  "{'difference': 0.25, 'at_step': 50, 'evaluations': 2, 'last_difference': 0.125}
at most 0.250 (step 50) from a CPU's dev accuracy"
none() { printf "{'missing': '%s'}\n%s" "$1" "$1"; }
check "and with none of another plan, which is said" equal \
  "$(beside_cpu '{"protocol": "mlpen", "training.precision": "fp32", "seed": 1}')" "$(none 'no stored CPU run of linear under this plan')"
check "so is a model that no CPU has run" equal "$(beside_cpu '{"protocol": "mlpen", "seed": 0}' softmax-fused)" \
  "$(none 'no stored CPU run of softmax-fused under this plan')"

printf '%s passed, %s failed\n' "$passed" "$failed"
((failed == 0))
