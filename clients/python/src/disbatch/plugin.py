"""Writes a plugin. See docs/plugins.md for what a plugin is; this module needs nothing but the standard library.

    from disbatch.plugin import Task, run

    def greet(task: Task) -> None:
        print("Hello", task.params["name"])
        task.result({"greeted": 1})

    run(greet)
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import queue
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any, NoReturn, TextIO

MAX_SAVED = 1024 * 1024
# In characters. A control line has at most 2 MiB; a character has six bytes at most as JSON.
MAX_TEXT = 256 * 1024


class _Control:
    """The control descriptor, or its path in a container or a pod. Without a runner, as when a plugin is tried by hand, what is sent goes nowhere."""

    def __init__(self) -> None:
        number, path = os.environ.get("DISBATCH_CONTROL_FD"), os.environ.get("DISBATCH_CONTROL")
        self._fd = int(number) if number else None
        if self._fd is None and path:
            try:
                self._fd = os.open(path, os.O_WRONLY | os.O_APPEND)
            except OSError as error:
                sys.stderr.write(f"cannot open DISBATCH_CONTROL: {error}; progress and results are lost\n")
        self._lock = threading.Lock()

    def send(self, message: Mapping[str, Any]) -> None:
        if self._fd is None:
            return
        # In ASCII an emoji has twelve bytes in place of four. The runner takes no surrogate alone, as names of files may have: that is `?`.
        line = json.dumps(message, default=_extended, allow_nan=False, ensure_ascii=False).encode(errors="replace") + b"\n"
        with self._lock:
            while line:
                line = line[os.write(self._fd, line) :]


def _extended(value: Any) -> Any:
    """Times are dates of the database."""
    if isinstance(value, datetime) and value.tzinfo is not None:
        return {"$date": value.astimezone(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")}
    raise TypeError(f"{value!r} cannot be sent as JSON")


class Task:
    """A task, as its plugin gets it."""

    def __init__(
        self, document: Mapping[str, Any], *, env: Mapping[str, str] | None = None, work_dir: str | None = None,
        control: _Control | None = None, in_batch: bool = False,
    ) -> None:
        if not isinstance(document, Mapping):
            raise ValueError(f"the task must be an object, got {document!r}")
        self.document = {key: value for key, value in document.items() if key != "secure_params"}
        # What is in `env` differs from task to task, also where one process takes many.
        self.env: Mapping[str, str] = os.environ if env is None else env
        self.work_dir = work_dir or self.env.get("DISBATCH_WORK_DIR") or "."
        self.params: dict[str, Any] = document.get("params") or {}
        # Not part of `document`, so that it is not printed with it.
        self.secure_params: dict[str, Any] = document.get("secure_params") or {}
        # What an earlier run has saved.
        self.storage: Any = document.get("storage")
        # The answer to what the attempt before has asked: `value`, `by`, `at` and `attempt`.
        self.answer: dict[str, Any] | None = document.get("answer")
        self.cancelled = threading.Event()
        self.is_done = False
        self._control = control or _Control()
        self._in_batch = in_batch

    @classmethod
    def from_stdin(cls) -> Task:
        """The task of a process that has been started for it alone."""
        return cls(json.load(sys.stdin))

    @property
    def id(self) -> str:
        return _id(self.document.get("_id")) or self.env.get("DISBATCH_TASK_ID", "")

    @property
    def queue(self) -> str:
        """The queue's id; its name is `env["DISBATCH_QUEUE"]`."""
        return _id(self.document.get("queue"))

    @property
    def attempt(self) -> int:
        return int(self.env.get("DISBATCH_ATTEMPT") or 1)

    def progress(self, percent: float | None = None, message: str | None = None) -> None:
        """How far it is, from 0 to 100, and what it does."""
        progress: dict[str, Any] = {}
        if percent is not None and percent == percent:
            progress["percent"] = min(100, max(0, percent))
        if message:
            progress["message"] = message
        if progress:
            self._send(progress=progress)

    def result(self, value: Mapping[str, Any]) -> None:
        """The structured result. The last one wins."""
        if not isinstance(value, Mapping):
            raise ValueError("result must be an object")
        self._send(result=_sized("result", value))

    def save(self, value: Any) -> None:
        """What the next run finds in `storage`. The last one wins."""
        self._send(storage=_sized("storage", value))

    def ask(
        self, title: str, form: Mapping[str, Any] | None = None, *, who: Sequence[str] = (), deadline: float | str | None = None,
        on_deadline: str = "cancel",
    ) -> None:
        """Asks a person: return after this, and the next attempt has `answer`. `form` is a JSON Schema of it, `who` has users and roles
        (`role:operator`), `deadline` is in seconds or a time, and then `on_deadline` is done: `cancel` or `continue`."""
        question = {"title": title, "form": form, "who": list(who), "deadline": deadline, "on_deadline": on_deadline}
        self._send(**{"await": {key: value for key, value in question.items() if value is not None}})

    def interrupted(self) -> None:
        """It has stopped where it was, as SIGTERM told it to: save what the next attempt goes on with, and return after this. Needs
        `"interruptible": true` in the manifest."""
        self._send(interrupted=True)

    def status(self, status: int) -> None:
        """The final status in place of 1: a positive number."""
        self._send(status=_final(status))

    def commit(self, session: Any, status: int = 1) -> Any:
        """Ends the task with `status` in the transaction of `session`, as its last statement: the effects are there and the task has
        ended, or neither. To be awaited with an `AsyncClientSession`. Needs `"commits": true` in the manifest.

        pymongo's `DuplicateKeyError` says that the run has lost its task, or has ended it before: let the transaction be aborted.
        """
        document = self.commit_document(status)
        if not session.in_transaction:
            raise ValueError("commit needs a session with a transaction")
        database = session.client[self.env["DISBATCH_DATABASE"]]
        return database["tasks.commits"].insert_one(document, session=session)

    def commit_document(self, status: int = 1) -> dict[str, Any]:
        """What `commit` inserts into the collection `tasks.commits` of the database `env["DISBATCH_DATABASE"]`."""
        name = self.env.get("DISBATCH_COMMIT")
        if not name:
            raise ValueError('the task cannot be committed: its manifest has no "commits": true, or another step comes after this one')
        return {"_id": name, "status": _final(status)}

    def report(self, document: Mapping[str, Any]) -> None:
        """Adds a document to the collection `reports`."""
        self._send(report=document)

    def log(self, text: str) -> None:
        """A line of the task's standard error, at once."""
        self._write("stderr", f"{text}\n")

    def print(self, text: str) -> None:
        """A line of the task's standard output, at once; also in batches, where `print` belongs to no task."""
        self._write("stdout", f"{text}\n")

    def done(self, exit: int = 0) -> None:
        """In a batch: the task is over, and failed unless `exit` is 0. What was not answered when `work` returns is over then."""
        if self.is_done:
            raise ValueError(f"the task {self.id} is over already")
        self.is_done = True
        if self._in_batch:
            self._send(done={"exit": exit})
        else:
            self._control.send({"done": {"id": self.id, "exit": exit}})

    def _write(self, stream: str, text: str) -> None:
        if not self._in_batch:
            target = sys.stderr if stream == "stderr" else sys.stdout
            target.write(text)
            target.flush()
            return
        for first in range(0, len(text), MAX_TEXT):
            self._control.send({"id": self.id, stream: text[first : first + MAX_TEXT]})

    def _send(self, **message: Any) -> None:
        self._control.send({"id": self.id, **message} if self._in_batch else message)


def _id(value: Any) -> str:
    if isinstance(value, Mapping):
        value = value.get("$oid")
    return value if isinstance(value, str) else ""


def _final(status: Any) -> int:
    if not isinstance(status, int) or status < 1:
        raise ValueError(f"status must be a positive integer, got {status!r}")
    return status


def _sized(name: str, value: Any) -> Any:
    size = len(json.dumps(value, default=_extended, ensure_ascii=False).encode(errors="replace"))
    if size > MAX_SAVED:
        raise ValueError(f"{name} must have at most {MAX_SAVED} bytes, got {size}")
    return value


Work = Callable[[Task], object]


def _attempt(work: Callable[[], object]) -> tuple[int, str]:
    """Does it, and returns what would be the exit status of a process of its own, and why."""
    try:
        work()
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return (end.code or 0) & 255, ""
        return 1, f"{end.code}\n"
    except Exception:
        return 1, traceback.format_exc()
    return 0, ""


def is_warm() -> bool:
    """Whether the runner gives this process task after task."""
    return os.environ.get("DISBATCH_WARM") == "1"


def run(work: Work) -> NoReturn:
    """Does the task on standard input, or where the manifest says `warm`, one task after the other; then exits.

    An exception is a failure: it is printed on standard error. So is `sys.exit`.
    """
    if is_warm():
        run_warm(work)
    code, why = _attempt(lambda: work(Task.from_stdin()))
    sys.stderr.write(why)
    sys.exit(code)


def run_warm(work: Work) -> NoReturn:
    """Does task after task, also those of a manifest with `batch`, one at a time; without a runner, the one on standard input."""
    if not is_warm():
        run(work)
    control = _Control()
    for line in sys.stdin:
        tasks, in_batch = _tasks(line, control)
        for task in tasks:
            with _standing_for(task) if in_batch else _environment(task):
                code, why = _attempt(lambda: work(task))
                if why:
                    task._write("stderr", why)
                # Before the task is said to be done: what comes later is not its output.
                sys.stdout.flush()
                sys.stderr.flush()
            task.done(code)
    sys.exit(0)


def run_batch(work: Callable[[list[Task]], object]) -> NoReturn:
    """Gives `work` all tasks of a line at once: those of a manifest with `batch`. Answer each with `done` as soon as it is.

    What `work` has not answered when it returns has succeeded; if it raises, that has failed. A task that is to end has
    `cancelled` set. Without a runner, `work` gets the one task on standard input.
    """
    if not is_warm():
        run(lambda task: work([task]))
    control = _Control()
    lines: queue.Queue[tuple[list[Task], bool] | Exception | None] = queue.Queue()
    known: dict[str, Task] = {}

    def read() -> None:
        # Whoever works reads no lines, and is to hear of a cancel all the same. So is a task that waits for its turn.
        try:
            for line in sys.stdin:
                about = json.loads(line).get("cancel")
                if about is None:
                    tasks, in_batch = _tasks(line, control)
                    known.update((task.id, task) for task in tasks)
                    lines.put((tasks, in_batch))
                elif task := known.get(about["id"]):
                    task.cancelled.set()
            lines.put(None)
        except Exception as error:
            lines.put(error)

    threading.Thread(target=read, daemon=True).start()
    while (one := lines.get()) is not None:
        if isinstance(one, Exception):
            raise one
        tasks, in_batch = one
        code, why = _attempt(lambda: work(tasks))
        for task in tasks:
            if not task.is_done:
                if why:
                    task._write("stderr", why)
                if not in_batch:
                    sys.stdout.flush()
                    sys.stderr.flush()
                task.done(code)
            # Its next attempt may wait already.
            if known.get(task.id) is task:
                del known[task.id]
    sys.exit(0)


def _tasks(line: str, control: _Control) -> tuple[list[Task], bool]:
    """The tasks of a line, and whether they may be several."""
    message = json.loads(line)
    entries = message.get("tasks")
    in_batch = entries is not None
    if not in_batch:
        entries = [message] if "task" in message else []
    return [
        Task(entry["task"], env=entry.get("env") or {}, work_dir=entry.get("work_dir"), control=control, in_batch=in_batch)
        for entry in entries
    ], in_batch


@contextlib.contextmanager
def _environment(task: Task) -> Iterator[None]:
    """Programs that the task starts have its variables, as if the process were its own. The next task may lack some of them."""
    before = {name: os.environ.get(name) for name in task.env}
    os.environ.update(task.env)
    yield
    for name, value in before.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


class _Printed(io.TextIOBase):
    def __init__(self, task: Task, stream: str) -> None:
        self._task, self._stream = task, stream

    def write(self, text: str) -> int:
        self._task._write(self._stream, text)
        return len(text)


@contextlib.contextmanager
def _standing_for(task: Task) -> Iterator[None]:
    """What is printed in a batch would belong to no task."""
    out: TextIO = _Printed(task, "stdout")  # type: ignore[assignment]
    err: TextIO = _Printed(task, "stderr")  # type: ignore[assignment]
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        yield
