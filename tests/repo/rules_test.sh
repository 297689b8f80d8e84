#!/usr/bin/env bash
# Rules about the tree itself: layers, what may be included where, file length, README against the program.
# usage: rules_test.sh PROGRAM
set -uo pipefail

program=$1
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.."
passed=0 failed=0

# check CLAIM OFFENDERS: passes when there are none.
check() {
  if [[ -z $2 ]]; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    printf 'FAILED: %s\n%s\n' "$1" "$2"
  fi
}

# What each layer may include (docs/architecture.md, Layers): its own folder and these.
declare -A may=(
  [core]=''
  [readers]='core'
  [reporting]='core'
  [data]='readers core'
  [tensor]='readers core'
  [kernels]='tensor core'
  [attention]='kernels tensor core'
  [models]='attention kernels tensor core'
  [tasks]='models attention data readers tensor kernels core'
  [plan]='tasks models attention data readers tensor kernels core'
  [training]='plan tasks models attention data readers tensor kernels core'
  [measure]='training plan tasks models attention data readers tensor kernels core'
  [inspect]='training plan tasks models attention data readers tensor kernels core'
  [analysis]='inspect training plan tasks models attention data readers tensor kernels core'
  [sweep]='training plan tasks models attention data readers tensor kernels core'
  [cuda]='tensor core'
  [cli]='readers reporting core'
  [engine]='cli analysis sweep inspect measure training plan tasks models attention data readers reporting tensor kernels core'
)

offenders=''
for folder in src/*/; do
  layer=$(basename "$folder")
  if [[ -z ${may[$layer]+known} ]]; then
    offenders+="$folder is a layer that this test does not know"$'\n'
    continue
  fi
  allowed=$(tr ' ' '|' <<<"$layer ${may[$layer]}")
  offenders+=$(grep -rnE '^#include "[a-z_]+/' "$folder" --include='*.h' --include='*.cpp' |
    grep -vE "#include \"(${allowed%|})/|XFORMER_DESCRIBE|\.inc\"" || true)
done
check 'an include only points to layers below' "${offenders%$'\n'}"

check 'core, readers, reporting, data and cli know nothing of LibTorch' \
  "$(grep -rnE '#include <(torch|ATen|c10)/' src/core src/readers src/reporting src/data src/cli)"
check 'nobody includes torch/torch.h' "$(grep -rn 'torch/torch\.h>' src tests apps --include='*.h' --include='*.cpp')"
check 'sources and tests have at most 400 lines' \
  "$(find src apps tests \( -name '*.h' -o -name '*.cpp' \) -exec wc -l {} + | awk '$1 > 400 && $2 != "total"')"
check 'a file opens with what it is' \
  "$(find src apps tests -name '*.h' | while read -r file; do head -n 1 "$file" | grep -q '^// ' || echo "$file"; done)"
check 'every attention family has its test' \
  "$(for file in src/attention/variants/*.cpp src/attention/decorators/*.cpp; do
       name=$(basename "$file" .cpp); [[ -f tests/attention/${name}_test.cpp ]] || echo "$file has no tests/attention/${name}_test.cpp"
     done)"
check 'every dataset has its folder under datasets/' \
  "$(for file in src/data/adapters/*.cpp; do
       name=$(basename "$file" .cpp | tr _ -); [[ -f datasets/$name/manifest.json && -f datasets/$name/README.md ]] || echo "$file"
     done)"

check 'a protocol is named like its file' \
  "$(for file in protocols/*.json; do grep -q "^  \"name\": \"$(basename "$file" .json)\"," "$file" || echo "$file"; done)"

# The tables of README between the markers are what the program prints.
table() { sed -n "/<!-- begin $1 -->/,/<!-- end $1 -->/p" README.md | sed '1d;$d'; }
for what in attentions models tasks; do
  check "README's table of $what is what \`xformer list $what --markdown\` prints" \
    "$(diff <(table "$what") <("$program" list "$what" --markdown))"
done

check 'lines of README fit a window of 100 columns, rows of tables one of 130' \
  "$(awk 'length($0) > (/^\|/ ? 130 : 100)' README.md)"

# Every `xformer ...` line in README's code blocks parses: --help of its verb knows its options.
check 'the options that README shows exist' \
  "$(grep -oE '^\./xformer [a-z]+ [^|#]*' README.md | while read -r _ verb rest; do
       help=$("$program" "$verb" --help 2>&1; [[ ! $verb =~ ^(data|plot)$ ]] || "$program" "$verb" "${rest%% *}" --help 2>&1)
       grep -oE -- '--[a-z-]+' <<<"$rest" | while read -r option; do
         grep -q -- "$option" <<<"$help" || echo "xformer $verb has no $option"
       done
     done)"

# What README says of the committed run is what its record says.
record=$(find results/runs/mrsformer/table-9-listops/listops/linformer -name record.json)
number() { sed -nE "s/^  \"$1\": ([0-9.e+-]+),?$/\1/p" "$record"; }
check 'README gives the accuracy and chance of the committed record' \
  "$(for key in accuracy chance; do
       value=$(printf '%.4f' "$(number $key)"); grep -q "$value" README.md || echo "$key $value is not in README.md"
     done)"
check 'the committed record is of clean code' "$(grep -L '"dirty": false' "$record")"

printf '%d passed, %d failed\n' "$passed" "$failed"
[[ $failed -eq 0 ]]
