#!/usr/bin/env bash
# get.sh FOLDER PACKAGE=VERSION...: unpacks packages of Debian sid with all that they need into FOLDER, without touching the system. VERSION is the
# beginning of one. The package source is the one that this machine's apt already uses. Says nothing and does nothing where they are there; ends with 3
# where sid has other versions by now.
set -euo pipefail
folder="$1"
shift
[ "$(cat "$folder/packages" 2>/dev/null)" = "$*" ] && exit 0

mkdir -p "$folder"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/lists/partial" "$work/cache/archives/partial" "$work/parts"
: >"$work/status"
source="$(apt-get indextargets --format '$(REPO_URI) $(RELEASE)' 'Created-By: Packages' 'Origin: Debian' 'Label: Debian' | head -1 | cut -d' ' -f1)"
[ -n "$source" ] || { echo "apt knows no Debian source; run apt-get update"; exit 1; }
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $source sid main" >"$work/sources.list"
options=(-qq -o Dir::Etc::sourcelist="$work/sources.list" -o Dir::Etc::sourceparts="$work/parts" -o Dir::State::lists="$work/lists"
    -o Dir::State::status="$work/status" -o Dir::Cache="$work/cache" -o Dir::Cache::archives="$work/cache/archives" -o Debug::NoLocking=1
    -o APT::Sandbox::User=root -o APT::Install-Recommends=false -o Acquire::Languages=none)
apt-get "${options[@]}" update
exact=()
for wanted in "$@"; do
    name="${wanted%%=*}"
    found="$(apt-cache "${options[@]}" show "$name" | sed -n 's/^Version: //p' | grep "^${wanted#*=}" | head -1 || true)"
    [ -n "$found" ] || { echo "sid has no $wanted any more"; exit 3; }
    exact+=("$name=$found")
done
apt-get "${options[@]}" install -y --download-only "${exact[@]}" >/dev/null
for package in "$work"/cache/archives/*.deb; do
    dpkg -x "$package" "$folder"
done
echo "$*" >"$folder/packages"
