#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Tests and figures of a real GPU, as one JSON. Also the first half of it: a
# folder to carry to a machine that has a GPU and no tools to build with.
# shellcheck source=deploy/local/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../../deploy/local/lib.sh"

usage() {
  cat <<'HELP'
Usage: tests/gpu/run.sh [--dry-run | --device cuda:N] [--out FILE]
       tests/gpu/run.sh --pack FOLDER

  --dry-run      the same run on the emulator, with tiny shapes: what it writes
                 are no figures of a GPU
  --device       which GPU; default cuda:0
  --out          the JSON; default build/test-results/gpu.json
  --pack FOLDER  builds all that the run takes and puts it into FOLDER (at most
                 64 MiB); there, with Python 3 and a driver alone:
                 python3 FOLDER/measure.py --out FILE
HELP
}

device=cuda:0 out='' pack=''
while [ $# -gt 0 ]; do
  case $1 in
    --dry-run) device=emulated ;;
    --device | --out | --pack)
      [ $# -gt 1 ] || die "$1 needs a value; see --help"
      declare "${1#--}=$2"
      shift
      ;;
    -h | --help) usage; exit 0 ;;
    *) die "unknown flag $1; see --help" ;;
  esac
  shift
done

programs=(baton baton-router baton-prefill-worker baton-decode-worker)
tests=(gpu_rows_test gpu_linear_test gpu_qkv_test gpu_attention_test gpu_blocks_test gpu_pack_test gpu_plain_test gpu_sampling_test
  gpu_model_test gpu_window_model_test gpu_engine_test integration_gpu_test integration_gpu_pair_test gpu_bench)
most_bytes=$((64 << 20))

build_all() {
  timed "Building" build_preset release "${programs[@]}" "${tests[@]}" baton_gpu_emulated baton_gpu_on_device baton_fake_cublaslt
  [ "$device" = emulated ] || timed "Building the plugin" build_preset release baton_cuda
}

# Libraries that a program needs and that are not the C library's.
libraries_of() {
  ldd "$@" | awk '$2 == "=>" && $3 ~ /^\// {print $3}' | sort -u |
    grep -Ev '/(libc|libm|libpthread|libdl|librt|libresolv|ld-linux[^/]*)\.so' | grep -v "^$BATON_ROOT" || true
}

pack_into() {
  local folder=$1 build=$BATON_ROOT/build/release file inside bytes
  [ ! -e "$folder" ] || [ -z "$(ls -A "$folder")" ] || die "$folder is not empty"
  inside=$(mktemp -d)
  # shellcheck disable=SC2064
  trap "rm -rf '$inside'" EXIT
  mkdir -p "$folder" "$inside"/{bin,tests,lib,data}
  for file in "${programs[@]}"; do strip -o "$inside/bin/$file" "$build/bin/$file"; done
  for file in "${tests[@]}"; do strip -o "$inside/tests/$file" "$build/tests/$file"; done
  for file in libbaton_cuda.so libbaton_gpu_emulated.so libbaton_gpu_on_device.so libbaton_fake_cublaslt.so; do
    strip --strip-unneeded -o "$inside/lib/$file" "$build/lib/$file"
  done
  libraries_of "$inside"/bin/* "$inside"/tests/* | while read -r file; do
    strip --strip-unneeded -o "$inside/lib/$(basename "$file")" "$file"
  done
  cp -r "$BATON_ROOT/tests/data/own-glm" "$inside/data/"
  tar -C "$inside" -czf "$folder/programs.tar.gz" bin tests lib data
  cp "$BATON_ROOT"/tests/gpu/{measure,torch_figures}.py "$folder/"
  {
    git -C "$BATON_ROOT" describe --always --dirty 2>/dev/null || echo 'no git'
    ldd --version | head -n 1
  } | paste -sd ' ' >"$folder/PACKED"
  bytes=$(du -sb "$folder" | cut -f 1)
  [ "$bytes" -le $most_bytes ] || die "$folder takes $bytes bytes; at most $most_bytes are to be carried"
  say "$folder: $((bytes >> 20)) MiB; there: python3 measure.py --out FILE"
}

ensure_packages
if [ -n "$pack" ]; then
  build_all
  pack_into "$pack"
  exit 0
fi
if [ "$device" != emulated ] && [ ! -e /dev/nvidiactl ]; then
  say "no NVIDIA driver is loaded: dry run on the emulator"
  device=emulated
fi
build_all
mkdir -p "$BATON_ROOT/build/test-results"
exec python3 "$BATON_ROOT/tests/gpu/measure.py" --device "$device" \
  --out "${out:-$BATON_ROOT/build/test-results/gpu.json}"
