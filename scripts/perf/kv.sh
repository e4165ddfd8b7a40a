#!/usr/bin/env bash
# `apus bench kv`: operations per second, then instructions per operation (callgrind) in the data nodes and in the client.
#
#   scripts/perf/kv.sh [OPS]       OPS: operations of the smaller callgrind run (20000)
#   LOG=on scripts/perf/kv.sh      data nodes write logs; LOG=encrypted: encrypted ones
#
# Instructions come from pairs of runs with OPS and 2 x OPS keys: the difference divided by OPS leaves start and end out. What
# the nodes do by the clock (epochs, heartbeats) stays in, so small figures carry a few percent of it. Writes go to two
# replicas: the figure is the sum over both data nodes. Reads are answered by one node.
# CORE=1 counts in data nodes only what TC and LDM execute for signals, and no throughput is measured: for a machine that others use, too, where
# what is done by the clock is a large part of each operation.
set -euo pipefail
cd "$(dirname "$0")/../.."
apus="${APUS:-${CARGO_TARGET_DIR:-$PWD/target}/release/apus}"
ops="${1:-20000}"
batch="${BATCH:-32}"
. scripts/perf/roles.sh
port_of() { python3 -c 'import json,sys; f=json.load(open(sys.argv[1])); print("%s:%d" % (f["host"], f["port"]))' "$1"; }
total() { awk '/^(summary|totals):/ { n = $2 } END { print n + 0 }' "$@"; }

start() { # REPLICAS PREFIX...: a cluster whose data nodes run under the prefix; sets mgmt and data_pids
    local replicas="$1"
    shift
    rm -rf "$dir"/*.ready "$dir"/files-*
    "$apus" mgmt --groups=1 --replicas="$replicas" --dir="$dir" --ready-file="$dir/mgmt.ready" >"$dir/mgmt.log" 2>&1 &
    pids=($!)
    await "$dir/mgmt.ready" "$!"
    mgmt="$(port_of "$dir/mgmt.ready")"
    data_pids=()
    local node
    for node in $(seq "$replicas"); do
        local log=()
        [ "${LOG:-off}" = off ] || log+=(--data-dir="$dir/files-$node")
        [ "${LOG:-off}" != encrypted ] || log+=(--disk-key="$dir/disk.key")
        "$@" "$apus" data --node="$node" --mgmt="$mgmt" --memory=2048 --dir="$dir" --ready-file="$dir/data-$node.ready" "${log[@]}" \
            >"$dir/data-$node.log" 2>&1 &
        data_pids+=($!)
    done
    pids+=("${data_pids[@]}")
    for node in $(seq "$replicas"); do await "$dir/data-$node.ready" "${data_pids[$((node - 1))]}"; done
}
stop() {
    # The last full copy refuses a first SIGTERM.
    while kill "${data_pids[@]}" 2>/dev/null; do sleep 0.5; done
    wait "${data_pids[@]}" 2>/dev/null || true
    kill "${pids[0]}" 2>/dev/null || true
    wait "${pids[0]}" 2>/dev/null || true
    pids=()
}
bench() { # PHASES OPS
    "$apus" bench kv --mgmt="$mgmt" --phases="$1" --keys="$2" --ops="$2" --batch="$batch" --single-thread
}
grind=(valgrind --tool=callgrind --callgrind-out-file="$dir/cg.%p" --log-file="$dir/valgrind.%p")
node_grind=("${grind[@]}")
if [ -n "${CORE:-}" ]; then
    node_grind+=("--toggle-collect=*LocalDataManager*receive*" "--toggle-collect=*TransactionCoordinator*Block*receive*")
fi

node_instructions() { # REPLICAS PHASES OPS: all data nodes together
    rm -f "$dir"/cg.*
    start "$1" "${node_grind[@]}"
    bench "$2" "$3" >"$dir/bench.log" 2>&1 || { tail -5 "$dir/bench.log" >&2; exit 1; }
    stop
    local sum=0 file
    for file in "$dir"/cg.*; do sum=$((sum + $(total "$file"))); done
    echo "$sum"
}
client_instructions() { # PHASES OPS
    rm -f "$dir"/cg.*
    start 2 env
    "${grind[@]}" "$apus" bench kv --mgmt="$mgmt" --phases="$1" --keys="$2" --ops="$2" --batch="$batch" --single-thread \
        >"$dir/bench.log" 2>&1 || { tail -5 "$dir/bench.log" >&2; exit 1; }
    stop
    total "$dir"/cg.*
}
per_op() { echo $((($2 - $1) / ops)); }

[ "${LOG:-off}" != encrypted ] || "$apus" secret disk-key "$dir/disk.key" >/dev/null
if [ -z "${CORE:-}" ]; then
    echo "## operations per second"
    echo
    start 2 env
    "$apus" bench kv --mgmt="$mgmt" --seconds="${SECONDS_PER_PHASE:-5}" 2>/dev/null
    stop
    echo
fi
echo "## instructions per operation, $batch keys per request"
echo
echo "| operation | data node(s) | client |"
echo "|---|---:|---:|"
# Each phase needs the rows of the first, so its own cost is what it adds to insert alone.
insert_nodes="$(per_op "$(node_instructions 2 insert "$ops")" "$(node_instructions 2 insert $((2 * ops)))")"
insert_client="$(per_op "$(client_instructions insert "$ops")" "$(client_instructions insert $((2 * ops)))")"
echo "| insert, 2 replicas | $insert_nodes | $insert_client |"
for phase in read update delete; do
    nodes="$(per_op "$(node_instructions 2 "insert,$phase" "$ops")" "$(node_instructions 2 "insert,$phase" $((2 * ops)))")"
    client="$(per_op "$(client_instructions "insert,$phase" "$ops")" "$(client_instructions "insert,$phase" $((2 * ops)))")"
    echo "| $phase, 2 replicas | $((nodes - insert_nodes)) | $((client - insert_client)) |"
done
