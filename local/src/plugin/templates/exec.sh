#!/bin/sh
# @NAME@: greets params.name.
set -eu

# Whoever needs more of the parameters than this reads the task from standard input with a parser for JSON.
name=$(printf '%s' "${JOB_PARAMS:-}" | sed -n 's/.*"name" *: *"\([^"\\]*\)".*/\1/p')
name=${name:-world}

# Says something to Disbatch: one line of JSON. Without a runner there is no control descriptor.
say() {
    if [ -n "${DISBATCH_CONTROL_FD:-}" ]; then
        printf '%s\n' "$1" >> "/dev/fd/$DISBATCH_CONTROL_FD"
    fi
}

say '{"progress": {"percent": 50, "message": "half of it"}}'
echo "Hello $name"
say "{\"result\": {\"greeted\": \"$name\"}}"
