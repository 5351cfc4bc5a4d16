#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Baton beside llama.cpp and OpenVINO GenAI on the same files. The first run
# installs both (llama.cpp is compiled for this CPU: about 25 minutes of one
# core) into the cache folder and makes the models that can be made.
# shellcheck source=deploy/local/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../../deploy/local/lib.sh"

LLAMACPP=llama-cpp-python==0.3.36
OPENVINO=openvino-genai==2026.4.1.0
HERE=$BATON_ROOT/tests/bench/peers
PEERS=$BATON_CACHE_DIR/peers
MODELS=$BATON_CACHE_DIR/models

usage() {
  cat <<HELP
Usage: tests/bench/peers.sh [NAME...] [--list] [--json] [--rounds N] [--threads N]
                            [--engines baton,llamacpp,openvino]

  NAME       what to measure: a line of --list (glm6b/prompt128), the prompts or
             decoding of a model (qwen/decode), a model (smollm2); without: all
  --rounds   times that the engines take turns; the best of each counts (default 3)
  --json     one JSON object per line of the table

Nothing else should run meanwhile. Models lie in $MODELS;
rows whose model is missing are left out, and said.
HELP
}

# installed PACKAGE==VERSION [ENVIRONMENT...]: a virtual environment of its own;
# prints the path of its Python.
installed() {
  local package=$1 folder=$PEERS/${1/==/-}
  shift
  if [ ! -f "$folder/ready" ]; then
    rm -rf "$folder"
    mkdir -p "$PEERS"
    python3 -m venv "$folder" || die "python3 cannot make a virtual environment: install python3-venv"
    timed "Installing $package (log: $folder.log)" env "$@" \
      "$folder/bin/python" -m pip install --disable-pip-version-check "$package" >"$folder.log" 2>&1 ||
      die "$package could not be installed; the whole output is in $folder.log"
    touch "$folder/ready"
  fi
  echo "$folder/bin/python"
}

install_llamacpp() {
  # The tools beside the library would double the time that it takes to build.
  installed "$LLAMACPP" CMAKE_BUILD_PARALLEL_LEVEL="$(build_jobs)" CMAKE_ARGS="-DGGML_NATIVE=ON \
-DMTMD_BUILD=OFF -DLLAVA_BUILD=OFF -DLLAMA_BUILD_TOOLS=OFF -DLLAMA_BUILD_SERVER=OFF \
-DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_TESTS=OFF"
}

names=() engines=baton,llamacpp,openvino flags=() list=
while [ $# -gt 0 ]; do
  case $1 in
    --rounds | --threads) [ $# -ge 2 ] || die "$1 needs a number"; flags+=("$1" "$2"); shift 2 ;;
    --engines) [ $# -ge 2 ] || die "--engines needs a list"; engines=$2; shift 2 ;;
    --json) flags+=("$1"); shift ;;
    --list) list=1; shift ;;
    -h | --help) usage; exit 0 ;;
    -*) die "unknown flag $1; see --help" ;;
    *) names+=("$1"); shift ;;
  esac
done
[ -z "$list" ] || exec python3 "$HERE/compare.py" --list
# A name that fits nothing ends the run here, before anything is installed.
wanted=$(python3 "$HERE/compare.py" --models "${names[@]}")

[ -x "$BATON_BIN/baton" ] || timed "Building baton" build_preset release baton
case ,$engines, in *,llamacpp,*)
  llamacpp=$(install_llamacpp)
  flags+=(--llamacpp "$llamacpp")
  ;;
esac
case ,$engines, in *,openvino,*)
  openvino=$(installed "$OPENVINO")
  flags+=(--openvino "$openvino")
  ;;
esac
case ,$engines, in *,baton,*) flags+=(--baton "$BATON_BIN/baton") ;; esac

make_model() {
  local target=$1
  case $target in
    SmolLM2-135M-Instruct.Q4_1.gguf) fetch_demo_model || return 1 ;;
    SmolLM2-135M-Instruct.Q4_0.gguf)
      fetch_demo_model || return 1
      "$(install_llamacpp)" "$HERE/llamacpp_speed.py" requantize "$DEMO_MODEL" "$MODELS/$target.part" \
        >"$PEERS/requantize.log" 2>&1 && mv "$MODELS/$target.part" "$MODELS/$target" ;;
    chatglm2-6b-random.Q4_0.gguf)
      rm -f "$MODELS/$target.part"
      "$BATON_BIN/baton" make-model --shape chatglm2-6b --weights int4 --seed 1 "$MODELS/$target.part" >&2 &&
        mv "$MODELS/$target.part" "$MODELS/$target" ;;
    *) return 1 ;;
  esac
}
mkdir -p "$MODELS"
for model in $wanted; do
  [ -f "$MODELS/$model" ] || timed "Model: $model" make_model "$model" ||
    say "    not there and cannot be made: put it into $MODELS"
done

exec python3 "$HERE/compare.py" --model-folder "$MODELS" "${flags[@]}" "${names[@]}"
