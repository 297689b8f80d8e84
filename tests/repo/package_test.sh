#!/usr/bin/env bash
# Packs the build and runs the package from another place with nothing but LibTorch: what it needs, what its launcher finds
# and says. usage: package_test.sh BUILD
set -uo pipefail

build=$1
repo=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd)
libtorch=$(sed -n 's/^XFORMER_LIBTORCH:PATH=//p' "$build/CMakeCache.txt")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
. "$(dirname -- "${BASH_SOURCE[0]}")/checks.sh"
at_most() { (($1 <= $2)); }
# Runs a command with nothing of this environment; leaves $code and $text.
bare() {
  code=0
  text=$(cd / && env -i PATH="$work/tools:/usr/bin:/bin" HOME="$work" XFORMER_CACHE="$work/cache" "$@" 2>&1 </dev/null) || code=$?
}
mkdir "$work/tools"
printf '#!/bin/sh\nexit 1\n' >"$work/tools/python3"
chmod +x "$work/tools/python3"

bare bash -c 'umask 077; exec "$@"' - "$repo/scripts/package" --build "$build" --out "$work/made/xformer/"
check "a finished build can be packed" equal "$code" 0
[[ $code == 0 ]] || exit 1
check "its size is told" contains "$text" "limit 40 MB"
mv "$work/made/xformer" "$work/elsewhere"
package=$work/elsewhere
check "everybody may read it, whatever the umask" equal "$(find "$package" ! -type l ! -perm -004)" ""
check "it has at most 40 MB" at_most "$(du -sb "$package" | cut -f1)" 40000000
check "the archive holds the same files" equal "$(tar -tzf "$work/made/xformer.tar.gz" | grep -cv '/$')" "$(find "$package" ! -type d | wc -l)"
for file in README bin/xformer bin/xformer-engine bin/catalogue.json include/xformer/attention/interface.inc \
  lib/libstdc++.so.6 lib/libxformer_pieces.so share/licenses/xformer share/licenses/libfmt9 scripts/gpu-check share/xformer/skeletons/core.cpp.in \
  share/bash-completion/completions/xformer share/zsh/site-functions/_xformer share/fish/vendor_completions.d/xformer.fish; do
  check "it holds $file" test -s "$package/$file"
done
[[ -f $build/libxformer_cuda.so ]] && check "it holds the plugin" test -s "$package/lib/libxformer_cuda.so"
check "no library comes without a licence" equal "$(ls "$package/share/licenses" | wc -l)" \
  "$(($(ls "$package/lib" | grep -vcE "xformer_(cuda|pieces)|sentencepiece_train") + 7))" # two share one; ours, and of six that are compiled or linked in

texts() { find "$1" "$package/share/licenses" -type f -size +0; }
check "every licence has its text" equal "$(texts -L | wc -l)" "$(ls "$package/share/licenses" | wc -l)"
check "and no text is there twice" equal "$(texts -P | xargs sha1sum | cut -d' ' -f1 | sort | uniq -d)" ""

run_paths=$(for file in "$package"/bin/* "$package"/lib/*; do readelf -d "$file" | sed -nE 's/.*(RPATH|RUNPATH).*\[(.*)\]/\2/p'; done)
check "run paths are relative" equal "$(tr ':' '\n' <<<"$run_paths" | grep -v '^\$ORIGIN')" ""
check "and the program has one" contains "$run_paths" '$ORIGIN/../lib'
outside() { # FILE: libraries that are neither the package's, nor LibTorch's (or CUDA's, which come with it), nor the C library's
  LD_LIBRARY_PATH=$libtorch/lib ldd "$1" | awk '{ print $1, $3 }' | grep -vE "^(linux-vdso|/lib64/ld-linux|libcu|libnv|libnccl)" |
    grep -vE '^lib(c|m|dl|rt|pthread|util)\.so' | while read -r name path; do
    [[ $(readlink -f -- "$path") == "$(readlink -f -- "$package")"/lib/* || $path == "$libtorch"/* ]] || echo "$name $path"
  done
}
check "the program takes nothing from elsewhere" equal "$(outside "$package/bin/xformer")$(outside "$package/bin/xformer-engine")" ""
check "who asks about names loads no LibTorch" equal "$(readelf -d "$package/bin/xformer" | grep -c "libtorch\|libc10")" 0
[[ -f $package/lib/libxformer_cuda.so ]] && check "nor does the plugin" equal "$(outside "$package/lib/libxformer_cuda.so")" ""

bare XFORMER_LIBTORCH="$libtorch" "$package/xformer" list
check "it runs from another place" equal "$code" 0
check "and knows what it can do" contains "$text" "mrs-linformer"
tiny=(--device cpu --threads 1 --batch 4 --steps 3 --set model.dim=16 model.head_dim=8 model.ff_dim=16 data.min_length=5
  data.max_length=30 data.train_examples=16 data.dev_examples=4 data.test_examples=4)
bare XFORMER_LIBTORCH="$libtorch/lib" "$package/xformer" train --model linear --task listops "${tiny[@]}" --out "$work/run"
check "it trains, given the library folder alone" equal "$code" 0
check "to a record" contains "$(<"$work/run/record.json")" '"status": "completed"'

# An attention of one's own, compiled with what the package holds.
bare XFORMER_LIBTORCH="$libtorch" cmake -S "$repo/docs/own_attention_cpp" -B "$work/own" -Dxformer_DIR="$package/share/cmake/xformer"
check "its CMake package is found" equal "$code" 0
bare cmake --build "$work/own" --verbose
check "an attention compiles with it" equal "$code" 0
check "with nothing of the tree" equal "$(grep -c -- "$repo/src\|$build/" <<<"$text")" 0
bare XFORMER_LIBTORCH="$libtorch" "$package/xformer" train --model "mrs-plugin:$work/own/libhydra.so" --task listops "${tiny[@]}" \
  --out "$work/own-run"
check "and trains" contains "$code $(cat "$work/own-run/record.json")" '"status": "completed"'
bare XFORMER_LIBTORCH="$libtorch" "$package/xformer" new attention my-core --alone --into "$work/project"
check "a project for it is written" test -s "$work/project/my_core/my_core.cpp"
check "that names it" contains "$text" "-Dxformer_DIR=$package/share/cmake/xformer"
bare PATH=/usr/bin:/bin XFORMER_LIBTORCH="$libtorch" XFORMER_PROGRAM= "$package/scripts/gpu-check" --device cpu --small \
  --part graphs --part ceilings --out "$work/results"
check "its gpu-check finds its program, and what it needs for PyTorch" equal "$code" 0
check "and curves of a CPU to lay its own beside" test -s "$(echo "$package"/results/runs/mrsformer/table-9-listops/listops/linformer/*/0/record.json)"

bare "$package/xformer" list
check "without LibTorch the launcher ends with 4" equal "$code" 4
check "and says which it needs" contains "$text" "LibTorch 2.11"
check "and how to name one" contains "$text" "XFORMER_LIBTORCH"
bare XFORMER_LIBTORCH="$work/tools" "$package/xformer" list
check "a wrong folder is a wrong value" equal "$code" 2
check "it is named" contains "$text" "XFORMER_LIBTORCH=$work/tools"
mkdir -p "$work/old/lib"
touch "$work/old/lib/libtorch_cpu.so" "$work/old/lib/libc10.so"
echo "__version__ = '2.9.1+cu128'" >"$work/old/version.py"
bare XFORMER_LIBTORCH="$work/old" "$package/xformer" list
check "another version ends with 4" equal "$code" 4
check "both are named" contains "$text" "version 2.9.1; this program was built for 2.11"
ln -s "$libtorch" "$package/.libtorch"
bare "$package/xformer" list
check "LibTorch beside the launcher is found" equal "$code" 0
rm "$package/.libtorch"

# A Python torch with its wheels of CUDA beside it; a stand-in for the program tells what it was given.
site=$work/site-packages
mkdir -p "$site"/{torch/lib,nvidia/cu13/lib,nvidia/cudnn/lib}
touch "$site/torch/lib/libtorch_cpu.so" "$site/torch/lib/libc10.so"
echo "__version__ = '2.11.0+cu130'" >"$site/torch/version.py"
printf '#!/bin/sh\necho %s/torch\n' "$site" >"$work/tools/python3"
printf '#!/bin/sh\necho "$LD_LIBRARY_PATH" "$@"\n' >"$package/bin/xformer"
bare LD_LIBRARY_PATH=/before "$package/xformer" one "two words"
check "the torch of python3 is found, with its wheels" \
  contains "$text" "$site/torch/lib:$site/torch/lib/../../nvidia/cu13/lib:$site/torch/lib/../../nvidia/cudnn/lib"
check "what was there stays last, and words arrive" contains "$text" ":/before one two words"

bare "$repo/scripts/package" --build "$work/tools" --out "$work/none"
check "an unfinished build is refused" equal "$code" 3
mkdir "$work/mine"
touch "$work/mine/file"
bare "$repo/scripts/package" --build "$build" --out "$work/mine"
check "a folder that is no package is not replaced" equal "$code$(ls "$work/mine")" 2file

printf '%s passed, %s failed\n' "$passed" "$failed"
((failed == 0))
