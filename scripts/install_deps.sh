#!/usr/bin/env bash
# Installs the Debian 12 packages that Snug is built with. Safe to repeat: where all are present it touches
# neither apt nor the network.
#
#   scripts/install_deps.sh         what building and testing need
#   scripts/install_deps.sh --ci    also clang, clang-format, clang-tidy and a compiler for Arm, for the checks
set -euo pipefail

packages=(
  build-essential ccache cmake git ninja-build pkg-config
  libboost1.81-dev libcli11-dev libcurl4-openssl-dev libfmt-dev libhwy-dev libpcre2-dev libssl-dev libutf8proc-dev
  nlohmann-json3-dev
  libgmock-dev libgtest-dev
  ca-certificates python3 python3-pip python3-venv
)
for argument in "$@"; do
  case "$argument" in
    --ci) packages+=(clang clang-format clang-tidy libclang-rt-14-dev g++-aarch64-linux-gnu) ;;
    *) echo "usage: scripts/install_deps.sh [--ci]" >&2; exit 2 ;;
  esac
done

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  echo "install_deps: this is not a Debian system, so nothing was installed." >&2
  echo "  Install the equivalents of these packages yourself: ${packages[*]}" >&2
  echo "  (docs/dependencies.md says what each is for), then: cmake --preset release" >&2
  exit 1
fi

missing=()
for package in "${packages[@]}"; do
  state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
  [[ $state == installed ]] || missing+=("$package")
done
if ((${#missing[@]} == 0)); then
  echo "install_deps: all ${#packages[@]} packages are present" >&2
  exit 0
fi

version=$(. /etc/os-release 2>/dev/null && echo "${ID:-unknown} ${VERSION_ID:-}" || echo unknown)
if [[ $version != "debian 12" ]]; then
  echo "install_deps: Snug is tested on Debian 12 and this is $version; trying the same package names" >&2
fi

sudo=()
if ((EUID != 0)); then
  if ! command -v sudo >/dev/null; then
    echo "install_deps: these packages are missing: ${missing[*]}" >&2
    echo "  Run this script as root, or install sudo." >&2
    exit 1
  fi
  sudo=(sudo)
fi

echo "install_deps: installing ${missing[*]}" >&2
# Through env, since sudo drops the caller's environment.
apt=("${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -y -o DPkg::Lock::Timeout=300)
if ! "${apt[@]}" update >&2 </dev/null; then
  echo "install_deps: apt-get update failed; going on with the package lists at hand" >&2
fi
if ! "${apt[@]}" install --no-install-recommends "${missing[@]}" >&2 </dev/null; then
  echo "install_deps: could not install: ${missing[*]}" >&2
  echo "  Check the network and /etc/apt/sources.list (Debian 12, section main), then run this again." >&2
  exit 1
fi
