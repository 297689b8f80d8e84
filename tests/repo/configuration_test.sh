#!/usr/bin/env bash
# Tests of cmake/: flags for a LibTorch whose path has a blank, and which of several CUDA compilers is taken. Nothing of the
# program is compiled; LibTorch and the compilers are stand-ins.
set -uo pipefail

repo=$(cd -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
. "$(dirname -- "${BASH_SOURCE[0]}")/checks.sh"
place="$work/a place" torch="$work/a place/libtorch"
mkdir -p "$place" "$torch"/{lib,include/torch/headeronly,include/torch/csrc/api/include} "$work"/{old,new,newer}
touch "$torch"/lib/{libtorch_cpu,libc10}.so
printf '#define TORCH_VERSION_%s\n' 'MAJOR 2' 'MINOR 11' 'PATCH 0' >"$torch/include/torch/headeronly/version.h"
echo 'constexpr int kOf = 1;' >"$torch/include/of_libtorch.h"
echo 'constexpr int kOfApi = 1;' >"$torch/include/torch/csrc/api/include/of_api.h"
printf '#include "of_libtorch.h"\n#include "of_api.h"\nint f() { return kOf + kOfApi; }\n' >"$place/uses.cpp"

compiler() { # FOLDER RELEASE
  printf '#!/bin/sh\necho "Cuda compilation tools, release %s, V%s.88"\n' "$2" "$2" >"$work/$1/nvcc"
  chmod +x "$work/$1/nvcc"
}
compiler old 12.4
compiler new 13.0
compiler newer 13.1

configure() { # TEXT of CMakeLists.txt, then words for env
  printf 'cmake_minimum_required(VERSION 3.25)\nproject(test LANGUAGES C CXX)\nlist(APPEND CMAKE_MODULE_PATH "%s/cmake")\n%s\n' "$repo" "$1" \
    >"$place/CMakeLists.txt"
  shift
  code=0
  text=$(env "$@" cmake -S "$place" -B "$place/build" -DXFORMER_LIBTORCH="$torch" 2>&1) || code=$?
}

configure $'include(LibTorch)\nadd_library(uses OBJECT uses.cpp)\ntarget_link_libraries(uses PRIVATE libtorch)'
check "a LibTorch whose path has a blank is taken" equal "$code" 0
text=$(cmake --build "$place/build" 2>&1)
code=$?
check "and its headers are found" equal "$code" 0

# The stand-in for LibTorch has no CUDA: where a compiler fits, that is what is missing.
plugin='include(CudaPlugin)
message(STATUS "taken: ${XFORMER_NVCC}")'
rm -rf "$place/build"
configure "$plugin" -u CUDACXX PATH="$work/old:$PATH:$work/new"
check "CUDA 12 on PATH does not hide a CUDA 13 behind it" contains "$text" "is a LibTorch without CUDA"
check "and is not the one that is taken" equal "$([[ $text == *"taken: $work/old/"* ]] && echo old)" ""
rm -rf "$place/build"
configure "$plugin" CUDACXX="$work/newer/nvcc" PATH="$work/old:$PATH"
check "the compiler that CUDACXX names comes first" contains "$text" "taken: $work/newer/nvcc"
compiler newer 12.9
configure "$plugin" CUDACXX="$work/new/nvcc" PATH="$work/old:$PATH"
check "one that fits no more is looked for anew" contains "$text" "taken: $work/new/nvcc"

echo "$passed checks passed, $failed failed"
((failed == 0))
