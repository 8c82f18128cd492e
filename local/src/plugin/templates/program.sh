#!/bin/sh
# @NAME@: greets params.name. It is started with --task FILE; its answer is the file with -response in its name.
set -eu

task=
while [ $# -gt 0 ]; do
    case $1 in
    --task) task=$2; shift 2 ;;
    *) shift ;;
    esac
done

name=$(sed -n 's/.*"name" *: *"\([^"\\]*\)".*/\1/p' "$task")
name=${name:-world}
answer=${task%.json}-response.json
printf '{"status": 1, "stdout": "Hello %s\\n", "stderr": null}\n' "$name" > "$answer.new"
mv "$answer.new" "$answer"
