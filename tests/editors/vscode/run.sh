#!/bin/bash
# Packages the extension and tries it in a real Visual Studio Code, driven through a browser.
#
#   run.sh [TEST FILE...]
#
# OUTPOST_LSP          the server's program (default: `outpost-lsp` in PATH)
# OUTPOST_EDITORS_DIR  where the editor is installed and kept (default: a temporary folder)
# OUTPOST_PICTURES     where screenshots are put (default: build/pictures of the project)
# OUTPOST_VSIX         an extension package to try instead of making one
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)"
project="$(cd "$here/../../.." && pwd)"

if [ -z "${OUTPOST_EDITORS_DIR:-}" ]; then
  OUTPOST_EDITORS_DIR="$(mktemp -d)"
  trap 'rm -rf "$OUTPOST_EDITORS_DIR"' EXIT
fi
"$here/install.sh" "$OUTPOST_EDITORS_DIR"

if [ -z "${OUTPOST_VSIX:-}" ]; then
  cd "$project/vscode-extension"
  [ -d node_modules ] || npm ci --silent --ignore-scripts
  [ -x node_modules/esbuild/bin/esbuild ] && npx --no-install esbuild --version >/dev/null
  npm run --silent package >"$OUTPOST_EDITORS_DIR/package.log" 2>&1 || { cat "$OUTPOST_EDITORS_DIR/package.log"; exit 1; }
  OUTPOST_VSIX="$(ls "$project"/vscode-extension/dist-packages/outpost-lsp-*.vsix | grep -Ev -- '-(linux|darwin)-' | tail -n 1)"
fi

export OUTPOST_EDITORS_DIR OUTPOST_VSIX
export OUTPOST_LSP="${OUTPOST_LSP:-$(command -v outpost-lsp)}"
export OUTPOST_PICTURES="${OUTPOST_PICTURES:-$project/build/pictures}"
mkdir -p "$OUTPOST_PICTURES"
cd "$here"
files=("$@")
[ "${#files[@]}" -gt 0 ] || files=(*.test.mjs)
node --test --test-concurrency=1 "${files[@]}"
