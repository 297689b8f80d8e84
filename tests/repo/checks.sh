# Sourced by the tests written in bash: `check CLAIM COMMAND...` counts in $passed and $failed, and on a failure shows what the
# last run left in $code, $text, $out and $err.
passed=0 failed=0

check() { # CLAIM COMMAND...
  local claim=$1
  shift
  if "$@"; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    printf 'FAILED: %s\n  (%s)\n  code %s\n' "$claim" "$*" "${code:-}"
    printf '%s\n' ${text:+"  text: $text"} ${out:+"  stdout: $out"} ${err:+"  stderr: $err"}
  fi
}
equal() { [[ $1 == "$2" ]]; }
contains() { [[ $1 == *"$2"* ]]; }
