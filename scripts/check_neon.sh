#!/usr/bin/env bash
# Compiles the CPU kernels for 64-bit Arm (NEON) with Debian's cross compiler, without running them.
set -euo pipefail
cd "$(dirname "$0")/.."

if ! command -v aarch64-linux-gnu-g++ >/dev/null; then
  echo "check_neon: aarch64-linux-gnu-g++ is missing; scripts/install_deps.sh --ci installs it" >&2
  exit 1
fi
# Highway's headers do not depend on the architecture, but the folder they stand in holds others that do.
headers=$(mktemp -d)
trap 'rm -rf "$headers"' EXIT
ln -s /usr/include/hwy "$headers/hwy"

for source in src/kernels/cpu/*.cc src/kernels/ref/*.cc; do
  echo "check_neon: $source"
  aarch64-linux-gnu-g++ -std=c++20 -O1 -fsyntax-only -Wall -Wextra -Werror -Wno-missing-field-initializers \
    -Isrc -I"$headers" "$source"
done
