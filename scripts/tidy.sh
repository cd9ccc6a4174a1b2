#!/usr/bin/env bash
# clang-tidy over the sources: scripts/tidy.sh [FILES…]; without files, all of src/. Needs install_deps.sh --ci.
set -euo pipefail
cd "$(dirname "$0")/.."

files=("$@")
if ((${#files[@]} == 0)); then
  mapfile -t files < <(find src -name '*.cc' | sort)
fi
cmake --preset release >/dev/null # for compile_commands.json
printf '%s\0' "${files[@]}" | xargs -0 -n 1 -P "$(nproc)" clang-tidy -p build/release --quiet
