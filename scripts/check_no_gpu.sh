#!/usr/bin/env bash
# What a build with the CUDA back end says where no GPU can be used: no driver, a driver that is too old, a driver
# without a GPU. --device auto names the reason and runs on the CPU, --device cuda names it and refuses.
#
#   scripts/check_no_gpu.sh path/to/snug
set -euo pipefail
cd "$(dirname "$0")/.."
snug=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

run=("$snug" run random:qwen2.5-0.5b:q4_0 --token-ids 5,6 --max-tokens 2 --max-model-len 64 --temperature 0)
check() {  # EXPECTED
  local status=0
  "${run[@]}" --device auto >"$folder/auto" 2>&1 || status=$?
  if [[ $status != 0 ]] || ! grep -q -- "running on the CPU: $1" "$folder/auto"; then
    echo "check_no_gpu: --device auto should run and say '$1' (exit status $status):" >&2
    cat "$folder/auto" >&2
    exit 1
  fi
  status=0
  "${run[@]}" --device cuda >"$folder/cuda" 2>&1 || status=$?
  if [[ $status != 2 ]] || ! grep -q -- "--device cuda: $1" "$folder/cuda"; then
    echo "check_no_gpu: --device cuda should refuse with 2 and say '$1' (exit status $status):" >&2
    cat "$folder/cuda" >&2
    exit 1
  fi
  cat "$folder/cuda"
}

if [[ -z $(ldconfig -p | grep libcuda.so.1) ]]; then
  check "no NVIDIA driver is installed"
else
  echo "check_no_gpu: this machine has a driver; what is said without one is not checked"
fi
"${CC:-cc}" -shared -fPIC -Wl,-soname,libcuda.so.1 tests/support/fake_driver.c -o "$folder/libcuda.so.1"
export LD_LIBRARY_PATH=$folder${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
FAKE_CUDA_VERSION=12020 check "the NVIDIA driver is too old: it knows CUDA 12.2"
FAKE_CUDA_INIT=100 check "this machine has no NVIDIA GPU that may be used"
