#!/usr/bin/env bash
# Locks what run.sh and test.sh install: versions and hashes, no index lines. Needs `uv`. Run it after changing dependencies.
set -euo pipefail
cd "$(dirname "$0")/.."
export_lock() { # FILE ARGS...
  local file=$1
  shift
  uv export --quiet --no-header --no-annotate --no-emit-workspace --no-default-groups --all-packages "$@" > "$file"
  if grep -nE -- '^(-i|--(extra-)?index-url|--find-links)|https?://' "$file"; then
    echo "$file names a registry; it must not" >&2
    exit 1
  fi
}
uv lock --quiet --upgrade
export_lock requirements/run.lock --extra default --group build
export_lock requirements/test.lock --extra default --extra test --group build
uv export --quiet --no-header --no-annotate --only-group node > requirements/node.lock
