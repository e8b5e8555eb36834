#!/bin/bash
# Installs a real Visual Studio Code for tests into a folder: code-server with the system's Node 20, and the library that
# drives a browser. What is there already is left as it is. Chromium and ripgrep come from the system's packages.
#
#   install.sh FOLDER
set -euo pipefail

folder="$(mkdir -p "$1" && cd "$1" && pwd)"
code_server=4.100.3
playwright=1.65.1
mark="$folder/ready-$code_server-$playwright"
[ ! -e "$mark" ] || exit 0

as_root() {
  if [ "$(id -u)" -eq 0 ]; then "$@"; elif command -v sudo >/dev/null; then sudo "$@"; else return 1; fi
}

missing=()
command -v chromium >/dev/null || missing+=(chromium)
command -v rg >/dev/null || missing+=(ripgrep)
command -v g++ >/dev/null || missing+=(g++)
command -v make >/dev/null || missing+=(make)
if [ "${#missing[@]}" -gt 0 ]; then
  as_root apt-get update -qq
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi

# Headers of the system's Node, so that native parts are built without asking anybody.
node_folder="$(dirname "$(dirname "$(readlink -f "$(command -v node)")")")"
[ ! -d /usr/include/node ] || node_folder=/usr
export npm_config_nodedir="$node_folder" npm_config_audit=false npm_config_fund=false npm_config_update_notifier=false

cd "$folder"
echo '{"private": true}' >package.json
# No install script runs unless it is named below: some of them fetch programs from elsewhere.
npm install --silent --no-save --ignore-scripts "code-server@$code_server" "playwright-core@$playwright"
npm rebuild argon2 >argon2.log 2>&1
cd node_modules/code-server/lib/vscode
npm install --silent --omit=dev --ignore-scripts
for part in @vscode/spdlog native-watchdog @vscode/native-watchdog @parcel/watcher node-pty; do
  # The last step of node-pty's build fails although what it built is whole; loading it below is the proof.
  [ ! -d "node_modules/$part" ] || npm rebuild "$part" >"$folder/rebuild-${part##*/}.log" 2>&1 || true
done
node -e 'for (const part of ["@vscode/spdlog", "node-pty", "@parcel/watcher"]) require("./node_modules/" + part)'
mkdir -p node_modules/@vscode/ripgrep/bin
ln -sf "$(command -v rg)" node_modules/@vscode/ripgrep/bin/rg
ln -sfn node_modules node_modules.asar
touch "$mark"
