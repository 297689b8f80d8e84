#!/usr/bin/env bash
# Citations of docs/spec: `attention-core 3.5`, or several sections of one document, `lra-recipe 5.2, 5.4 and 6`. Each names a
# section that is there, and each section that is there is cited, by itself or with the one above it.
set -uo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.."

documents=$(basename -s .md docs/spec/*.md | paste -sd '|')
number='[0-9]+(\.[0-9]+)*'
sections=$(grep -oE "^#+ $number" docs/spec/*.md | sed -E 's,^docs/spec/(.*)\.md:#+,\1,')
failed=0 cited=''
offence() {
  failed=$((failed + 1))
  printf 'FAILED: %s\n' "$1"
}

# A name behind a slash is part of a path. Lines are joined without their comment signs: citations may be broken.
while read -r file; do
  text=$(sed -E 's@^[[:space:]]*(//|#)?[[:space:]]*@@' "$file" | tr '\n' ' ')
  while read -r document rest; do
    [[ -n $rest ]] || offence "$file names $document without a section"
    for section in $(grep -oE "$number" <<<"$rest"); do
      grep -qxF "$document $section" <<<"$sections" || offence "$file cites $document $section, which is not in docs/spec"
      [[ $file == docs/spec/* ]] || cited+="$document $section"$'\n'
    done
  done < <(grep -oE "(^|[^/A-Za-z0-9-])($documents)( $number((,| and|, and) $number)*)?" <<<"$text" | sed -E 's/^[^a-z]//')
  # What looks like a citation of a document that nobody has.
  while read -r unknown; do
    offence "$file cites $unknown, and docs/spec has no such document"
  done < <(grep -oE "[(;] ?[a-z]+(-[a-z]+)+ $number[),;]" <<<"$text" | tr -d '(),;' | sed 's/^ //' | grep -vE "^($documents) ")
done < <(grep -rlIE "[a-z]-[a-z]+ [0-9]|$documents" src tests apps scripts cmake datasets experiments docs ./*.md CMakeLists.txt |
  grep -vE 'citations_test\.sh$|\.(tsv|csv|ts)$')

while read -r document section; do
  grep -qE "^$document ${section//./\\.}\." <<<"$sections" && continue  # a heading over others
  over=$section
  until grep -qxF "$document $over" <<<"$cited"; do
    [[ $over == *.* ]] || { offence "nobody cites $document $section or what stands over it" && break; }
    over=${over%.*}
  done
done <<<"$sections"

printf '%d citations, %d sections, %d failed\n' "$(grep -c . <<<"$cited")" "$(wc -l <<<"$sections")" "$failed"
[[ $failed -eq 0 ]]
