#!/usr/bin/env bash
# Installs what is missing, builds the release preset, and runs all tests; the exit code is ctest's.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/install_deps.sh
scripts/build.sh release

# Tests that run a real model read its path from here and skip, saying so, where it is not set.
if model=$(scripts/fetch_smollm2.sh); then
  export SNUG_TEST_SMOLLM2=$model
else
  echo "test: SmolLM2 could not be fetched; the tests that run it will skip" >&2
fi

# The server's tests drive it with the official clients.
if python=$(scripts/test_python.sh); then
  export SNUG_TEST_PYTHON=$python
else
  echo "test: the Python clients could not be installed; the server's tests will skip" >&2
fi

exec ctest --test-dir build/release --output-on-failure
