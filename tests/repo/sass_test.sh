#!/usr/bin/env bash
# usage: sass_test.sh FOLDER [TOOLS]   the machine code of the plugin's kernels (FOLDER/**/*.o, for every architecture) is what
# their source means: matrix units where tiles are multiplied, accesses of sixteen bytes where runs are read and written,
# nothing in local memory, and no kernel that writes nothing. Skips where cuobjdump or nvdisasm is neither on the path nor in
# the folders TOOLS (a:b), where scripts/python-packages puts them, and `scripts/setup --cuda` with the compiler (wheels
# nvidia-cuda-cuobjdump and nvidia-cuda-nvdisasm).
set -euo pipefail

PATH=$PATH:/usr/local/cuda/bin${2:+:$2}
for tool in cuobjdump nvdisasm; do
  command -v $tool >/dev/null || { echo "sass: there is no $tool here"; exit 77; }
done
objects=$(find "$1" -name '*.o' 2>/dev/null | sort || true)
[[ -n $objects ]] || { echo "sass: the plugin is not built here"; exit 77; }

failed=0
for object in $objects; do
  # Of each kernel and architecture: how often what it does with memory and matrix units stands in it.
  counts=$(cuobjdump -sass "$object" | awk '
    /^[ \t]*arch = / { arch = $3 }
    /Function :/ { name = arch " " $3; kernels[name] = 1 }
    { for (i = 1; i <= 4 && i <= NF; i++) {
        # LD: of an address that a block found in its shared memory.
        if ($i ~ /^LDG?\.E\.128/ || $i ~ /^LDGSTS\..*\.128/) wide_loads[name]++
        if ($i ~ /^STG\.E\.128/) wide_stores[name]++
        if ($i ~ /^STG\./) stores[name]++
        if ($i ~ /^(LDL|STL)/) local_memory[name]++
        if ($i ~ /^HMMA/) products[name]++ } }
    END { for (name in kernels) print name, wide_loads[name] + 0, wide_stores[name] + 0, stores[name] + 0,
                                      local_memory[name] + 0, products[name] + 0 }')
  [[ -n $counts ]] || { echo "sass: $object has no kernel"; failed=1; }
  while read -r arch name wide_loads wide_stores stores local_memory products; do
    say() { echo "sass: $arch ${object#"$1"/} $name: $2"; failed=1; }
    ((local_memory == 0)) || say "$1" "$local_memory accesses of local memory"
    ((stores > 0)) || say "$1" "writes nothing"
    # Numbers that lie apart, a few for each block.
    [[ $name == *GradientNormEnd* || $name == *KeyLargest* || $name == *Winner* || $name == *FeatureScan* || $name == *HashedOrder* ||
       $name == *CrossEntropy* || $name == *Classifier* || $name == *StepSums* || $name == *PartSums* || $name == *SetMax* || $name == *RunningMax* ]] && continue
    ((wide_loads > 0)) || say "$1" "no load of sixteen bytes"
    [[ $name != *ProductKind* || $name == *PlaneProgram* ]] || ((products > 0)) || say "$1" "no product on matrix units"
    [[ $name == *Attention* || $name == *TokenMeanForward* || $name == *Feature* || $name == *Causal* || $name == *GradientNorm* || $name == *PlaneMaxima* || $name == *KernelGradient* || $name == *Mixture* || $name == *MixedToken* || $name == *HashBuckets* ]] || ((wide_stores > 0)) || say "$1" "no store of sixteen bytes"
  done <<<"$counts"
  echo "sass: $(wc -l <<<"$counts") kernels in ${object#"$1"/}"
done
((failed == 0))
