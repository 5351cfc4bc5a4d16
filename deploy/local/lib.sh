# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Steps that the scripts share; source it. Every step says what it does and
# how long it took, does nothing that is done already, and fails with a
# sentence that says what to do.

set -euo pipefail

BATON_ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
BATON_CACHE_DIR=${BATON_CACHE_DIR:-$HOME/.cache/baton}
# shellcheck disable=SC2034  # used by the scripts that source this
BATON_BIN=${BATON_BIN:-$BATON_ROOT/build/release/bin}
export BATON_CACHE_DIR

say() { printf '%s\n' "$*" >&2; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }

# timed "What is done" command...: runs it, prints the seconds it took.
timed() {
  local what=$1 start=$SECONDS
  shift
  say "==> $what"
  "$@"
  say "    done in $((SECONDS - start)) s"
}

missing_packages() {
  local name
  grep -Ev '^(#|$)' "$BATON_ROOT/deploy/local/packages.txt" | while read -r name; do
    dpkg-query -W -f '${Status}' "$name" 2>/dev/null | grep -q 'ok installed' || printf '%s ' "$name"
  done
}

apt_install() {
  local as_root=()
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || die "these packages are missing and need root to install: $*
       run as root: apt-get update && apt-get install -y --no-install-recommends $*"
    as_root=(sudo)
  fi
  "${as_root[@]}" apt-get update -qq || die "apt-get update failed: check the network and /etc/apt/sources.list"
  DEBIAN_FRONTEND=noninteractive "${as_root[@]}" apt-get install -y -qq --no-install-recommends "$@" >/dev/null ||
    die "apt-get could not install: $*"
}

# Installs what deploy/local/packages.txt lists and the machine lacks.
ensure_packages() {
  command -v dpkg-query >/dev/null || die "this script sets up Debian 12; on another system install what deploy/local/packages.txt lists, then build with: cmake --preset release && cmake --build --preset release"
  local missing
  missing=$(missing_packages)
  [ -n "$missing" ] || return 0
  # shellcheck disable=SC2086
  timed "Installing packages: $missing" apt_install $missing
}

# Jobs that memory allows: a compiler here takes up to 1.5 GB.
build_jobs() {
  local cores memory_gb
  cores=$(nproc)
  memory_gb=$(awk '/MemAvailable/ {print int($2 / 1048576)}' /proc/meminfo)
  local by_memory=$((memory_gb * 2 / 3))
  [ "$by_memory" -ge 1 ] || by_memory=1
  echo $((cores < by_memory ? cores : by_memory))
}

# build_preset PRESET [TARGET...]: configures once, then builds what changed.
build_preset() {
  local preset=$1
  shift
  local folder=$BATON_ROOT/build/$preset log=$BATON_ROOT/build/$preset.log
  mkdir -p "$BATON_ROOT/build"
  if [ ! -f "$folder/build.ninja" ]; then
    (cd "$BATON_ROOT" && cmake --preset "$preset" >"$log" 2>&1) || {
      tail -n 20 "$log" >&2
      die "configuring failed; the whole output is in build/$preset.log"
    }
  fi
  if ! cmake --build "$folder" -j "$(build_jobs)" ${1:+--target "$@"} >"$log" 2>&1; then
    grep -E -A5 'error|FAILED' "$log" | head -n 40 >&2
    die "the build failed; the whole output is in build/$preset.log"
  fi
}

DEMO_MODEL=$BATON_CACHE_DIR/models/SmolLM2-135M-Instruct.Q4_1.gguf
DEMO_DIGEST=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53

# Fetches the demo model (98 MB, Apache-2.0) into the cache; false without a network.
fetch_demo_model() {
  if [ -f "$DEMO_MODEL" ] && [ -f "$DEMO_MODEL.verified" ]; then return 0; fi
  python3 "$BATON_ROOT/deploy/local/fetch_demo_model.py" "$DEMO_MODEL" "$DEMO_DIGEST"
}
