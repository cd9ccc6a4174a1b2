#!/usr/bin/env bash
# Configures and builds one preset: scripts/build.sh [PRESET] [ninja targets…]. PRESET defaults to release.
set -euo pipefail
cd "$(dirname "$0")/.."

preset=${1:-release}
shift || true
cmake --preset "$preset" >&2
cmake --build --preset "$preset" -j "$(nproc)" ${1:+--target "$@"} >&2
