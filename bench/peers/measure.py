"""What the Python scripts share: the command line, the named pipe, and the wait for the last job."""
import json
import os
import sys
import time

POLL = 0.01
DEADLINE = 300


def pipe_path():
    return os.path.join(os.environ["BENCH_FOLDER"], "starts")


def started():
    """Called by a job first of all: says when it began."""
    now = time.time_ns()
    pipe = os.open(pipe_path(), os.O_WRONLY)
    os.write(pipe, b"%d\n" % now)
    os.close(pipe)


def wait_for(count, all_jobs):
    """Until `count()` has come to `all_jobs`. It fails when nothing moves."""
    deadline = time.monotonic() + DEADLINE
    while (done := count()) < all_jobs:
        if time.monotonic() > deadline:
            sys.exit(f"{done} of {all_jobs} jobs are done, and no more")
        time.sleep(POLL)


def drain(prepare, release, count, jobs, width):
    """Warms up with `width` * 2 jobs, then times `jobs` of them."""
    warm = width * 2
    prepare(warm)
    release()
    wait_for(count, warm)
    prepare(jobs)
    time.sleep(1)
    begun = time.monotonic()
    release()
    wait_for(count, warm + jobs)
    print(json.dumps({"seconds": time.monotonic() - begun}), flush=True)


def latency(submit, samples):
    """One job at a time; the first one is not counted, since it makes connections."""
    os.mkfifo(pipe_path())
    # Open for both, so that the end of one job is not the end of the file.
    pipe = os.fdopen(os.open(pipe_path(), os.O_RDWR), "rb", buffering=0)
    waited = []
    for number in range(samples + 1):
        time.sleep(0.2 + number * 37 % 100 / 1000)
        begun = time.time_ns()
        submit()
        waited.append((int(pipe.readline()) - begun) / 1e6)
    print(json.dumps({"milliseconds": waited[1:]}), flush=True)
