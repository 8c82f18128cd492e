# Times and memory, for the scripts that source it.

# Seconds since the moment $1 ($EPOCHREALTIME).
since() { awk -v a="$1" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.1f s", b - a }'; }

# The process $1 and all below it.
family() {
    local child
    echo "$1"
    for child in $(pgrep -P "$1"); do family "$child"; done
}

# What the processes called $2 take of memory, of $1 and all below it. What several share is divided.
memory() {
    local process
    for process in $(family "$1"); do
        [ "$(cat "/proc/$process/comm" 2>/dev/null)" != "$2" ] || cat "/proc/$process/smaps_rollup"
    done | awk '/^Pss:/ { sum += $2 } END { printf "%d MiB", sum / 1024 + 0.5 }'
}
