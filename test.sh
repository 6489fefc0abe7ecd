#!/usr/bin/env bash
# Installs what testing needs and runs every check and test. On a fresh machine too: root on Debian, or a normal user who
# has Chromium already.
#   ./test.sh            everything CI runs
#   ./test.sh real       the main job with the starter model (downloads 1.1 GB once)
#   ./test.sh quick      no browser, no benchmarks
#   ./test.sh -k NAME    arguments for pytest: only those tests
set -euo pipefail
cd "$(dirname "$0")"
. scripts/env.sh

mode=all
case "${1:-}" in
  real | quick) mode=$1; shift ;;
  ?*) mode=some ;;
esac

find_chromium() {
  local candidate
  for candidate in "${SKALD_CHROMIUM:-}" chromium chromium-browser google-chrome; do
    [ -n "$candidate" ] && command -v "$candidate" && return
  done
  return 1
}

prepare_chromium() {
  find_chromium >/dev/null && return
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    say "installing Chromium from Debian"
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core >/dev/null
  else
    echo "The browser tests need Chromium: install it, or set SKALD_CHROMIUM to its path." >&2
    return 1
  fi
}

prepare_venv .venv-test requirements/test.lock
build_web .venv-test
prepare_node_tests .venv-test
[ "$mode" = quick ] || prepare_chromium
bin=.venv-test/bin
"$bin/python" -m compileall -q -j 2 skald_core plugins/*/src tests/support # hundreds of servers start in the tests
SKALD_CHROMIUM=$(find_chromium || true)
SKALD_NODE=$(node_path .venv-test)/node
export SKALD_NODE SKALD_CHROMIUM SKALD_STRICT_PLUGINS=1 PYTHONDONTWRITEBYTECODE=1
unset SKALD_DATA SKALD_URL SKALD_USER SKALD_PASSWORD SKALD_PLUGINS

if [ "$mode" = real ]; then
  exec "$bin/python" -m pytest -m real "$@"
fi
if [ "$mode" = some ]; then
  exec "$bin/python" -m pytest -m "not real" "$@"
fi

say "style"
"$bin/ruff" check --quiet .
"$bin/ruff" format --quiet --check .
say "types"
"$bin/mypy"
for plugin in plugins/*/src; do "$bin/mypy" "$plugin"; done
say "layers"
PYTHONPATH=. "$bin/lint-imports" | tail -n 3
"$bin/python" scripts/layers.py
say "browser code"
(
  PATH="$(node_path .venv-test):$PATH"
  export PATH
  cd web
  npm run --silent check
  npm test --silent
)
if [ "$mode" = all ]; then
  say "benchmarks, crash and isolation programs, small"
  "$bin/python" tests/bench/startup.py --idle 5
  "$bin/python" tests/bench/stream.py
  "$bin/python" tests/bench/newcomer.py
  for program in tests/bench/loop.py tests/bench/plugins.py tests/crash/run.py tests/security/isolation.py; do
    if [ -f "$program" ]; then "$bin/python" "$program" --small; fi
  done
fi
say "tests"
workers=(-n 2 --dist loadfile) # most tests wait for servers and browsers; a file's tests share them
if [ "$mode" = quick ]; then
  exec "$bin/python" -m pytest "${workers[@]}" -m "not real and not browser" "$@"
fi
exec "$bin/python" -m pytest "${workers[@]}" -m "not real" "$@"
