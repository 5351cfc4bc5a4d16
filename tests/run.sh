#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Sets up everything and passes the tests. What runs, in order: formatting,
# include directions and scripts; in the release build the tests that depend on
# its numbers and those of whole processes; all unit tests under ASan+UBSan, and
# the core's under TSan.
# shellcheck source=deploy/local/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../deploy/local/lib.sh"

usage() {
  cat <<'HELP'
Usage: tests/run.sh [--quick] [--require-data] [--tidy]

  --quick         all unit tests in the release build, nothing else
  --require-data  a test that lacks its data fails instead of being skipped
  --tidy          clang-tidy over all sources as well (about 10 minutes)
HELP
}

quick='' tidy=''
for argument in "$@"; do
  case $argument in
    --quick) quick=1 ;;
    --require-data) export BATON_REQUIRE_DATA=1 ;;
    --tidy) tidy=1 ;;
    -h | --help) usage; exit 0 ;;
    *) die "unknown flag $argument; see --help" ;;
  esac
done

start=$SECONDS
results=$BATON_ROOT/build/test-results
passed=0 failed=0 skipped=0

# count_results JUNIT_FILE...: adds up what ctest reports, and what tests skip
# inside of their binaries.
count_results() {
  local counts
  counts=$(python3 "$BATON_ROOT/tests/count_results.py" "$@")
  read -r p f s <<<"$counts"
  passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
}

run_ctest() {  # PRESET NAME CTEST-FLAGS...
  local preset=$1 name=$2
  shift 2
  mkdir -p "$results"
  rm -f "$results/$name".*
  (cd "$BATON_ROOT/build/$preset" && ctest --output-on-failure --output-junit "$results/$name.xml" \
    --test-output-size-passed 20000000 --test-output-size-failed 20000000 "$@") \
    >"$results/$name.log" 2>&1 || true
  grep -E '^(The following tests FAILED|[[:space:]]+[0-9]+ - )' "$results/$name.log" >&2 || true
  grep -A12 -E '^\[  FAILED  \]|: Failure$|(ERROR|WARNING|FATAL): (Address|Thread|Leak)|runtime error:|terminate called' \
    "$results/$name.log" | head -n 120 >&2 || true
  count_results "$results/$name.xml"
  say "    slowest: $(sed -nE 's/.*Test +#[0-9]+: ([^ ]+) .* ([0-9.]+) sec$/\2 s \1/p' "$results/$name.log" |
    sort -rn | head -n 3 | paste -sd ',' | sed 's/,/, /g')"
}

check_sources() {
  local problems=0
  (cd "$BATON_ROOT" && git ls-files -co --exclude-standard '*.cc' '*.h' | xargs -r clang-format --dry-run -Werror) || problems=1
  python3 "$BATON_ROOT/tests/check_includes.py" || problems=1
  local script
  for script in "$BATON_ROOT"/{deploy/local,tests,tests/bench}/*.sh; do
    bash -n "$script" || problems=1
  done
  if [ $problems -eq 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
}

run_tidy() {
  # One file at a time, and clang reads no headers that GCC has precompiled. Left
  # out are files that no build here has: other processors' and the example.
  (cd "$BATON_ROOT" && cmake --preset release -B build/tidy -DCMAKE_CXX_COMPILER=clang++ -DBATON_UNITY=OFF \
    -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON -DBATON_GOOGLEAPIS_DIR="$BATON_ROOT/build/release/third_party/googleapis" &&
    cmake --build build/tidy --target baton_messages) >"$results/tidy-setup.log" 2>&1 ||
    die "clang-tidy could not be set up; the whole output is in $results/tidy-setup.log"
  if (cd "$BATON_ROOT" && git ls-files '*.cc' | grep -Ev '^tests/|^client/example/|/no_avx' |
    xargs -r -P "$(nproc)" -n 4 clang-tidy -p build/tidy --quiet 2>/dev/null) >"$results/tidy.log"; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    grep -E 'error|warning' "$results/tidy.log" | head -n 40 >&2
  fi
}

ensure_packages
mkdir -p "$results"
[ -n "$quick" ] || timed "Checking formatting, include directions and scripts" check_sources
if [ -n "$quick" ]; then
  timed "Building (release)" build_preset release
  timed "Unit tests" run_ctest release unit -L unit -j "$(nproc)"
else
  timed "Building (release)" build_preset release baton baton-router baton-prefill-worker \
    baton-decode-worker numeric_tests integration_tests bench_tests
  timed "Tests of numbers" run_ctest release numeric -L numeric -j "$(nproc)"
  fetch_demo_model || say "    no demo model: tests that need it are skipped"
  timed "Integration tests" run_ctest release integration -L integration -j "$(nproc)"
  timed "Building with ASan+UBSan" build_preset asan-ubsan unit_tests
  timed "Unit tests under ASan+UBSan" run_ctest asan-ubsan unit-asan -L unit -j "$(nproc)"
  timed "Building the core with TSan" build_preset tsan core_tests
  # Tests that fork a peer go on in a child that makes threads of its own.
  export TSAN_OPTIONS=die_after_fork=0
  timed "Core tests under TSan" run_ctest tsan core-tsan -L core -j "$(nproc)"
fi
[ -z "$tidy" ] || timed "clang-tidy" run_tidy

say "==> all in $((SECONDS - start)) s; logs in build/test-results"
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] || exit 1
[ "$passed" -gt 0 ] || die "no test ran"
