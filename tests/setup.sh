#!/usr/bin/env bash
# Installs what the scenarios need and is missing (Debian packages, Python drivers), and builds the clients of compiled languages.
# Quiet and repeatable; everything of ours goes below the cargo target directory.
set -euo pipefail
cd "$(dirname "$0")/.."
target="${CARGO_TARGET_DIR:-$PWD/target}"
out="$target/test-clients"
mkdir -p "$out"

missing=()
need() { command -v "$1" >/dev/null 2>&1 || [ -x "/usr/sbin/$1" ] || missing+=("$2"); }
need sysbench sysbench
need mariadb mariadb-client
need mariadbd mariadb-server-core
need valgrind valgrind
need mariadb_config libmariadb-dev
need gcc gcc
need pkg-config pkg-config
need mvn maven
need java default-jdk-headless
need go golang-go
need node nodejs
need npm npm
need stdbuf coreutils
need ip iproute2
need nft nftables
need openssl openssl
# mariadb-server-core is the server without the service: the tests start their own on a private directory.
python3 -c 'import ensurepip' >/dev/null 2>&1 || missing+=(python3-venv)
if [ "${#missing[@]}" -gt 0 ]; then
    echo "installing ${missing[*]}"
    sudo=""
    [ "$(id -u)" = 0 ] || sudo="sudo -n"
    export DEBIAN_FRONTEND=noninteractive
    $sudo apt-get update -qq >/dev/null
    $sudo apt-get install -y -qq --no-install-recommends "${missing[@]}" >"$out/apt.log" 2>&1 || { tail -20 "$out/apt.log"; exit 1; }
fi

# Pinned, so that a new release of a driver is a commit of ours.
drivers=(PyMySQL==1.1.1 mysql-connector-python==9.2.0 SQLAlchemy==2.0.36 Django==5.1.4 alembic==1.20.1 peewee==4.5.3 pyodbc==5.5.0 zstandard==0.23.0
    pexpect==4.9.0 websocket-client==1.8.0)
# python NAME PACKAGE...: an environment of its own in $out/NAME.
python() {
    local folder="$out/$1"
    shift
    [ "$(cat "$folder/packages" 2>/dev/null)" != "$*" ] || return 0
    echo "installing $*"
    rm -rf "$folder"
    python3 -m venv "$folder"
    "$folder/bin/python" -m pip install -q --disable-pip-version-check "$@"
    echo "$*" >"$folder/packages"
}
python venv "${drivers[@]}"
# Its PyMySQL is newer than that of the tests.
python mycli mycli==2.30.1

if [ ! -e "$out/cursor-client" ] || [ tests/clients/c/cursor.c -nt "$out/cursor-client" ]; then
    echo "building the C client"
    gcc -O1 -Wall -o "$out/cursor-client" tests/clients/c/cursor.c $(mariadb_config --cflags --libs)
fi

echo "building the Go clients"
(cd tests/clients/go && go build -o "$out/go-client" .)
(cd tests/clients/gorm && go build -o "$out/gorm-client" .)

echo "building the Rust clients"
(cd tests/clients/rust && CARGO_TARGET_DIR="$out/rust" cargo build --locked --quiet && cp "$out/rust/debug/apus-rust-client" "$out/rust-client")

# build_java SOURCES NAME: the classes into $out/NAME, and what they need into $out/NAME-classpath.
build_java() {
    [ -e "$out/$2-classpath" ] && [ -z "$(find "$1" -newer "$out/$2-classpath" -type f | head -1)" ] && return
    echo "building $1"
    (cd "$1" && mvn -q -B -Dapus.out="$out/$2-build" dependency:build-classpath -Dmdep.outputFile="$out/$2-classpath.new")
    rm -rf "${out:?}/$2"
    javac -nowarn -XDsuppressNotes -encoding UTF-8 -cp "$(cat "$out/$2-classpath.new")" -d "$out/$2" "$1"/src/main/java/apus/*.java
    [ ! -d "$1/src/main/resources" ] || cp -r "$1/src/main/resources/." "$out/$2/"
    mv "$out/$2-classpath.new" "$out/$2-classpath"
    touch "$out/$2-classpath"
}
build_java tests/clients/java java
build_java tests/clients/orm-java orm-java

# What package-lock.json pins; none of its scripts is run.
if ! cmp -s tests/clients/node/package-lock.json "$out/node/installed"; then
    echo "installing the Node.js clients"
    rm -rf "$out/node/prisma" # made by the Prisma of before
    mkdir -p "$out/node"
    cp tests/clients/node/package.json tests/clients/node/package-lock.json "$out/node/"
    (cd "$out/node" && npm ci --silent --ignore-scripts --no-audit --no-fund)
    cp tests/clients/node/package-lock.json "$out/node/installed"
fi
if ! cmp -s tests/clients/node/prisma/schema.prisma "$out/node/prisma/schema.prisma"; then
    echo "generating the client of Prisma"
    mkdir -p "$out/node/prisma"
    # It asks for the engine of its migrations, which is in no registry, and does not use it.
    cp tests/clients/node/prisma/schema.prisma "$out/node/prisma/new.prisma"
    (cd "$out/node" && PRISMA_SCHEMA_ENGINE_BINARY=/bin/true CHECKPOINT_DISABLE=1 PRISMA_HIDE_UPDATE_MESSAGE=1 npx prisma generate --schema prisma/new.prisma) >"$out/prisma.log" 2>&1 ||
        { tail -20 "$out/prisma.log"; exit 1; }
    mv "$out/node/prisma/new.prisma" "$out/node/prisma/schema.prisma"
fi
