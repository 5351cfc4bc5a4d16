#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A Baton cluster on this machine: one router, any number of workers.
# shellcheck source=deploy/local/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

usage() {
  cat <<'HELP'
Usage: deploy/local/cluster.sh up|down|status [flags] [-- extra worker flags]

  --model M      PATH, embedded, fake, or demo (fetched by quickstart.sh); default embedded
  --prefill N    prefill workers, default 1
  --decode N     decode workers, default 1
  --port P       router's port on 127.0.0.1, default 8500; 0 picks a free one
  --weights W    stored, int4, int8 or bf16: what workers make of F32, F16 and BF16 weights
  --dir DIR      logs, addresses and pid files; default build/run/cluster
  --transport T  how KV is handed over: auto, cuda_ipc, shm or tcp; default auto
  --router-flag F  extra flag for the router, such as --router-flag=--max-queue=10; may be repeated
  --timeout S    seconds to wait for readiness, default 120
  --quiet        print nothing on success

up returns when every process is ready, or says which is not and why, and then
stops what it started. down stops only what up started in the same DIR.
HELP
}

[ $# -ge 1 ] || { usage; exit 2; }
command=$1
shift
model=embedded weights=stored prefill=1 decode=1 port=8500 dir=$BATON_ROOT/build/run/cluster timeout=120 transport=auto quiet=
router_flags=() worker_flags=()
while [ $# -gt 0 ]; do
  case $1 in
    --model | --weights | --prefill | --decode | --port | --dir | --timeout | --transport)
      [ $# -ge 2 ] || die "$1 needs a value"
      declare "${1#--}=$2"
      shift 2 ;;
    --model=* | --weights=* | --prefill=* | --decode=* | --port=* | --dir=* | --timeout=* | --transport=*)
      name=${1%%=*}
      declare "${name#--}=${1#*=}"
      shift ;;
    --router-flag) [ $# -ge 2 ] || die "--router-flag needs a value"; router_flags+=("$2"); shift 2 ;;
    --router-flag=*) router_flags+=("${1#*=}"); shift ;;
    --quiet) quiet=1; shift ;;
    -h | --help) usage; exit 0 ;;
    --) shift; worker_flags=("$@"); break ;;
    *) die "unknown argument '$1'; see --help" ;;
  esac
done
for number in prefill decode port timeout; do
  [[ ${!number} =~ ^[0-9]+$ ]] || die "--$number: '${!number}' is not a whole number"
done

# A pid file holds "pid start-time", so that a reused pid is never signalled. A
# process that has ended may stay a zombie: in a container nobody may collect it.
start_time() { awk '$3 != "Z" {print $22}' "/proc/$1/stat" 2>/dev/null; }
alive() {
  local pid begun
  read -r pid begun <"$1" 2>/dev/null || return 1
  [ "$(start_time "$pid")" = "$begun" ]
}
names() { for file in "$dir"/*.pid; do [ -e "$file" ] && basename "$file" .pid; done; }

launch() {  # NAME BINARY FLAGS...
  local name=$1 binary=$2
  shift 2
  [ -x "$BATON_BIN/$binary" ] || die "$binary is not built; run deploy/local/quickstart.sh once, or: cmake --preset release && cmake --build --preset release"
  # Out of reach of the terminal's signals, but in its session: Linux shares cores
  # among sessions before it does among threads, and a router of its own session
  # has waited 140 ms for a core that a worker computes on.
  set -m
  nohup "$BATON_BIN/$binary" "$@" >"$dir/$name.log" 2>&1 </dev/null &
  set +m
  echo "$! $(start_time $!)" >"$dir/$name.pid"
}

why() {  # the last lines of a log
  say "--- $dir/$1.log"
  tail -n 5 "$dir/$1.log" >&2 || true
}

wait_for_file() {  # FILE NAME DEADLINE
  while [ ! -s "$1" ]; do
    alive "$dir/$2.pid" || { why "$2"; return 1; }
    [ $SECONDS -lt "$3" ] || { say "$2 was not ready after $timeout s"; why "$2"; return 1; }
    sleep 0.05
  done
}

bring_up() {
  local deadline=$((SECONDS + timeout)) i
  launch router baton-router --model "$model" --listen "127.0.0.1:$port" \
    --transport "$transport" --port-file "$dir/router.ports" "${router_flags[@]}"
  wait_for_file "$dir/router.ports" router "$deadline" || return 1
  sed -n 's/.*"listen":"\([^"]*\)".*/\1/p' "$dir/router.ports" >"$dir/router.address"
  local router
  router=$(cat "$dir/router.address")
  for ((i = 0; i < prefill; ++i)); do
    launch "prefill-$i" baton-prefill-worker --model "$model" --weights "$weights" --router "$router" \
      --worker-id "prefill-$i" --port-file "$dir/prefill-$i.ports" "${worker_flags[@]}"
  done
  for ((i = 0; i < decode; ++i)); do
    launch "decode-$i" baton-decode-worker --model "$model" --weights "$weights" --router "$router" \
      --worker-id "decode-$i" --port-file "$dir/decode-$i.ports" "${worker_flags[@]}"
  done
  for name in $(names); do
    wait_for_file "$dir/$name.ports" "$name" "$deadline" || return 1
  done
  wait_for_workers "$router" "$deadline"
}

# Until the router counts every worker among its own.
wait_for_workers() {  # ROUTER DEADLINE
  local status name missing
  while true; do
    status=$("$BATON_BIN/baton" status --router "$1" --json 2>/dev/null || true)
    missing=
    for name in $(names); do
      [ "$name" = router ] || [[ $status == *"\"$name\""* ]] || missing="$missing $name"
    done
    [ -n "$missing" ] || return 0
    for name in $missing; do alive "$dir/$name.pid" || { why "$name"; return 1; }; done
    [ $SECONDS -lt "$2" ] || { say "not attached to the router after $timeout s:$missing"; for name in $missing; do why "$name"; done; return 1; }
    sleep 0.05
  done
}

shut_down() {
  local name pid begun deadline=$((SECONDS + 35))
  for name in $(names); do
    if alive "$dir/$name.pid"; then read -r pid begun <"$dir/$name.pid"; kill -TERM "$pid" 2>/dev/null || true; fi
  done
  for name in $(names); do
    while alive "$dir/$name.pid" && [ $SECONDS -lt $deadline ]; do sleep 0.05; done
    if alive "$dir/$name.pid"; then
      read -r pid begun <"$dir/$name.pid"
      say "$name did not stop; killing it"
      kill -KILL "$pid" 2>/dev/null || true
    fi
    rm -f "$dir/$name.pid" "$dir/$name.ports"
  done
  rm -f "$dir/router.address"
}

case $command in
  up)
    if [ "$model" = demo ]; then fetch_demo_model || die "the demo model is not here and could not be fetched"; model=$DEMO_MODEL; fi
    mkdir -p "$dir"
    for name in $(names); do
      alive "$dir/$name.pid" && die "$name already runs from $dir; stop it first: deploy/local/cluster.sh down --dir $dir"
      rm -f "$dir/$name.pid" "$dir/$name.ports"
    done
    if ! bring_up; then
      shut_down
      die "the cluster did not come up; what was started is stopped again"
    fi
    [ -n "$quiet" ] || say "up: router $(cat "$dir/router.address"), $prefill prefill, $decode decode; logs in $dir"
    ;;
  down)
    [ -d "$dir" ] || die "nothing was started from $dir"
    shut_down
    [ -n "$quiet" ] || say "down: $dir"
    ;;
  status)
    [ -d "$dir" ] || die "nothing was started from $dir"
    code=0
    for name in $(names); do
      if alive "$dir/$name.pid"; then say "$name: runs (pid $(cut -d' ' -f1 "$dir/$name.pid"))"; else say "$name: dead"; why "$name"; code=1; fi
    done
    if [ -s "$dir/router.address" ]; then
      "$BATON_BIN/baton" status --router "$(cat "$dir/router.address")" || code=1
    else
      say "no router runs from $dir"
      code=1
    fi
    exit $code
    ;;
  -h | --help) usage ;;
  *) die "unknown command '$command'; use up, down or status" ;;
esac
