#!/usr/bin/env python3
"""A Disbatch plugin that counts the words of params.text or of the file params.file."""

import collections
import io
import json
import os
import re
import sys

CONTROL = os.environ.get("DISBATCH_CONTROL_FD")
WORD = re.compile(r"\w+(?:['\u2019]\w+)*")


def send(**message):
    """Sends one control line; when the plugin is run by hand there is nobody to send it to."""
    if CONTROL:
        os.write(int(CONTROL), json.dumps(message).encode() + b"\n")


def open_text(params):
    """The lines to count, in bytes so that they add up to the size, and that size."""
    text, path = params.get("text"), params.get("file")
    if isinstance(text, str) and path is None:
        data = text.encode()
        return io.BytesIO(data), len(data)
    if isinstance(path, str) and text is None:
        return open(path, "rb"), os.path.getsize(path)
    sys.exit("params must have either text or file, and it must be a string")


def count(lines, size):
    """Counts what there is, and tells how far it is at each further percent."""
    total = collections.Counter()
    frequency = collections.Counter()
    done = percent = 0
    for line in lines:
        text = line.decode(errors="replace")
        words = WORD.findall(text)
        total.update(lines=1, words=len(words), characters=len(text))
        frequency.update(word.lower() for word in words)
        done += len(line)
        if size and done * 100 // size > percent:
            percent = min(done * 100 // size, 100)
            send(progress={"percent": percent, "message": f"{total['words']} words"})
    return total, frequency


def main():
    task = json.load(sys.stdin)
    params = task.get("params") or {}
    top = params.get("top", 5)
    if not isinstance(top, int) or top < 0:
        sys.exit(f"params.top must be a number, 0 or more, got {json.dumps(top)}")
    try:
        lines, size = open_text(params)
    except OSError as error:
        sys.exit(f"cannot read params.file: {error}")
    with lines:
        total, frequency = count(lines, size)
    result = {key: total[key] for key in ("lines", "words", "characters")}
    result["top"] = [{"word": word, "count": n} for word, n in frequency.most_common(top)]
    send(result=result)
    print("{lines} lines, {words} words, {characters} characters".format(**result))
    for entry in result["top"]:
        print("{count:8} {word}".format(**entry))


if __name__ == "__main__":
    main()
