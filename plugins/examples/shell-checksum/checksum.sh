#!/bin/sh
# A Disbatch plugin in POSIX shell: prints the checksum of the file params.file.
set -eu

# Sends one control line; when the plugin is run by hand there is nobody to send it to.
# /dev/fd, since some shells take no number above 9 after ">&"; ">>", so that a file given by hand is kept.
control() {
    [ -n "${DISBATCH_CONTROL_FD:-}" ] || return 0
    printf '%s\n' "$1" >> "/dev/fd/$DISBATCH_CONTROL_FD" || :
}

fail() {
    printf '%s\n' "$1" >&2
    exit 1
}

# Prints the text that a key of JOB_PARAMS has, nothing if it has none.
# Exact for the params of this plugin, because without a backslash no quote is part of a text.
param() {
    printf '%s\n' "$JOB_PARAMS" | sed -n 's/.*"'"$1"'" *: *"\([^"]*\)".*/\1/p'
}

case ${JOB_PARAMS:-} in
    '') fail 'JOB_PARAMS is not set, or params are too long for it' ;;
    *\\*) fail 'params must have no backslashes, quotes or control characters in a text' ;;
esac

file=$(param file)
algorithm=$(param algorithm)
[ -n "$file" ] || fail 'params.file is missing'

case ${algorithm:=sha256} in
    md5 | sha1 | sha256 | sha512) ;;
    *) fail "params.algorithm must be md5, sha1, sha256 or sha512, got $algorithm" ;;
esac

if [ ! -e "$file" ]; then
    control '{"status":3}'
    fail "no such file: $file"
fi

# From standard input, so that no file name can be taken for an option or change how the line is written.
sum=$("${algorithm}sum" <"$file")
sum=${sum%% *}
control "{\"result\":{\"algorithm\":\"$algorithm\",\"checksum\":\"$sum\"}}"
printf '%s  %s\n' "$sum" "$file"
