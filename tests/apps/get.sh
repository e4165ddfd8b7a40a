#!/usr/bin/env bash
# get.sh FOLDER PACKAGE...: unpacks Debian packages, with what they need and this machine lacks, into FOLDER. Nothing is installed: no service starts,
# and no file outside of FOLDER changes. Says nothing and does nothing where they are there.
set -euo pipefail
folder="$1"
shift
[ "$(cat "$folder/packages" 2>/dev/null)" = "$*" ] && exit 0

rm -rf "$folder"
mkdir -p "$folder"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/archives/partial"
fetch() {
    apt-get -qq -o Dir::Cache="$work" -o Debug::NoLocking=1 -o APT::Sandbox::User=root install -y --reinstall --no-install-recommends --download-only "$@" >"$work/log" 2>&1
}
# A new machine has no lists yet.
fetch "$@" || { apt-get -qq update >/dev/null; fetch "$@"; } || { tail -5 "$work/log"; exit 1; }
for package in "$work"/archives/*.deb; do
    dpkg -x "$package" "$folder"
done
echo "$*" >"$folder/packages"
