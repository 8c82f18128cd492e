#!/usr/bin/env python3
"""@NAME@: greets params.name."""

import json
import os
import sys


def main():
    task = json.load(sys.stdin)
    name = task["params"].get("name", "world")

    # Without a runner there is no control descriptor, and what is said goes nowhere.
    number = os.environ.get("DISBATCH_CONTROL_FD")
    with open(int(number) if number else os.devnull, "w", buffering=1) as control:

        def say(**line):
            print(json.dumps(line), file=control)

        say(progress={"percent": 50, "message": "half of it"})
        print(f"Hello {name}")
        say(result={"greeted": name})


if __name__ == "__main__":
    main()
