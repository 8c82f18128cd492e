"""Celery: prefork on Redis. BENCH_VARIANT=child replaces each worker process after one task."""
import os
import subprocess
import sys

import redis
from celery import Celery

import measure

ADDRESS = os.environ["BENCH_ADDRESS"]
# Results have a database of their own, whose size is the number of finished jobs.
app = Celery("celery_peer", broker=ADDRESS + "/0", backend=ADDRESS + "/1")
app.conf.worker_hijack_root_logger = False
app.conf.broker_connection_retry_on_startup = True


@app.task(name="nothing")
def nothing():
    pass


@app.task(name="started")
def started():
    measure.started()


def worker(width):
    command = [sys.executable, "-m", "celery", "-A", "celery_peer", "worker", "-P", "prefork", "-c", str(width)]
    # What workers tell each other is not needed, and takes time.
    command += ["-l", "ERROR", "--without-gossip", "--without-mingle", "--without-heartbeat"]
    if os.environ.get("BENCH_VARIANT") == "child":
        command += ["--max-tasks-per-child", "1"]
    log = open(os.path.join(os.environ["BENCH_FOLDER"], "celery.log"), "wb")
    return subprocess.Popen(command, stdout=log, stderr=log, cwd=os.path.dirname(os.path.abspath(__file__)))


def drain(jobs, width):
    queue = redis.Redis.from_url(ADDRESS + "/0")
    results = redis.Redis.from_url(ADDRESS + "/1")

    def prepare(count):
        with app.producer_pool.acquire(block=True) as producer:
            for _ in range(count):
                nothing.apply_async(queue="held", producer=producer)

    # One command makes the list that nobody reads the one that the worker waits for.
    measure.drain(prepare, lambda: queue.rename("held", "celery"), results.dbsize, jobs, width)


def main():
    os.environ["PYTHONPATH"] = os.path.dirname(os.path.abspath(__file__))
    redis.Redis.from_url(ADDRESS).flushall()
    command, number = sys.argv[1], int(sys.argv[2])
    process = worker(int(sys.argv[3]) if command == "drain" else 8)
    try:
        if command == "drain":
            drain(number, int(sys.argv[3]))
        else:
            measure.latency(celery_peer.started.delay, number)
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


if __name__ == "__main__":
    import celery_peer  # Tasks belong to the module that the worker reads.

    main()
