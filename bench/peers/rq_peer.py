"""RQ: its usual worker, which forks for each job; as many workers as jobs are to run at once."""
import logging
import os
import signal
import sys

import redis
from rq import Queue, Worker
from rq.job import Job, JobStatus

import measure


def nothing():
    pass


def work():
    """A worker in a process of its own, forked from this one, which spares it reading its program again."""
    pid = os.fork()
    if pid:
        return pid
    logging.disable(logging.CRITICAL)
    Worker([Queue(connection=connect())], connection=connect()).work(logging_level="ERROR")
    os._exit(0)


def connect():
    return redis.Redis.from_url(os.environ["BENCH_ADDRESS"])


def drain(jobs, width):
    connection = connect()
    queue = Queue(connection=connection)
    waiting = []

    def prepare(count):
        pipeline = connection.pipeline()
        for _ in range(count):
            job = Job.create(rq_peer.nothing, connection=connection, origin=queue.name, status=JobStatus.QUEUED)
            job.save(pipeline=pipeline)
            waiting.append(job.id)
        pipeline.execute()

    def release():
        connection.rpush(queue.key, *waiting)
        waiting.clear()

    measure.drain(prepare, release, lambda: connection.zcard(queue.finished_job_registry.key), jobs, width)


def main():
    command, number = sys.argv[1], int(sys.argv[2])
    width = int(sys.argv[3]) if command == "drain" else 1
    connect().flushdb()
    workers = [work() for _ in range(width)]
    try:
        if command == "drain":
            drain(number, width)
        else:
            queue = Queue(connection=connect())
            measure.latency(lambda: queue.enqueue(measure.started), number)
    finally:
        for pid in workers:
            os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    import rq_peer  # Jobs are functions of a module with a name.

    main()
