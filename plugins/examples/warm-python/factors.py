#!/usr/bin/env python3
"""A Disbatch plugin that factorises params.number.

Making the table of primes takes longer than any task, so the manifest says that the plugin is warm: one process
makes the table once, and takes task after task. Without DISBATCH_WARM in its environment, as when it is tried
by hand, it does the one task on its standard input. All below work() serves any other plugin as well.
"""

import json
import os
import sys
import traceback

LARGEST = 10**12


def primes_up_to(limit):
    sieve = bytearray([1]) * (limit + 1)
    sieve[:2] = b"\0\0"
    for n in range(2, int(limit**0.5) + 1):
        if sieve[n]:
            sieve[n * n :: n] = bytes(len(range(n * n, limit + 1, n)))
    return [n for n in range(limit + 1) if sieve[n]]


PRIMES = primes_up_to(int(LARGEST**0.5))


def work(task, send):
    """Does one task. What is printed is its output; sys.exit() and exceptions end it, and only it."""
    number = task["params"].get("number")
    if not isinstance(number, int) or not 2 <= number <= LARGEST:
        sys.exit(f"params.number must be an integer from 2 to {LARGEST}, got {json.dumps(number)}")
    rest, factors = number, []
    for prime in PRIMES:
        if prime * prime > rest:
            break
        while rest % prime == 0:
            rest //= prime
            factors.append(prime)
    if rest > 1:
        factors.append(rest)
    print(number, "=", " * ".join(map(str, factors)))
    send(result={"factors": factors})


def send(**message):
    """Sends one control line; when the plugin is run by hand there is nobody to send it to."""
    if "DISBATCH_CONTROL_FD" in os.environ:
        line = json.dumps(message).encode() + b"\n"
        while line:
            line = line[os.write(int(os.environ["DISBATCH_CONTROL_FD"]), line) :]


def attempt(task):
    """Does one task, and returns what would be the exit status of a process of its own."""
    code = 0
    try:
        work(task, send)
    except SystemExit as end:
        if isinstance(end.code, int) or end.code is None:
            code = (end.code or 0) & 255
        else:
            print(end.code, file=sys.stderr)
            code = 1
    except Exception:
        traceback.print_exc()
        code = 1
    # Before the task is said to be done: what comes later is not its output.
    sys.stdout.flush()
    sys.stderr.flush()
    return code


def main():
    if os.environ.get("DISBATCH_WARM") != "1":
        sys.exit(attempt(json.load(sys.stdin)))
    own = dict(os.environ)
    for line in sys.stdin:
        message = json.loads(line)
        # The task before may have had others.
        os.environ.clear()
        os.environ.update({**own, **message["env"]})
        code = attempt(message["task"])
        send(done={"id": os.environ["DISBATCH_TASK_ID"], "exit": code})


if __name__ == "__main__":
    main()
