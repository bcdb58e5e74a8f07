#!/bin/sh
# Compare the scopes of every word in the files beside this one with their snapshots; `--updateSnapshot` writes them.
# The grammars of Markdown and Python are the editor's: here, bare ones stand for them.
set -e
cd "$(dirname "$0")"
npx --no-install vscode-tmgrammar-snap "$@" --config manifest.json "*.ix" "*.md" "*.py"
