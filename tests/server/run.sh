#!/usr/bin/env bash
# The tests of this folder against the program given: tests/server/run.sh build/release/snug [TEST ...]
#
# SNUG_TEST_PYTHON: an interpreter with requirements.txt (scripts/test_python.sh makes one).
# SNUG_TEST_SMOLLM2: the model. Exit code 77: not run, and why is printed.
set -euo pipefail
SNUG_PROGRAM=$(realpath "$1")
export SNUG_PROGRAM
shift
cd "$(dirname "$0")"

python=${SNUG_TEST_PYTHON:-python3}
if ! "$python" -c 'import openai' 2>/dev/null; then
  echo "skipped: $python has no package openai; scripts/test.sh installs it"
  exit 77
fi
if [[ ! -f ${SNUG_TEST_SMOLLM2:-} ]]; then
  echo "skipped: SNUG_TEST_SMOLLM2 names no model; scripts/test.sh fetches it"
  exit 77
fi
if (($# == 0)); then set -- discover --pattern '*_test.py'; fi
exec "$python" -m unittest "$@"
