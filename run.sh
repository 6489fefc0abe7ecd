#!/usr/bin/env bash
# Sets everything up (once), then serves Skald at http://127.0.0.1:9000. Arguments go to `skald serve`; see `./run.sh --help`.
set -euo pipefail
cd "$(dirname "$0")"
. scripts/env.sh
prepare_venv .venv requirements/run.lock
build_web .venv
export SKALD_DATA="${SKALD_DATA:-$PWD/data}"
exec .venv/bin/skald serve "$@"
