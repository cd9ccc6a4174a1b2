#!/usr/bin/env bash
# What a machine with an NVIDIA GPU should show: the tests that need one, then the speed of the cases that matter.
#
#   scripts/gpu-check.sh             builds the preset cuda where it stands
#   scripts/gpu-check.sh BUILD_DIR   takes a build made elsewhere (its snug and the tests in its bin/)
set -euo pipefail
cd "$(dirname "$0")/.."

build=${1:-}
if [[ -z $build ]]; then
  scripts/build.sh cuda
  build=build/cuda
fi
if [[ ! -x $build/snug ]]; then
  echo "gpu-check: $build/snug is not there; give the folder of a build of the preset cuda" >&2
  exit 2
fi

failed=0
if [[ -f $build/CTestTestfile.cmake ]] && command -v ctest >/dev/null; then
  ctest --test-dir "$build" --label-regex gpu --output-on-failure || failed=1
else
  for test in test_cuda_kernels test_cuda_engine test_golden; do
    if [[ -x $build/bin/$test ]]; then
      SNUG_TEST_DEVICE=cuda "$build/bin/$test" --gtest_brief=1 || failed=1
    else
      echo "gpu-check: $build/bin/$test is not there and was not run" >&2
    fi
  done
fi

# Attention by itself, and the matrix units' ceiling. Reading memory is measured beside each row below as well.
printf '\n'
tflops=
if [[ -x $build/bin/cuda_attention_bench ]]; then
  attention=$("$build/bin/cuda_attention_bench") || failed=1
  printf '%s\n' "$attention"
  tflops=$(sed -n 's/.*ceilings: \([0-9]*\) TFLOP.*/\1/p' <<<"$attention")
else
  echo "gpu-check: $build/bin/cuda_attention_bench is not there: no rows of attention, no ceiling of prefill" >&2
fi
printf '\n%-24s %7s %6s %6s  %10s %14s %5s\n' model prompt new batch 'tok/s' achieved ratio
row() {  # MODEL PROMPT GENERATE BATCH WHAT
  local json
  json=$("$build/snug" bench "$1" --device cuda --prompt "$2" --generate "$3" --batch "$4" --json --quiet) || {
    printf '%-24s %7s %6s %6s  failed: %s\n' "$1" "$2" "$3" "$4" "$json"
    failed=1
    return
  }
  python3 - "$@" "$tflops" "$json" <<'PY'
import json, sys
model, prompt, generate, batch, what, tflops, result = sys.argv[1:]
r = json.loads(result)
for kind in what.split("+"):
    if kind == "memory":
        seen, ledger, plan = (r["memory"]["gpu0_in_use"], r["memory"]["peak"]["gpu0"], r["memory"]["predicted"]["gpu0"])
        print(f"  device memory, MiB: NVML {seen / 2**20:.1f}, ledger {ledger / 2**20:.1f} "
              f"({100 * (ledger / seen - 1):+.2f} %), plan {plan / 2**20:.1f}")
        continue
    if kind == "decode":
        rate, achieved, unit, roof = r["decode_tok_s"], r["achieved"]["GBps"], "GB/s", r["ceiling"]["GBps"]
    else:
        rate, achieved, unit, roof = r["prefill_tok_s"], r["achieved"]["TFLOPs"], "TFLOP/s", float(tflops or 0)
    print(f"{model:24} {prompt:>7} {generate:>6} {batch:>6}  {rate:10.1f} {achieved:6.0f} {unit:7} {f'{achieved / roof:5.2f}' if roof else '    -'}")
PY
}
row random:qwen2.5-7b 512 64 1 decode
row random:qwen2.5-7b:q8_0 512 64 1 decode
row random:qwen2.5-7b:q4_0 512 64 1 decode
row random:qwen2.5-7b:q4_k_m 512 64 1 decode
row random:qwen2.5-7b 512 32 32 decode
row random:qwen2.5-7b 4096 4 1 prefill
row random:qwen2.5-7b 32764 4 1 prefill+decode+memory
row random:qwen2.5-7b:q4_0 4096 4 1 prefill
exit $failed
