#!/bin/sh
# Times the networks of this folder with a benchmark tool of the device, where there is no Python, and writes
# results.json. Each network is timed in turns with the unpruned network.
#
# Usage: BENCH='./bench' VERSION=1.2 [TURNS=20] [RESOLUTION=1e-6] sh runner.sh
#
# BENCH is a command that is given a file and prints the seconds of one batch, and nothing else. VERSION is that of the
# runtime, RESOLUTION the smallest difference in what BENCH prints. If the program is stopped, the same command continues.
set -eu
: "${BENCH:?is a command that prints the seconds of one batch of a file}" "${VERSION:?is that of the runtime}"
TURNS=${TURNS:-20}
RESOLUTION=${RESOLUTION:-1e-6}
cd "$(dirname "$0")"
field() { sed -n "s/^ *\"$1\": \"\([^\"]*\)\".*/\1/p" manifest.json; }
original=$(field file | head -n 1)
machine="$(uname -nm | tr -d '"\\')"
sha256sum -c SHA256SUMS > checked.txt || { grep -v ': OK$' checked.txt; echo 'Copy the whole folder again.'; exit 1; }
touch turns.txt
for file in $(field file | tail -n +2); do
  [ "$(grep -c "^$file " turns.txt || true)" -ge "$TURNS" ] && continue
  for turn in $(seq "$TURNS"); do
    first=$($BENCH "$original")
    second=$($BENCH "$file")
    echo "$file $first $second" >> turns.txt
  done
done
{
  printf '{"format": 1, "kind": "%s", ' "$(field kind | head -n 1)"
  printf '"manifest": "%s", ' "$(sha256sum manifest.json | cut -d' ' -f1)"
  printf '"runtime": "%s", "version": "%s", ' "$(field runtime)" "$VERSION"
  printf '"machine": "%s", "clock_resolution": %s, "networks": {' "$machine" "$RESOLUTION"
  separator=''
  for file in $(field file | tail -n +2); do
    printf '%s"%s": {"sha256": "%s", ' "$separator" "$file" "$(sha256sum "$file" | cut -d' ' -f1)"
    turns=$(awk -v f="$file" '$1 == f { printf "%s[%s, %s]", (n++ ? ", " : ""), $2, $3 }' turns.txt)
    printf '"repeats": [1, 1], "turns": [%s]}' "$turns"
    separator=', '
  done
  printf '}}\n'
} > results.json.part
mv results.json.part results.json
