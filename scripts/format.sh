#!/usr/bin/env bash
# clang-format over all C++ of the project: in place, or with --check only complaining.
set -euo pipefail
cd "$(dirname "$0")/.."

arguments=(-i)
if [[ ${1:-} == --check ]]; then
  arguments=(--dry-run -Werror)
fi
folders=()
for folder in src tests bench fuzz; do
  [[ -d $folder ]] && folders+=("$folder")
done
find "${folders[@]}" \( -name '*.cc' -o -name '*.h' -o -name '*.cu' -o -name '*.cuh' \) -print0 |
  xargs -0 -r clang-format "${arguments[@]}"
