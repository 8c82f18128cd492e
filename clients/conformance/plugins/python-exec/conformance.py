#!/usr/bin/env python3
"""The plugin of the conformance suite: does what `params.do` says."""

import os
import sys
import threading
from typing import Any

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path[:0] = [os.path.join(HERE, "../../../python/src"), os.path.join(HERE, "../..")]

from disbatch.plugin import Task, run, run_batch


def effects_of(url: str) -> Any:
    """Of all tasks, in a database of the plugin's own; the driver is where tests have it."""
    import tools

    sys.path.insert(1, str(tools.folder()))
    from pymongo import MongoClient

    return MongoClient(url)["shop"]["effects"]


def move(task: Task, url: str, status: int, *then: str) -> None:
    """The effect of the task and its end, in one transaction, and what follows."""
    effects = effects_of(url)
    for _ in range(2 if "again" in then else 1):
        with effects.database.client.start_session() as session, session.start_transaction():
            effects.insert_one({"task": task.id, "attempt": task.attempt}, session=session)
            task.commit(session, status)
            if "abort" in then or "abort at first" in then and task.attempt == 1:
                raise RuntimeError("aborted")
    if "fail" in then:
        raise RuntimeError("too late")


def act(task: Task, verb: str, *args: object) -> None:
    if verb == "tell":
        told = {"id": task.id, "queue": task.env["DISBATCH_QUEUE"], "storage": task.storage, "attempt": task.attempt}
        task.result(told)
    elif verb == "ask" and task.answer:
        task.result({"value": task.answer["value"], "attempt": task.answer["attempt"]})
    elif verb == "fail":
        raise RuntimeError(*args)
    elif verb == "move":
        move(task, *args)  # type: ignore[arg-type]
    elif verb == "effects":
        task.result({"attempts": [one["attempt"] for one in effects_of(str(args[0])).find({"task": args[1]})]})
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
