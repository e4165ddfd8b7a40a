#!/usr/bin/env bash
# Instructions of the SQL node per transaction of sysbench (callgrind), one connection, prepared statements and texts.
#
#   scripts/perf/sql.sh [EVENTS [WORKLOAD...]]      EVENTS: transactions of the smaller run (500)
#
# Instructions come from two runs with EVENTS and 2 x EVENTS transactions in one process: the difference divided by EVENTS leaves
# connecting out. What the node does by the clock stays in. Data nodes run beside it, without callgrind.
set -euo pipefail
cd "$(dirname "$0")/../.."
apus="${APUS:-${CARGO_TARGET_DIR:-$PWD/target}/release/apus}"
events="${1:-500}"
shift || true
workloads=("$@")
[ "${#workloads[@]}" -gt 0 ] || workloads=(oltp_point_select oltp_read_write oltp_update_index)
. scripts/perf/roles.sh
field() { python3 -c 'import json,sys; print(json.load(open(sys.argv[1]))[sys.argv[2]])' "$dir/$1.ready" "$2"; }
start() { # ROLE COMMAND...
    local role="$1"
    shift
    "$@" --ready-file="$dir/$role.ready" >"$dir/$role.log" 2>&1 &
    pids+=($!)
}

start mgmt "$apus" mgmt --groups=1 --replicas=2 --dir="$dir"
await "$dir/mgmt.ready" "${pids[0]}"
mgmt="127.0.0.1:$(field mgmt port)"
for node in 1 2; do start "data-$node" "$apus" data --node="$node" --mgmt="$mgmt" --memory=1024 --dir="$dir"; done
for node in 1 2; do await "$dir/data-$node.ready" "${pids[$node]}"; done
start sql valgrind --tool=callgrind --callgrind-out-file="$dir/cg" --log-file="$dir/valgrind" "$apus" sql --mgmt="$mgmt" --listen=127.0.0.1:0
await "$dir/sql.ready" "${pids[3]}"
port="$(field sql port)"

bench() { # WORKLOAD MODE VERB EVENTS
    sysbench "$1" --mysql-host=127.0.0.1 --mysql-port="$port" --mysql-user=root --mysql-db=sbtest --tables=1 --table-size=10000 --rand-type=uniform --rand-seed=1 \
        --db-ps-mode="$2" --threads=1 --time=0 --events="$4" "$3" >"$dir/bench.log" 2>&1 || { tail -5 "$dir/bench.log" >&2; exit 1; }
}
instructions() { # WORKLOAD MODE EVENTS: of one run
    rm -f "$dir"/cg*
    callgrind_control --zero "${pids[3]}" >/dev/null 2>&1
    bench "$1" "$2" run "$3"
    callgrind_control --dump "${pids[3]}" >/dev/null 2>&1
    awk '/^(summary|totals):/ { n = $2 } END { print n + 0 }' "$dir"/cg*
}

mariadb --host=127.0.0.1 --port="$port" --user=root -e 'CREATE DATABASE sbtest'
bench oltp_read_write auto prepare 0
echo "| workload | prepared | texts |"
echo "|---|---:|---:|"
for workload in "${workloads[@]}"; do
    row="| $workload |"
    for mode in auto disable; do
        bench "$workload" "$mode" run 50
        once="$(instructions "$workload" "$mode" "$events")"
        twice="$(instructions "$workload" "$mode" $((2 * events)))"
        row+=" $(((twice - once) / events)) |"
    done
    echo "$row"
done
