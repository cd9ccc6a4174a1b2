#!/usr/bin/env bash
# From a fresh clone to an answer: installs what is missing, builds, fetches a small model once, asks it.
#
#   scripts/demo.sh                      asks for the capital of France
#   scripts/demo.sh "another question"
set -euo pipefail
cd "$(dirname "$0")/.."

if (($# > 1)) || [[ ${1:-} == -* ]]; then
  echo 'usage: scripts/demo.sh ["a question"]' >&2
  exit 2
fi
question=${1:-What is the capital of France?}

# The preset decides the back end. A GPU preset is taken where CMakePresets.json has one and nvcc is found.
preset=release
device=cpu
if command -v nvcc >/dev/null && grep -q '"name": "cuda"' CMakePresets.json; then
  preset=cuda
  device=auto
fi

scripts/install_deps.sh
scripts/build.sh "$preset" snug
model=$(scripts/fetch_smollm2.sh)

echo "demo: build/$preset/snug run $model --chat -p \"$question\"" >&2
exec "build/$preset/snug" run "$model" --chat -p "$question" --max-tokens 64 --temperature 0 --device "$device"
