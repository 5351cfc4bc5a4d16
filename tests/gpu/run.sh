#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The tests of the model step and of workers on a real GPU. Where there is no
# NVIDIA driver, or with --dry-run: the same on the emulator.
# shellcheck source=deploy/local/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../../deploy/local/lib.sh"

device=cuda:0
case ${1:-} in
  '') ;;
  --dry-run) device=emulated ;;
  cuda:*) device=$1 ;;
  *) printf 'Usage: tests/gpu/run.sh [--dry-run | cuda:N]\n'; [ "$1" = --help ] && exit 0; exit 1 ;;
esac
if [ "$device" != emulated ] && [ ! -e /dev/nvidiactl ]; then
  say "no NVIDIA driver is loaded: dry run on the emulator"
  device=emulated
fi

tests=(gpu_model_test gpu_real_model_test integration_gpu_test)
ensure_packages
timed "Building" build_preset release "${tests[@]}"
[ "$device" = emulated ] || timed "Building the plugin" build_preset release baton_cuda
results=$BATON_ROOT/build/test-results
mkdir -p "$results"
failed=0
for test in "${tests[@]}"; do
  start=$SECONDS
  if (cd "$BATON_ROOT" && BATON_TEST_DEVICE=$device "build/release/tests/$test") >"$results/$test-$device.log" 2>&1; then
    echo "$test on $device: passed in $((SECONDS - start)) s"
  else
    echo "$test on $device: FAILED, see $results/$test-$device.log"
    failed=1
  fi
done
exit $failed
