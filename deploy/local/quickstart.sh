#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# From a fresh Debian 12 machine to an answer: installs what is missing, builds,
# fetches the demo model, starts a router, a prefill and a decode worker on
# loopback, and chats or asks one question.
# shellcheck source=deploy/local/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

usage() {
  cat <<'HELP'
Usage: deploy/local/quickstart.sh [--model PATH|embedded|demo] [QUESTION]

  QUESTION          ask this one question greedily, print where the time went, stop
                    (without it: a chat; Ctrl-C stops an answer, Ctrl-D ends)
  --model demo      SmolLM2-135M-Instruct, 98 MB, fetched once (default)
  --model embedded  the small ChatGLM2-architecture model inside the binaries
  --model PATH      a GGUF, safetensors or PyTorch checkpoint (architectures llama, chatglm, qwen2)
  --weights W       int4, int8 or bf16: what F32, F16 and BF16 weights become; default stored
HELP
}

model=demo weights=stored question=
while [ $# -gt 0 ]; do
  case $1 in
    --model) [ $# -ge 2 ] || die "--model needs a value: demo, embedded or a path"; model=$2; shift 2 ;;
    --model=*) model=${1#*=}; shift ;;
    --weights) [ $# -ge 2 ] || die "--weights needs a value: stored, int4, int8 or bf16"; weights=$2; shift 2 ;;
    --weights=*) weights=${1#*=}; shift ;;
    -h | --help) usage; exit 0 ;;
    --) shift; question=${1:-}; break ;;
    -*) die "unknown flag $1; see --help" ;;
    *) [ -z "$question" ] || die "one question at a time: put it in quotes"; question=$1; shift ;;
  esac
done

start=$SECONDS
ensure_packages
if [ -x "$BATON_BIN/baton" ]; then what="Bringing the build up to date"; else what="Building (about 5 minutes on 2 cores the first time)"; fi
timed "$what" build_preset release baton baton-router baton-prefill-worker baton-decode-worker

if [ "$model" = demo ]; then
  if timed "Model: SmolLM2-135M-Instruct in $BATON_CACHE_DIR/models" fetch_demo_model; then
    model=$DEMO_MODEL
  else
    say "    No network: going on with the small embedded model, which knows sums, counting and"
    say "    greetings. With a network, run this script again for SmolLM2."
    model=embedded
  fi
fi

run_dir=$(mktemp -d "${TMPDIR:-/tmp}/baton-quickstart.XXXXXX")
stop() { "$BATON_ROOT/deploy/local/cluster.sh" down --dir "$run_dir" >/dev/null 2>&1 && rm -rf "$run_dir"; }
trap stop EXIT
trap 'exit 130' INT TERM
timed "Starting router, prefill worker and decode worker" \
  "$BATON_ROOT/deploy/local/cluster.sh" up --model "$model" --weights "$weights" --port 0 --dir "$run_dir" --quiet
router=$(cat "$run_dir/router.address")
say "    ready after $((SECONDS - start)) s; logs in $run_dir while it runs"
say ""

if [ -n "$question" ]; then
  python3 -c 'import json, sys; print(json.dumps([{"role": "user", "content": sys.argv[1]}]))' \
    "$question" >"$run_dir/question.json"
  "$BATON_BIN/baton" generate --router "$router" --chat "$run_dir/question.json" \
    --temperature 0 --max-tokens 256
else
  trap - INT  # the chat has its own use for Ctrl-C
  "$BATON_BIN/baton" chat --router "$router"
fi
