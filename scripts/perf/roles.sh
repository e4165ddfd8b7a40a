# Sourced by the scripts of this folder that start roles by themselves: a directory `dir` and the list `pids`, which are gone when the script ends.
dir="$(mktemp -d)"
pids=()
finish() {
    for pid in "${pids[@]:-}"; do [ -z "$pid" ] || kill -9 "$pid" 2>/dev/null || true; done # the last full copy refuses a first SIGTERM
    wait 2>/dev/null || true
    rm -rf "$dir"
}
trap finish EXIT

await() { # FILE PID: until the file is there
    for _ in $(seq 1200); do
        [ -s "$1" ] && return
        kill -0 "$2" 2>/dev/null || { echo "process $2 ended early:" >&2; tail -5 "$dir"/*.log >&2; exit 1; }
        sleep 0.1
    done
    echo "no $1 within 120 s" >&2
    exit 1
}
