#!/usr/bin/env bash
# Makes a Python environment with the packages that the tests of the server need, once, and prints its interpreter.
set -euo pipefail
cd "$(dirname "$0")/.."

environment=build/test-python
wanted=tests/server/requirements.txt
if [[ ! -x $environment/bin/python ]] || ! cmp -s "$wanted" "$environment/requirements.txt"; then
  echo "test_python: installing $(paste -sd' ' "$wanted") from PyPI" >&2
  rm -rf "$environment"
  python3 -m venv "$environment" >&2
  "$environment/bin/pip" install --quiet --disable-pip-version-check --retries 2 -r "$wanted" >&2
  cp "$wanted" "$environment/requirements.txt"
fi
realpath --no-symlinks "$environment/bin/python"
