"""What each method asks the server, without a word about how: `Client` and `AsyncClient` send the calls."""

from __future__ import annotations

import json
import math
import random
import time
import uuid
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar, Union
from urllib.parse import quote

from ._errors import (
    ApiError,
    DisbatchError,
    ProtocolError,
    QuotaExceeded,
    Rejected,
    TaskFailed,
    TooManyRequests,
    Unreachable,
    VersionError,
    WaitTimeout,
    api_error,
)
from ._types import Event, Json, TaskInfo
from ._version import VERSION

T = TypeVar("T")

# One question to the server: a proxy in between may give up on a connection that is silent for a minute.
LONG_POLL = 50
# The server asks for less than 16 MiB in one body, and remembers what one key has made.
MOST_TASKS = 1000
MOST_BYTES = 8 * 1024 * 1024
PAGE = 1000
# Seconds before the next question after one that was answered too early.
EARLY = 0.2
# Seconds after which a stream has come about, though it was silent.
STEADY = 5.0

WORDS = {
    -7: "deferred",
    -6: "orphaned",
    -5: "cancelled",
    -4: "blocked",
    -3: "terminated",
    -2: "queued",
    -1: "claimed",
    0: "running",
    1: "succeeded",
    2: "failed",
}
ENDED_WITHOUT_RESULT = (-6, -5, -3)
# Lists whose texts may have commas.
TAGS = ("tags", "any_tags")


@dataclass(frozen=True)
class Call:
    """A request. `repeatable`: doing it twice is as good as once."""

    method: str
    path: str
    query: Mapping[str, Any] = field(default_factory=dict)
    body: Json = None
    content: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    repeatable: bool = False
    patience: float = 0.0
    # Seconds before it is sent.
    delay: float = 0.0

    @property
    def name(self) -> str:
        return f"{self.method} {self.path}"

    @property
    def target(self) -> str:
        query = "&".join(
            f"{quote(key, safe='.')}={quote(as_json(value) if key in TAGS and value else as_text(value), safe=',:')}"
            for key, value in self.query.items()
            if value is not None
        )
        return f"{self.path}?{query}" if query else self.path

    def sent(self) -> tuple[bytes | None, dict[str, str]]:
        """The body and the headers."""
        headers = {"Accept": "application/json", **self.headers}
        if self.content is not None:
            headers["Content-Type"] = "application/octet-stream"
            return self.content, headers
        if self.body is not None:
            headers["Content-Type"] = "application/json"
            return encode(self.body), headers
        return None, headers


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    content: bytes

    def json(self, call: Call) -> Any:
        try:
            return json.loads(self.content)
        except ValueError as error:
            raise ProtocolError(f"{call.name}: the answer is no JSON; is this the address of a DCI?") from error


# Calls to be sent, and work that takes its time.
Steps = Generator[Union[Call, Callable[[], Any]], Any, T]


def get(path: str, patience: float = 0.0, **query: Any) -> Call:
    options = {("." + key[1:] if key.startswith("_") else key): value for key, value in query.items()}
    return Call("GET", path, options, repeatable=True, patience=patience)


def post(path: str, body: Json, repeatable: bool = False) -> Call:
    return Call("POST", path, body=body, repeatable=repeatable)


def segment(text: str) -> str:
    if text in ("", ".", ".."):
        raise ValueError(f"{text!r} cannot be part of an address")
    return quote(text, safe="")


def as_text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return ",".join(as_text(part) for part in value)
    return str(plain(value))


def as_json(value: Any) -> str:
    return encode(value).decode() if isinstance(value, (list, tuple)) else as_text(value)


def plain(value: Any) -> Any:
    """What JSON has no word for: times in UTC, and durations in seconds."""
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise ValueError(f"{value!r} has no time zone: use datetime.now(timezone.utc), for instance")
        return value.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    if isinstance(value, timedelta):
        return value.total_seconds()
    return value


def strict(value: Any) -> Any:
    known = plain(value)
    if known is value:
        raise TypeError(f"{value!r} cannot be sent as JSON")
    return known


def encode(body: Json) -> bytes:
    return json.dumps(body, default=strict, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def dotted(options: Mapping[str, Any], names: Iterable[str] | None = None) -> dict[str, Any]:
    """Options with their dot: all, or those of these names."""
    return {
        ("." + key if names is None or key in names else key): value
        for key, value in options.items()
        if value is not None or names is not None
    }


# How requests are repeated.


@dataclass(frozen=True)
class Retries:
    """Up to `most` repetitions; before the n-th there is a pause of up to `base` * 2^n seconds, at most `longest`."""

    most: int
    base: float
    longest: float
    longest_asked: float

    def pause(self, error: DisbatchError, call: Call, tried: int) -> float | None:
        """How many seconds to wait before the next try; none if there should be none."""
        if tried >= self.most or not self.is_worth_it(error, call):
            return None
        jitter = random.uniform(0, min(self.longest, self.base * 2**tried))
        asked = error.retry_after if isinstance(error, ApiError) else None
        if asked is None:
            return jitter
        return None if asked > self.longest_asked else asked + min(jitter, 1.0)

    @staticmethod
    def is_worth_it(error: DisbatchError, call: Call) -> bool:
        if isinstance(error, Unreachable):
            return call.repeatable or not error.sent
        if not isinstance(error, ApiError) or isinstance(error, (QuotaExceeded, Rejected)):
            return False
        # 408 and 429 say that nothing was done. After the others it may have been.
        return isinstance(error, TooManyRequests) or error.status == 408 or (call.repeatable and error.status in (502, 503, 504))


def retry_after(value: str | None) -> float | None:
    """Seconds, or a date."""
    if value is None:
        return None
    if value.strip().isdigit():
        return int(value)
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except (TypeError, ValueError):
        return None


def refusal(call: Call, answer: Answer) -> ApiError:
    try:
        body = json.loads(answer.content)
    except ValueError:
        body = None
    return api_error(answer.status, body, retry_after(answer.headers.get("retry-after")), call.name)


# Tasks.


def submit(queue: str, params: Json, options: Mapping[str, Any]) -> Steps[str]:
    body = {"queue": queue, "params": {} if params is None else params, **dotted(options)}
    # To the server an empty one is none.
    body[".idempotency_key"] = body.get(".idempotency_key") or str(uuid.uuid4())
    call = post("/tasks", body, repeatable=True)
    answer = (yield call).json(call)
    if isinstance(answer, dict) and isinstance(answer.get("array"), dict):
        return str(answer["array"]["id"])
    (one,) = inserted(call, answer)
    return one


def submit_many(queue: str, params: Iterable[Json], options: Mapping[str, Any]) -> Steps[list[str]]:
    options = dict(options)
    key = options.pop("idempotency_key", None) or str(uuid.uuid4())
    ids: list[str] = []
    for number, part in enumerate(parts(params)):
        if number > 0 and options.get("chain"):
            raise ValueError("a chain cannot be longer than one request")
        own = key if number == 0 else f"{key}/{number}"
        body = {"queue": queue, "params": part, **dotted({**options, "idempotency_key": own})}
        call = post("/tasks", body, repeatable=True)
        ids += inserted(call, (yield call).json(call))
    return ids


def parts(params: Iterable[Json]) -> Iterator[list[Json]]:
    part: list[Json] = []
    size = 0
    for one in params:
        more = len(encode(one))
        if part and (len(part) >= MOST_TASKS or size + more > MOST_BYTES):
            yield part
            part, size = [], 0
        part.append(one)
        size += more
    if part:
        yield part


def inserted(call: Call, answer: Any) -> list[str]:
    try:
        listed = answer["MongoDB::InsertManyResult"]["inserted"]
        return [one["_id"]["$oid"] for one in sorted(listed, key=lambda one: int(one["index"]))]
    except (KeyError, TypeError) as error:
        raise ProtocolError(f"{call.name}: the answer has no ids of tasks") from error


def task_info(stored: dict[str, Any]) -> TaskInfo:
    """A task with plain ids, and its status in a word, as the other answers have it."""
    task = dict(stored)
    for old, new in (("_id", "id"), ("queue", "queue")):
        value = task.pop(old, None)
        if value is not None:
            task[new] = value["$oid"] if isinstance(value, dict) and "$oid" in value else value
    status = task.get("status")
    if isinstance(status, int):
        task["word"] = WORDS.get(status, "finished" if status > 0 else "held")
        task["ended"] = status > 0 or status in ENDED_WITHOUT_RESULT
    return task  # type: ignore[return-value]


def get_task(id: str) -> Steps[TaskInfo]:
    call = get(f"/tasks/{segment(id)}", _details=1)
    return task_info((yield call).json(call))


def wait(id: str, timeout: float | None) -> Steps[TaskInfo]:
    end = None if timeout is None else time.monotonic() + timeout
    delay = 0.0
    while True:
        # The server takes whole seconds.
        left = LONG_POLL if end is None else min(LONG_POLL, max(0, math.ceil(end - time.monotonic())))
        call = replace(get(f"/tasks/{segment(id)}/wait", patience=left, _timeout=left), delay=delay)
        asked = time.monotonic() + delay
        state = (yield call).json(call)
        delay = EARLY if time.monotonic() - asked < left else 0.0
        if state["ended"]:
            return (yield from get_task(id))
        if end is not None and time.monotonic() >= end:
            raise WaitTimeout(f"task {id} has not ended after {timeout} s: it is {state['word']}", state)


def result(id: str, timeout: float | None) -> Steps[Json]:
    task = yield from wait(id, timeout)
    if task["status"] != 1:
        said = task.get("stderr")
        last = said.rstrip().rpartition("\n")[2] if isinstance(said, str) else ""
        why = f": {last}" if last else ""
        raise TaskFailed(f"task {id} has not succeeded: it is {task['word']} (status {task['status']}){why}", task)
    return task.get("result")


def act(id: str, verb: str, reason: str | None) -> Steps[dict[str, Any]]:
    call = post(f"/tasks/{segment(id)}/{verb}", {} if reason is None else {"reason": reason})
    return (yield call).json(call)  # type: ignore[no-any-return]


def rerun(kind: str, id: str, options: Mapping[str, Any]) -> Steps[dict[str, Any]]:
    call = post(f"/{kind}/{segment(id)}/rerun", {key: value for key, value in options.items() if value is not None})
    return (yield call).json(call)  # type: ignore[no-any-return]


def answer(id: str, value: Mapping[str, Any]) -> Steps[dict[str, Any]]:
    call = post(f"/tasks/{segment(id)}/answer", {"value": dict(value)})
    return (yield call).json(call)  # type: ignore[no-any-return]


def explain(id: str) -> Steps[dict[str, Any]]:
    call = get(f"/tasks/{segment(id)}/explain")
    return (yield call).json(call)  # type: ignore[no-any-return]


def page(filters: Mapping[str, Any], limit: int, after: str | None) -> Steps[tuple[list[TaskInfo], str | None]]:
    query = {**filters, ".limit": limit, ".after": after}
    call = Call("GET", "/tasks/find", query, repeatable=True)
    answer = (yield call).json(call)
    return [task_info(task) for task in answer["tasks"]], answer["next"]


def attempt(id: str) -> Steps[int | None]:
    """The number of the attempt that runs, or was the last; none as long as there is another one to come."""
    call = get(f"/tasks/{segment(id)}", _details=1, _terse=1)
    task = task_info((yield call).json(call))
    return task.get("attempt") if task.get("word") == "running" or task.get("ended") else None


def output_call(id: str, stream: str, follow: bool, attempt: int | None, offset: int) -> Call:
    if stream not in ("stdout", "stderr"):
        raise ValueError(f"a task has stdout and stderr, and no {stream!r}")
    headers = {"Accept": "*/*", **({"Range": f"bytes={offset}-"} if offset else {})}
    query = {".follow": 1 if follow else None, ".attempt": attempt, ".from": offset if follow else None}
    return Call("GET", f"/tasks/{segment(id)}/{stream}", query, headers=headers, repeatable=True)


def tried_since(answered: float | None, tried: int) -> int:
    """How often in vain: a stream that was there for a while was none."""
    return 0 if answered is not None and time.monotonic() - answered > STEADY else tried


class Position:
    """Where in a stream of bytes we are, however often the connection is lost."""

    def __init__(self) -> None:
        self.offset = 0
        # The last byte that was given.
        self.last = b""
        self._at = 0
        self._missing = 0

    def answered(self, answer: Answer) -> None:
        """An answer begins where it says, which need not be where it was asked for."""
        if answer.status == 206:
            start, otherwise = answer.headers.get("content-range", "").removeprefix("bytes ").split("-")[0], self.offset
        else:
            start, otherwise = answer.headers.get("disbatch-from", ""), 0
        self._at = int(start) if start.isdigit() else otherwise
        self._missing += max(0, self._at - self.offset)
        self.offset = max(self.offset, self._at)

    def new(self, chunk: bytes) -> bytes:
        """What of it was not there before, after a line for what is missing, as the server has it where nobody counts bytes."""
        known = self.offset - self._at
        self._at += len(chunk)
        self.offset = max(self.offset, self._at)
        new = chunk[known:]
        if new and self._missing:
            before = b"" if self.last in (b"", b"\n") else b"\n"
            new = b"%s[%d bytes not kept]\n%s" % (before, self._missing, new)
            self._missing = 0
        self.last = new[-1:] or self.last
        return new


def events_call(id: str, after: str | None) -> Call:
    headers = {"Accept": "text/event-stream", **({"Last-Event-ID": after} if after else {})}
    return Call("GET", f"/tasks/{segment(id)}/events", headers=headers, repeatable=True)


class EventReader:
    """Server-Sent Events, of chunks that may end anywhere."""

    def __init__(self) -> None:
        self._rest = b""
        self._event = ""
        self._data: list[str] = []
        self._id: str | None = None

    def feed(self, chunk: bytes) -> Iterator[Event]:
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            name, _, value = line.rstrip(b"\r").decode(errors="replace").partition(":")
            value = value.removeprefix(" ")
            if name == "event":
                self._event = value
            elif name == "data":
                self._data.append(value)
            elif name == "id":
                self._id = value
            elif not name and not value and self._data:
                yield Event(self._event, json.loads("\n".join(self._data)), self._id)
                self._event, self._data = "", []


# Queues and schedules.


def queues(details: bool) -> Steps[list[dict[str, Any]]]:
    call = get("/queues", _details=1 if details else None)
    return (yield call).json(call)  # type: ignore[no-any-return]


def queue(name: str) -> Steps[dict[str, Any]]:
    call = get(f"/queues/{segment(name)}", _details=1)
    return (yield call).json(call)  # type: ignore[no-any-return]


def create_queue(name: str, plugin: str, settings: Mapping[str, Any]) -> Steps[str]:
    call = post("/queues", {"name": name, "plugin": plugin})
    answer = (yield call).json(call)
    if settings:
        yield from update_queue(name, settings)
    return str(answer["id"]["$oid"])


def update_queue(name: str, settings: Mapping[str, Any]) -> Steps[None]:
    yield post(f"/queues/{segment(name)}", dict(settings), repeatable=True)


def delete_queue(name: str) -> Steps[None]:
    yield Call("DELETE", f"/queues/{segment(name)}")


def schedules(filters: Mapping[str, Any]) -> Steps[list[dict[str, Any]]]:
    listed: list[dict[str, Any]] = []
    while True:
        after = listed[-1]["name"] if listed else None
        call = Call("GET", "/schedules", {**filters, ".limit": PAGE, ".after": after}, repeatable=True)
        page = (yield call).json(call)
        listed += page
        if len(page) < PAGE:
            return listed


def schedule(name: str, verb: str | None = None) -> Steps[dict[str, Any]]:
    path = f"/schedules/{segment(name)}"
    call = get(path) if verb is None else post(f"{path}/{verb}", {}, repeatable=verb != "run")
    return (yield call).json(call)  # type: ignore[no-any-return]


def save_schedule(path: str, fields: Mapping[str, Any]) -> Steps[dict[str, Any]]:
    call = post(path, dotted(fields, ("secure_params", "rev")))
    return (yield call).json(call)  # type: ignore[no-any-return]


def delete_schedule(name: str) -> Steps[None]:
    yield Call("DELETE", f"/schedules/{segment(name)}")


# The server.


def request(call: Call) -> Steps[Any]:
    answer = yield call
    return answer.json(call) if answer.content else None


def version() -> Steps[str]:
    call = get("/info")
    answer = yield call
    body = answer.json(call)
    if not isinstance(body, dict) or "routes" not in body:
        raise ProtocolError("GET /info: this is not the answer of a DCI; is the address right?")
    # Perl's, and those before this header.
    return str(answer.headers.get("disbatch-version") or "unknown")


def check() -> Steps[str]:
    server = yield from version()
    # Before 1.0, a minor version may change what another one relies on.
    want = VERSION.split(".")[: 2 if VERSION.startswith("0.") else 1]
    have = server.split(".")
    if have[: len(want)] != want:
        raise VersionError(
            f"the server has version {server}, and this library ({VERSION}) is for servers of version {'.'.join(want)}: "
            "install the version of the library that the server has"
        )
    return server
