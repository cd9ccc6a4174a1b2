#!/usr/bin/env bash
# Builds the libFuzzer programs and runs each for a while: scripts/fuzz.sh [SECONDS=60] [NAME...]
# NAME as in fuzz/NAME_fuzz.cc. Found inputs stay in build/fuzz/corpus; a crash leaves its input in build/fuzz.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${1:-60}
shift || true
if [[ ! $seconds =~ ^[0-9]+$ ]]; then
  echo "usage: scripts/fuzz.sh [SECONDS=60] [NAME...]" >&2
  exit 2
fi
jobs=${SNUG_BUILD_JOBS:-$(nproc)}
build=${SNUG_FUZZ_BUILD:-build/fuzz}

cmake --preset fuzz -B "$build" >/dev/null
names=("$@")
if [[ ${#names[@]} -eq 0 ]]; then
  for source in fuzz/*_fuzz.cc; do names+=("$(basename "$source" _fuzz.cc)"); done
fi
cmake --build "$build" -j "$jobs" --target "${names[@]/%/_fuzz}"

failed=()
for name in "${names[@]}"; do
  seeds=fuzz/corpus/$name
  found=$build/corpus/$name
  mkdir -p "$found"
  folders=("$found")
  if [[ -d $seeds ]]; then folders+=("$seeds"); fi
  echo "== $name: $seconds s"
  log=$build/$name.log
  if "$build/bin/${name}_fuzz" -max_total_time="$seconds" -max_len=65536 -rss_limit_mb=512 -timeout=10 \
      -artifact_prefix="$build/$name-" -print_final_stats=1 "${folders[@]}" >"$log" 2>&1; then
    grep -E "^stat::(number_of_executed_units|peak_rss_mb)|DONE" "$log" || true
  else
    tail -n 40 "$log"
    failed+=("$name")
  fi
done
if [[ ${#failed[@]} -gt 0 ]]; then
  echo "failed: ${failed[*]} (logs and inputs in $build)" >&2
  exit 1
fi
echo "no crash, no leak, no timeout: ${names[*]}"
