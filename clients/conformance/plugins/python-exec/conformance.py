#!/usr/bin/env python3
"""The plugin of the conformance suite: does what `params.do` says."""

import os
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "../../../python/src"))

from disbatch.plugin import Task, run, run_batch


def act(task: Task, verb: str, *args: object) -> None:
    if verb == "tell":
        told = {"id": task.id, "queue": task.env["DISBATCH_QUEUE"], "storage": task.storage, "attempt": task.attempt}
        task.result(told)
    elif verb == "ask" and task.answer:
        task.result({"value": task.answer["value"], "attempt": task.answer["attempt"]})
    elif verb == "fail":
        raise RuntimeError(*args)
    elif verb == "until_cancelled":
        task.cancelled.wait()
        task.log("cancelled as asked")
    else:
        getattr(task, verb)(*args)


def work(task: Task) -> None:
    for step in task.params["do"]:
        act(task, *step)


def answer(task: Task) -> None:
    try:
        work(task)
        task.done()
    except Exception as error:
        task.log(str(error))
        task.done(1)


def work_all(tasks: list[Task]) -> None:
    threads = [threading.Thread(target=answer, args=(task,)) for task in tasks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if sys.argv[1:] == ["batch"]:
    run_batch(work_all)
else:
    run(work)
