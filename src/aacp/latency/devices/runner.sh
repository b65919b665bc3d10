#!/bin/sh
# Times the networks of this folder with the benchmark tool of the runtime, where there is no Python, and writes
# results.json. Each network is timed in turns with the unpruned network.
#
# Usage: VERSION=1.2 [TOOL=./benchmark_app] [TURNS=20] [BATCHES=50] [RESOLUTION=1e-6] sh runner.sh
#        BENCH='./bench' VERSION=1.2 [TURNS=20] [RESOLUTION=1e-6] sh runner.sh
#
# VERSION is the version of the runtime. TOOL is onnxruntime_perf_test, benchmark_app (OpenVINO), executor_runner (ExecuTorch) or
# benchncnn (ncnn): a path from this folder; if it is not given, the tool is found by its name. For another runtime, BENCH
# is a command that is given a file and prints the seconds of one batch, and nothing else. BATCHES are run in each call of
# a tool, RESOLUTION is the smallest difference in what it prints, in seconds. If the program is stopped, the same command
# continues; with more TURNS it adds turns. Without results.json, all turns are made again.
set -eu
: "${VERSION:?is needed: the version of the runtime}"
TURNS=${TURNS:-20}
BATCHES=${BATCHES:-50}
cd "$(dirname "$0")"
field() { sed -n "s/^ *\"$1\": \"\([^\"]*\)\".*/\1/p" manifest.json; }
number() { sed -n "s/^ *\"$1\": \([0-9]*\),.*/\1/p" manifest.json | head -n 1; }
stop() { echo "$1" >&2; exit 1; }
runtime=$(field runtime)
threads=$(number threads)
known=$(field version)
[ -z "$known" ] || [ "$known" = "$VERSION" ] ||
  stop "The latency table is of $runtime $known, but this is $VERSION. Install that version, or measure a new table."

# Prints the shapes of the inputs in a file of ncnn as width, height and channels: [32,32,3],[8]
shapes() {
  awk '$1 == "Input" {
    sizes = ""
    for (i = 6; i <= NF; i++) { sub(/.*=/, "", $i); sizes = sizes (sizes ? "," : "") $i }
    printf "%s[%s]", (inputs++ ? "," : ""), sizes
  }' "$1"
}

# Prints the seconds of one batch of a file.
bench() {
  if [ -n "${BENCH:-}" ]; then
    $BENCH "$1"
    return
  fi
  case "$runtime" in
    onnxruntime) # P50 Latency: 0.0603562 s
      "${TOOL:-onnxruntime_perf_test}" -I -m times -r "$BATCHES" -x "$threads" -y 1 "$1" |
        awk '/^P50 Latency:/ { print $3 }' ;;
    openvino) # [ INFO ]    Median:        1.23 ms
      "${TOOL:-benchmark_app}" -m "$1" -d CPU -api sync -hint none -nstreams 1 -nthreads "$threads" -pin NO \
        -infer_precision f32 -niter "$BATCHES" |
        awk '/ Median: / { print $(NF - 1) * ($NF == "us" ? 1e-6 : 1e-3) }' ;;
    executorch) # Model executed successfully 50 time(s) in 61.500000 ms.
      "${TOOL:-executor_runner}" --model_path="$1" --num_executions="$BATCHES" --cpu_threads="$threads" 2>&1 |
        awk '/Model executed successfully/ { sub(/.* in /, ""); print $1 * 1e-3 / n }' n="$BATCHES" ;;
    ncnn) #       timed.param  min =    1.10  max =    1.32  avg =    1.15
      # benchncnn allows numbers of 16 bits. 31=7 forbids them to a layer, so that it runs in float32 as elsewhere.
      awk 'NR > 2 && NF { $0 = $0 " 31=7" } { print }' "$1" > timed.param
      "${TOOL:-benchncnn}" "$BATCHES" "$threads" 0 -1 0 param=timed.param shape="$(shapes "$1")" 2>&1 |
        awk '/ avg = / { print $NF * 1e-3 }' ;;
  esac
}

case "${BENCH:+own}$runtime" in
  own*) RESOLUTION=${RESOLUTION:-1e-6} ;;
  onnxruntime)
    [ "$(number batch)" = 1 ] || stop "onnxruntime_perf_test runs batches of 1 here. Use runner.py, or give BENCH."
    RESOLUTION=${RESOLUTION:-1e-8} ;;
  openvino | ncnn) RESOLUTION=${RESOLUTION:-1e-5} ;;
  executorch) RESOLUTION=${RESOLUTION:-1e-8} ;;
  *) stop "runner.sh knows no benchmark tool of $runtime. Give a command that prints the seconds of one batch as BENCH." ;;
esac
sha256sum -c SHA256SUMS > checked.txt || stop "$(grep -v ': OK$' checked.txt) Copy the whole folder again."
original=$(field file | head -n 1)
# The name that runner.py gives to this machine: the processor, the number of cores and the system.
processor=$(tr -d '\0' 2>/dev/null < /proc/device-tree/model || true)
[ -n "$processor" ] || processor=$(sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo | head -n 1 | sed 's/ *$//')
cores=$(grep -c '^processor[^a-zA-Z]*:' /proc/cpuinfo || true)
machine=$(printf '%s, %s cores, %s' "${processor:-$(uname -m)}" "$cores" "$(uname -sm)" | tr -d '"\\')
# The turns belong to one folder, version and machine; those of others begin again.
conditions="# $(sha256sum manifest.json | cut -d' ' -f1) $VERSION, $machine"
turns_of() { grep -c "^$1 " turns.txt || true; }
are_complete() {
  for file in $(field file | tail -n +2); do [ "$(turns_of "$file")" -ge "$TURNS" ] || return 1; done
}
[ "$(head -n 1 turns.txt 2>/dev/null)" = "$conditions" ] || echo "$conditions" > turns.txt
if [ ! -e results.json ] && are_complete; then echo "$conditions" > turns.txt; fi
for file in $(field file | tail -n +2); do
  for turn in $(seq "$(($(turns_of "$file") + 1))" "$TURNS"); do
    first=$(bench "$original")
    second=$(bench "$file")
    [ -n "$first" ] && [ -n "$second" ] || stop "The tool printed no time for $original or $file. Try it by hand, or give BENCH."
    echo "$file $first $second" >> turns.txt
  done
done
{
  printf '{"format": 1, "kind": "%s", ' "$(field kind | head -n 1)"
  printf '"manifest": "%s", ' "$(sha256sum manifest.json | cut -d' ' -f1)"
  printf '"runtime": "%s", "version": "%s", ' "$runtime" "$VERSION"
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
