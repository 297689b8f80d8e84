#!/usr/bin/env bash
# Compiles docs/own_attention_cpp and a skeleton outside the tree, with the CMake package of the build, and trains with
# them. usage: own_attention_test.sh BUILD
set -uo pipefail

build=$1
repo=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
. "$(dirname -- "${BASH_SOURCE[0]}")/checks.sh"
cd "$work"
export XFORMER_CACHE=$work/cache OMP_WAIT_POLICY=passive
differ() { [[ $1 != "$2" ]]; }
# Leaves $code and $text.
run() {
  code=0
  text=$("$@" 2>&1 </dev/null) || code=$?
}
compile() { # FOLDER; without optimiser, which asks for more of the program's functions
  run cmake -S "$1" -B "$1/build" -G Ninja -Dxformer_DIR="$build" -DCMAKE_BUILD_TYPE=None
  [[ $code != 0 ]] || run cmake --build "$1/build"
}
tiny=(--task listops --device cpu --threads 1 --batch 4 --set model.dim=16 model.head_dim=8 model.ff_dim=16 data.min_length=5
  data.max_length=30 data.train_examples=16 data.dev_examples=4 data.test_examples=4)

# Whatever a library may call of the program is there.
exported=$(nm -D --defined-only "$build/xformer-engine" | awk '{ print $3 }' | sort -u)
for layer in core readers tensor kernels attention; do
  declared=$(nm --defined-only "$build/libxformer_$layer.a" | awk '$2 == "T" && $3 ~ /^_ZNK?7xformer/ { print $3 }' | sort -u)
  check "every function of $layer is exported" equal "$(comm -23 <(printf '%s\n' "$declared") <(printf '%s\n' "$exported"))" ""
done

cp -r "$repo/docs/own_attention_cpp" own
compile own
check "the example compiles" equal "$code" 0
check "nothing of the program is linked into it" equal \
  "$(readelf -d own/build/libhydra.so | sed -nE 's/.*NEEDED.*\[(.*)\]/\1/p' | grep -vE '^lib(stdc\+\+|m|gcc_s|c)\.so')" ""
cp own/build/libhydra.so .
for name in plugin:libhydra.so mrs-plugin:./libhydra.so; do
  out=${name%plugin*}run
  run "$build/xformer" train --model "$name" "${tiny[@]}" --steps 3 --out "$out"
  check "$name trains" equal "$code" 0
  check "to a record" contains "$(cat "$out/record.json")" '"status": "completed"'
done
hash=$(sha256sum libhydra.so | cut -d' ' -f1)
check "the file is part of the plan" contains "$(cat run/plan.json)" "$hash"
run "$build/xformer" describe plugin:libhydra.so
check "it describes itself" contains "$code $text" "Hydra attention"
check "with its options" contains "$text" "epsilon"
run "$build/xformer" check libhydra.so --length 32 --device cpu --threads 1
check "and is fit" contains "$code $text" "fit: xformer train --model plugin:libhydra.so"
run "$build/xformer" bench --models plugin:libhydra.so --lengths 32 --batch 1 --device cpu --threads 1 --no-baseline
check "it is timed" contains "$code $text" "plugin:libhydra.so"
run "$build/xformer" eval run
check "the run is evaluated with its file" equal "$code" 0

# Another file under the name, and one for another program.
sed -i 's/double epsilon = 1e-6/double epsilon = 1e-5/' own/hydra.cpp
compile own
cp own/build/libhydra.so .
check "another source is another file" differ "$hash" "$(sha256sum libhydra.so | cut -d' ' -f1)"
run "$build/xformer" eval run
check "a run refuses another file" equal "$code" 2
check "by its hash" contains "$text" "sha256"
interface=$(strings libhydra.so | sed -n 's/^xformer attention interface: headers \([0-9a-f]*\),.*/\1/p')
LC_ALL=C sed -i "s/$interface/0123456789abcdef/" libhydra.so
run "$build/xformer" train --model plugin:libhydra.so "${tiny[@]}" --steps 3
check "a library of another program is refused" equal "$code" 3
check "with both interfaces" contains "$text" "with headers 0123456789abcdef"
check "and what to do" contains "$text" "this program has headers $interface"

# A skeleton alone, under the name of an attention of the program: the file's own is taken.
run "$build/xformer" new attention my-mixer --mixer --alone
check "a project of one's own is written" equal "$code" 0
mv my_mixer/my_mixer.cpp my_mixer/luna.cpp
sed -i 's/my_mixer/luna/g' my_mixer/luna.cpp my_mixer/CMakeLists.txt
compile my_mixer
check "it compiles" equal "$code" 0
run "$build/xformer" describe plugin:my_mixer/build/libluna.so
check "a name of the program's is no other's" contains "$code $text" "My Mixer"
run "$build/xformer" train --model plugin:my_mixer/build/libluna.so "${tiny[@]}" --steps 3 --out mixer
check "a mixer trains" equal "$code" 0
run "$build/xformer" train --model mrs-plugin:my_mixer/build/libluna.so "${tiny[@]}" --steps 3
check "and has no mrs- form" contains "$code $text" "owns its projections"

mkdir -p old/include/torch/headeronly
printf '#define TORCH_VERSION_MAJOR 2\n#define TORCH_VERSION_MINOR 9\n' >old/include/torch/headeronly/version.h
run cmake -S own -B refused -Dxformer_DIR="$build" -DXFORMER_LIBTORCH="$work/old"
check "headers of another LibTorch are refused" contains "$code $text" "is LibTorch 2.9; this program was built for 2.11"

printf '%s passed, %s failed\n' "$passed" "$failed"
((failed == 0))
