#!/usr/bin/env bash
# Tests of the launcher, of scripts/reproduce's paths and of scripts/setup's behaviour on machines that lack something.
# Everything runs on copies in a temporary folder with stand-ins for the program, the package manager and pip: no network, no rights, a few seconds.
set -uo pipefail

repo=$(cd -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset XFORMER_LIBTORCH XFORMER_NO_STALE_WARNING
. "$(dirname -- "${BASH_SOURCE[0]}")/checks.sh"
lacks() { [[ $1 != *"$2"* ]]; }
absent() { [[ ! -e $1 ]]; }

# Runs a command; leaves $code, $out and $err.
capture() {
  code=0
  "$@" >"$work/out" 2>"$work/err" </dev/null || code=$?
  out=$(<"$work/out")
  err=$(<"$work/err")
}

write_script() { # FILE, text from stdin
  mkdir -p "$(dirname "$1")"
  { printf '#!%s\n' "$(command -v bash)" && cat; } >"$1"
  chmod +x "$1"
}

# A checkout with sources of long ago and a program that reports how it was called.
new_checkout() { # NAME
  checkout=$work/$1
  mkdir -p "$checkout"/{src/core,apps,cmake,scripts,build}
  cp "$repo/xformer" "$checkout/"
  cp "$repo/scripts/setup" "$checkout/scripts/"
  touch -d '2020-01-01' "$checkout"/{src/core/a.cpp,apps/main.cpp,cmake/b.cmake,CMakeLists.txt}
}
program() {
  write_script "$1" <<'PROGRAM'
printf 'cwd=%s count=%s' "$PWD" "$#"
for argument in "$@"; do printf ' <%s>' "$argument"; done
exit "${PROGRAM_CODE:-0}"
PROGRAM
}

# --- the launcher -----------------------------------------------------------------------------------------------------

new_checkout built
program "$checkout/build/xformer"
mkdir -p "$work/else where"
cd "$work/else where" || exit 1

capture "$checkout/xformer" train '' 'two words' '*' '--set=a.b="c"' $'line\nbreak'
check "arguments pass through untouched" \
  equal "$out" "cwd=$work/else where count=6 <train> <> <two words> <*> <--set=a.b=\"c\"> <line"$'\n'"break>"
check "an up-to-date program runs without a word" equal "$err" ""
check "success is passed on" equal "$code" 0
capture "$checkout/xformer"
check "no arguments stay none" equal "$out" "cwd=$work/else where count=0"
capture env PROGRAM_CODE=6 "$checkout/xformer"
check "the exit code is the program's" equal "$code" 6

ln -s "$checkout/xformer" "$work/link"
ln -s link "$work/link-to-link"
capture "$work/link-to-link" list
check "works through symbolic links" equal "$out" "cwd=$work/else where count=1 <list>"
capture env --chdir="$checkout" ./xformer list
check "works from the checkout" equal "$out" "cwd=$checkout count=1 <list>"
capture env --chdir="$checkout" PATH="$checkout:$PATH" bash xformer list
check "works without a slash in its name" equal "$out" "cwd=$checkout count=1 <list>"
capture env PATH="$checkout:$PATH" xformer list
check "works when found by PATH" equal "$out" "cwd=$work/else where count=1 <list>"

touch -d '+1 minute' "$checkout/src/core/a.cpp"
capture "$checkout/xformer" list
check "a newer source is named" contains "$err" "src/core/a.cpp"
check "the way to rebuild is named" contains "$err" "scripts/setup"
check "the warning leaves stdout alone" equal "$out" "cwd=$work/else where count=1 <list>"
check "the program still runs" equal "$code" 0
capture env XFORMER_NO_STALE_WARNING=1 "$checkout/xformer" list
check "the warning can be switched off" equal "$err" ""
touch -d '+2 minutes' "$checkout/build/.xformer-built"
capture "$checkout/xformer" list
check "a later build that left the program alone counts" equal "$err" ""
rm "$checkout/build/.xformer-built"
touch -d '+2 minutes' "$checkout/build/xformer-engine"
capture "$checkout/xformer" list
check "so does an engine that was built anew" equal "$err" ""
rm "$checkout/build/xformer-engine"
touch -d '2020-01-01' "$checkout/src/core/a.cpp"
touch -d '+1 minute' "$checkout/CMakeLists.txt"
capture "$checkout/xformer"
check "the build files count as sources" contains "$err" "CMakeLists.txt"
touch -d '2020-01-01' "$checkout/CMakeLists.txt"
rm -r "$checkout/cmake"
capture "$checkout/xformer"
check "a missing folder is no trouble" equal "$code$err" "0"

started=${EPOCHREALTIME/[.,]/}
for _ in 1 2 3 4 5; do "$checkout/xformer" >"$work/out"; done
each=$(((${EPOCHREALTIME/[.,]/} - started) / 5000))
printf 'launcher and stand-in program: %s ms a call\n' "$each"

new_checkout first-use
program "$work/prepared"
write_script "$checkout/scripts/setup" <<EOF_SETUP
echo "setting up"
cp "$work/prepared" "$checkout/build/xformer"
EOF_SETUP
capture "$checkout/xformer" train 'a b'
check "first use sets up, then runs" equal "$out" "cwd=$work/else where count=2 <train> <a b>"
check "what set-up says goes to stderr" contains "$err" "setting up"
check "the launcher says how long it takes" contains "$err" "10 to 30 minutes"
capture "$checkout/xformer"
check "second use only runs" equal "$err" ""

new_checkout no-setup
write_script "$checkout/scripts/setup" <<'EOF_SETUP'
exit 4
EOF_SETUP
capture "$checkout/xformer" list
check "a failed set-up ends the launcher with its code" equal "$code" 4
write_script "$checkout/scripts/setup" <<'EOF_SETUP'
trap 'exit 6' TERM
touch started
for _ in {1..200}; do sleep 0.05; done
EOF_SETUP
cd "$work" || exit 1
"$checkout/xformer" >"$work/out" 2>"$work/err" &
launcher=$!
for _ in {1..100}; do [[ -e started ]] && break; sleep 0.05; done
kill -TERM "$launcher"
code=0
wait "$launcher" || code=$?
check "a signal during set-up reaches it" equal "$code" 6

# --- scripts/reproduce ------------------------------------------------------------------------------------------------

new_checkout reproduced
cp "$repo/scripts/reproduce" "$checkout/scripts/"
program "$checkout/build/xformer"
mkdir -p "$checkout/experiments/paper"
touch "$checkout/experiments/paper/table.json"
cd "$work/else where" || exit 1
capture "$checkout/scripts/reproduce" ../reproduced/experiments/paper/table.json \
  --data 'my data' text=/texts --jobs 2 '--data=uea/*=../uea'
check "folders of data are meant from where the caller stands" contains "$out" \
  " <--data> <$work/else where/my data> <text=/texts> <--jobs> <2> <--data=uea/*=$work/uea>"
check "and the experiment is found from there" contains "$out" "<sweep> <$checkout/experiments/paper/table.json>"
capture "$checkout/scripts/reproduce" ../reproduced/experiments/paper/table.json
check "no options stay none" contains "$out" "<--record-to> <results/runs/paper/table>cwd="
program "$work/else where/mine"
capture env XFORMER_PROGRAM=mine PROGRAM_CODE=2 "$checkout/scripts/reproduce" ../reproduced/experiments/paper/table.json
check "a program is meant from there, too" equal "$code" 2
check "and it is the one that runs" contains "$out" "<validate> <$checkout/experiments/paper/table.json>"
capture env XFORMER_PROGRAM=lost "$checkout/scripts/reproduce" ../reproduced/experiments/paper/table.json
check "one that is not there is a wrong value" equal "$code" 2
check "and is named" contains "$err" "XFORMER_PROGRAM=lost"
cd "$work" || exit 1

# --- set-up on machines that lack something ---------------------------------------------------------------------------

# A PATH with the plain tools only, and stand-ins for those whose answers matter.
new_machine() { # USER_ID
  tools=$work/tools
  rm -rf "$tools" "$work/called"
  mkdir -p "$tools"
  local tool
  for tool in bash env sh sed awk tr grep cat head sort paste dirname readlink realpath mkdir rmdir rm mv ln touch sleep find \
    flock nproc uname true; do
    ln -s "$(type -P "$tool")" "$tools/$tool"
  done
  write_script "$tools/id" <<<"echo $1"
  write_script "$tools/dpkg-query" <<<'exit 1'
  write_script "$tools/dpkg" <<<'exit 0'
}
with_apt() { write_script "$tools/apt-get" <<<"echo \"\$*\" >>'$work/called'; exit ${1:-0}"; }
set_up() { capture env PATH="$tools" "$@"; }
calls() { cat "$work/called" 2>/dev/null; }

new_checkout bare
setup=$checkout/scripts/setup

new_machine 1000
set_up "$setup" --packages-only
check "without apt-get set-up ends with code 4" equal "$code" 4
for name in g++ cmake ninja-build ccache git python3-pip; do check "and names $name" contains "$err" " $name"; done
check "nothing goes to stdout" equal "$out" ""

with_apt
set_up "$setup" --packages-only
check "without root and sudo it ends with code 4" equal "$code" 4
check "and gives the command for root" contains "$err" "apt-get update && apt-get install -y --no-install-recommends g++ cmake ninja-build"
check "and calls nothing" equal "$(calls)" ""

# shellcheck disable=SC2016 # the stand-in expands its own arguments
write_script "$tools/sudo" <<<'[[ $1 != -n ]] || exit 1; echo asked >&2; exit 1'
set_up "$setup" --packages-only
check "sudo that wants a password is not used without a terminal" equal "$code" 4
check "and is not asked" lacks "$err" asked
write_script "$tools/sudo" <<<'shift; exec "$@"'
set_up "$setup" --packages-only
check "sudo that wants none installs" contains "$(calls)" "install --no-install-recommends g++ cmake"
check "and set-up succeeds" equal "$code" 0

new_machine 0
with_apt
set_up "$setup" --packages-only
check "root updates the lists" contains "$(calls)" "update"
check "and hears what is done and how long it usually takes" contains "$err" "usually takes one to two minutes"
check "root installs" contains "$(calls)" "install --no-install-recommends g++ cmake"
with_apt 100
set_up "$setup" --packages-only
check "an installation that fails ends with code 4" equal "$code" 4
check "and names the packages" contains "$err" "could not install: g++ cmake"

new_machine 1000
with_apt
write_script "$tools/dpkg-query" <<'EOF_QUERY'
for name in "${@:3}"; do echo "ii $name"; done
EOF_QUERY
set_up "$setup" --packages-only
check "with all packages present nothing is called" equal "$code$(calls)" 0
check "and set-up says so" contains "$err" "all present"

mkdir -p "$work/empty"
set_up XFORMER_LIBTORCH="$work/empty" "$setup" --libtorch-only
check "an empty XFORMER_LIBTORCH is a wrong value" equal "$code" 2
check "it is named" contains "$err" "XFORMER_LIBTORCH=$work/empty is not a LibTorch folder"
check "what it lacks is named" contains "$err" "include/ATen/core/Tensor.h"
mkdir -p "$work"/lt/{include/ATen/core,include/torch/csrc/api/include/torch,lib}
touch "$work"/lt/{include/ATen/core/Tensor.h,include/torch/csrc/api/include/torch/types.h,lib/libtorch_cpu.so,lib/libc10.so}
set_up XFORMER_LIBTORCH="$work/lt" "$setup" --libtorch-only
check "a whole one is taken" equal "$code" 0
check "and nothing is downloaded" absent "$checkout/.libtorch"
set_up "$setup" --faster
check "an unknown option is a wrong value" equal "$code" 2
set_up "$setup" --build-only --packages-only
check "options that exclude each other are a wrong value" equal "$code" 2
set_up "$setup" --build-only
check "a build without LibTorch says what is missing" equal "$code" 4
ln -sfn "$work/nowhere/lock" "$checkout/.libtorch.lock"
set_up "$setup" --packages-only
check "a lock that cannot be opened ends with code 4" equal "$code" 4
check "and is named" contains "$err" "$checkout/.libtorch.lock"
rm "$checkout/.libtorch.lock"
rmdir "$checkout/build" && touch "$checkout/build"
set_up XFORMER_LIBTORCH="$work/lt" "$setup" --build-only
check "a build folder that cannot be written ends with code 4" equal "$code" 4
check "and is named, too" contains "$err" "no permission to write in $checkout/build"
rm "$checkout/build"

write_script "$tools/uname" <<<'echo Linux x86_64'
write_script "$tools/df" <<<'printf "head\nfs 1 1 100 1%% /\n"'
set_up "$setup" --libtorch-only
check "too little disk ends with code 4" equal "$code" 4
check "and says how much there is" contains "$err" "there are 100 MiB"
write_script "$tools/df" <<<'printf "head\nfs 1 1 99999 1%% /\n"'
write_script "$tools/python3" <<<'exit 1'
set_up "$setup" --libtorch-only
check "a failed download ends with code 4" equal "$code" 4
check "and names a way without network" contains "$err" "XFORMER_LIBTORCH=DIR"
write_script "$tools/python3" <<<'exec sleep 30'
PATH=$tools "$setup" --libtorch-only >"$work/out" 2>"$work/err" </dev/null &
pid=$!
for _ in {1..100}; do [[ -e $checkout/.libtorch.part/tmp ]] && break; sleep 0.05; done
kill -TERM "$pid"
code=0
wait "$pid" || code=$?
err=$(<"$work/err")
check "an interrupted download ends with code 6" equal "$code" 6
check "and leaves nothing half-done" absent "$checkout/.libtorch.part"
check "and no stamp" absent "$checkout/.libtorch"

version=$(sed -n 's/^torch_version=//p' "$setup") layout=$(sed -n 's/^layout=\([0-9]*\).*/\1/p' "$setup")
write_script "$tools/python3" <<<'exit 1'
write_script "$tools/nvidia-smi" <<<'exit 0'
mkdir "$checkout/.libtorch"
printf '%s layout=%s\n' "$version" "$layout" >"$checkout/.libtorch/torch-stamp"
printf '%s layout=%s cpu\n' "$version" "$layout" >"$checkout/.libtorch/stamp"
set_up "$setup" --libtorch-only
check "a driver without network goes on with the CPU set" equal "$code" 0
check "and says how to get the rest" contains "$err" "scripts/setup --cuda"
set_up "$setup" --libtorch-only --cuda
check "but CUDA that was asked for and is not there is a failure" equal "$code" 4
printf '%s layout=%s cuda nvcc\n' "$version" "$layout" >"$checkout/.libtorch/stamp"
set_up "$setup" --libtorch-only
check "a finished LibTorch is left alone" equal "$code" 0
check "and fetches nothing" contains "$err" "is there"

printf '%s passed, %s failed\n' "$passed" "$failed"
((failed == 0))
