"""The clients. Both have the same methods; those of `AsyncClient` are awaited."""

from __future__ import annotations

import asyncio
import os
import re
import ssl
import time
import warnings
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Union, cast, overload
from urllib.parse import urlsplit

import httpx

from . import _calls, _files
from ._calls import Answer, Call, Retries, Steps
from ._errors import ApiError, DisbatchError, RequestTimeout, Unreachable
from ._types import Event, Filter, Json, ScheduleFields, SubmitOptions, TaskInfo
from ._version import VERSION

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

T = TypeVar("T")
# The clients have a method of this name.
Objects = list[dict[str, Any]]
Ids = list[str]
Stream = Literal["stdout", "stderr"]
Traceparent = Union[str, Callable[[], Union[str, None]], None]

# Sent before anything was: the server has seen nothing of the request.
NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol)


class _Base:
    """What both clients know: the address, who asks, and when to try again."""

    def __init__(
        self,
        url: str | None = None,
        *,
        token: str | None = None,
        username: str | None = None,
        password: str | None = None,
        ca_file: str | os.PathLike[str] | None = None,
        timeout: float = 30.0,
        retries: int = 5,
        backoff: float = 0.5,
        backoff_max: float = 15.0,
        retry_after_max: float = 120.0,
        traceparent: Traceparent = None,
    ) -> None:
        """Whatever is not given comes from `DISBATCH_URL`, `DISBATCH_TOKEN`, `DISBATCH_USERNAME` and `DISBATCH_PASSWORD`.

        `url` may have a path. `ca_file` has the only certificates that are trusted. `timeout` is how long an answer may take,
        in seconds. A request that may be repeated is tried again up to `retries` times, before the n-th time after up to
        `backoff` * 2^n seconds (`backoff_max` at most), or when the server says, if that is within `retry_after_max` seconds.
        `traceparent` is the header of that name, or a function that has it.
        """
        env = os.environ.get
        self.url = (url or env("DISBATCH_URL") or "http://localhost:8080").rstrip("/")
        # It is part of messages.
        if re.search("//[^/?#]*@", self.url):
            raise ValueError("the address of the DCI has a name or a password in it: use username and password")
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{self.url!r} is no address of a DCI: http://HOST:PORT or https://..")
        self._headers = {"User-Agent": f"disbatch-python/{VERSION}"}
        if not (token or username):
            token, username = env("DISBATCH_TOKEN"), env("DISBATCH_USERNAME")
            password = password or env("DISBATCH_PASSWORD")
        if token:
            self._headers["Authorization"] = f"Bearer {token}"
        self._retries = Retries(retries, backoff, backoff_max, retry_after_max)
        self._timeout = timeout
        self._traceparent = traceparent
        self._options: dict[str, Any] = {
            # A proxy of the environment would look for the server on its own host.
            "trust_env": parts.hostname not in ("localhost", "127.0.0.1", "::1"),
            "verify": ssl.create_default_context(cafile=os.fspath(ca_file)) if ca_file is not None else True,
            # Each wait has a connection for as long as it takes.
            "limits": httpx.Limits(max_connections=None, max_keepalive_connections=20),
            "auth": httpx.BasicAuth(username, password or "") if username and not token else None,
        }
        self._connect()

    def _connect(self) -> None:
        raise NotImplementedError

    def _request(self, client: httpx.Client | httpx.AsyncClient, call: Call) -> httpx.Request:
        content, headers = call.sent()
        headers = {**self._headers, **headers}
        traceparent = self._traceparent() if callable(self._traceparent) else self._traceparent
        if traceparent:
            headers["traceparent"] = traceparent
        patience = httpx.Timeout(self._timeout, read=self._timeout + call.patience)
        return client.build_request(call.method, self.url + call.target, content=content, headers=headers, timeout=patience)

    def _unreachable(self, call: Call, error: httpx.HTTPError) -> Unreachable:
        sent = not isinstance(error, NOT_SENT)
        if isinstance(error, httpx.TimeoutException):
            return RequestTimeout(f"{call.name}: {self.url} does not answer in time", sent=sent)
        return Unreachable(f"{call.name}: {self.url}: {error or type(error).__name__}", sent=sent)

    def _pause(self, error: DisbatchError, call: Call, tried: int) -> float:
        """How long to wait before the next try; raises the error if there is to be none."""
        pause = self._retries.pause(error, call, tried)
        if pause is None:
            raise error
        return pause

    def _copied(self, traceparent: Traceparent) -> Self:
        copy = object.__new__(type(self))
        copy.__dict__.update(self.__dict__, _traceparent=traceparent)
        return copy


def _answer(call: Call, response: httpx.Response) -> Answer:
    if warning := response.headers.get("disbatch-warning"):
        warnings.warn(f"{call.name}: {warning}", stacklevel=5)
    answer = Answer(response.status_code, response.headers, response.content)
    if not response.is_success:
        raise _calls.refusal(call, answer)
    return answer


def _filters(filters: Filter) -> Mapping[str, Any]:
    return dict(filters)


class Client(_Base):
    """Speaks to a DCI. May be used by several threads; a context manager that closes its connections."""

    def _connect(self) -> None:
        self._http = httpx.Client(**self._options)

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def with_traceparent(self, traceparent: str | Callable[[], str | None]) -> Client:
        """A client that passes on this trace; it shares the connections of this one."""
        return self._copied(traceparent)

    def _run(self, steps: Steps[T]) -> T:
        try:
            step = next(steps)
            while True:
                step = steps.send(self._send(step) if isinstance(step, Call) else step())
        except StopIteration as end:
            return cast(T, end.value)

    def _send(self, call: Call) -> Answer:
        if call.delay > 0:
            time.sleep(call.delay)
        tried = 0
        while True:
            try:
                try:
                    return _answer(call, self._http.send(self._request(self._http, call)))
                except httpx.HTTPError as error:
                    raise self._unreachable(call, error) from error
            except DisbatchError as error:
                time.sleep(self._pause(error, call, tried))
                tried += 1

    @contextmanager
    def _open(self, call: Call) -> Iterator[tuple[Answer, Iterator[bytes]]]:
        """The beginning of an answer and what comes of it. Raises `Unreachable` also if it breaks off."""
        try:
            response = self._http.send(self._request(self._http, call), stream=True)
            try:
                if not response.is_success:
                    response.read()
                    _answer(call, response)
                yield Answer(response.status_code, response.headers, b""), response.iter_bytes()
            finally:
                response.close()
        except httpx.HTTPError as error:
            raise self._unreachable(call, error) from error

    def request(self, method: str, path: str, *, query: Mapping[str, Any] | None = None, json: Json = None, repeatable: bool | None = None) -> Any:
        """Any other route of the API. It is repeated after failures if its method allows that, or `repeatable` says so."""
        return self._run(_calls.request(_call(method, path, query, json, repeatable)))

    def version(self) -> str:
        """The server's version."""
        return self._run(_calls.version())

    def check(self) -> str:
        """Raises `VersionError` unless the server's version is one that this library is for."""
        return self._run(_calls.check())

    def submit(self, queue: str, params: Json = None, **options: Unpack[SubmitOptions]) -> str:
        """Submits a task, or with `array` an array of them, and returns its id."""
        return self._run(_calls.submit(queue, params, options))

    def submit_many(self, queue: str, params: Iterable[Json], **options: Unpack[SubmitOptions]) -> Ids:
        """Submits a task for each params, 1000 and 8 MiB in one request, and returns their ids in the same order."""
        return self._run(_calls.submit_many(queue, params, options))

    def get(self, id: str) -> TaskInfo:
        """A task. Output that is too large for it is an id there; `output` has it."""
        return self._run(_calls.get_task(id))

    def wait(self, id: str, timeout: float | None = None) -> TaskInfo:
        """The task when it has ended. Raises `WaitTimeout` if it has not within `timeout` seconds."""
        return self._run(_calls.wait(id, timeout))

    def result(self, id: str, timeout: float | None = None) -> Any:
        """Waits for the end and returns the result. Raises `TaskFailed` unless the task's status is 1, succeeded."""
        return self._run(_calls.result(id, timeout))

    def cancel(self, id: str, reason: str | None = None) -> dict[str, Any]:
        return self._run(_calls.act(id, "cancel", reason))

    def answer(self, id: str, value: Mapping[str, Any]) -> dict[str, Any]:
        """Answers what a task has asked. `Conflict` if somebody else has: its `details` have the `answer`."""
        return self._run(_calls.answer(id, value))

    def retry(self, id: str, reason: str | None = None) -> dict[str, Any]:
        return self._run(_calls.act(id, "retry", reason))

    def rerun(
        self, id: str, *, downstream: str | None = None, params: Mapping[str, Any] | None = None, reason: str | None = None,
    ) -> dict[str, Any]:
        """Runs a task again that has ended, with `params` in place of its own; `downstream`: which of those that come after it, too:
        `none`, `failed` or `all`."""
        return self._run(_calls.rerun("tasks", id, {"downstream": downstream, "params": params, "reason": reason}))

    def rerun_array(
        self,
        id: str,
        *,
        elements: str | None = None,
        downstream: str | None = None,
        params: Mapping[str, Any] | None = None,
        reason: str | None = None,
    ) -> dict[str, Any]:
        """Runs elements of an array again that have ended, those that `failed` or `all`; the rest is as with `rerun`. `id` of the answer
        is a bulk job, which does it in the background."""
        options = {"elements": elements, "downstream": downstream, "params": params, "reason": reason}
        return self._run(_calls.rerun("arrays", id, options))

    def explain(self, id: str) -> dict[str, Any]:
        """Why a task does not run, or how it does: `summary` and `gates`."""
        return self._run(_calls.explain(id))

    def list(self, *, limit: int | None = None, **filters: Unpack[Filter]) -> Iterator[TaskInfo]:
        """Tasks, the newest first; asks for the next page when it is needed."""
        after: str | None = None
        left = limit
        while left is None or left > 0:
            size = _calls.PAGE if left is None else min(left, _calls.PAGE)
            tasks, after = self._run(_calls.page(_filters(filters), size, after))
            yield from tasks
            left = None if left is None else left - len(tasks)
            if after is None:
                return

    @overload
    def output(self, id: str, stream: Stream = "stdout", *, attempt: int | None = None, follow: Literal[False] = False) -> bytes: ...

    @overload
    def output(self, id: str, stream: Stream = "stdout", *, attempt: int | None = None, follow: Literal[True]) -> Iterator[bytes]: ...

    def output(self, id: str, stream: Stream = "stdout", *, attempt: int | None = None, follow: bool = False) -> bytes | Iterator[bytes]:
        """What the task has printed so far; with `follow` piece by piece until its attempt is over, over lost connections."""
        pieces = self._output(id, stream, attempt, follow)
        return pieces if follow else b"".join(pieces)

    def _output(self, id: str, stream: str, attempt: int | None, follow: bool) -> Iterator[bytes]:
        position = _calls.Position()
        tried = 0
        if follow and attempt is None:
            attempt = self._run(_calls.attempt(id))
        while True:
            call = _calls.output_call(id, stream, follow, attempt, position.offset)
            answered: float | None = None
            try:
                with self._open(call) as (answer, chunks):
                    answered = time.monotonic()
                    position.answered(answer)
                    for chunk in chunks:
                        # One that was not there yet when it was asked for. What comes after a lost connection is to be of the same.
                        if follow and attempt is None and not position.last:
                            attempt = self._run(_calls.attempt(id))
                        if new := position.new(chunk):
                            tried = 0
                            yield new
                return
            except DisbatchError as error:
                if isinstance(error, ApiError) and error.status == 416 and position.offset:
                    return
                # A task may be silent for as long as it likes.
                if answered is not None and isinstance(error, RequestTimeout):
                    continue
                tried = _calls.tried_since(answered, tried)
                time.sleep(self._pause(error, call, tried))
                tried += 1

    def events(self, id: str, after: str | None = None) -> Iterator[Event]:
        """What happens to the task, until it is over; `after` is the `id` of the last event that is known."""
        tried = 0
        while True:
            call = _calls.events_call(id, after)
            reader = _calls.EventReader()
            answered: float | None = None
            try:
                with self._open(call) as (_, chunks):
                    answered = time.monotonic()
                    for chunk in chunks:
                        for event in reader.feed(chunk):
                            tried, after = 0, event.id or after
                            yield event
                            if event.event == "end":
                                return
                raise Unreachable(f"{call.name}: the events broke off")
            except DisbatchError as error:
                # A task may be silent for as long as it likes.
                if answered is not None and isinstance(error, RequestTimeout):
                    continue
                tried = _calls.tried_since(answered, tried)
                time.sleep(self._pause(error, call, tried))
                tried += 1

    def queues(self, *, details: bool = False) -> Objects:
        return self._run(_calls.queues(details))

    def queue(self, name: str) -> dict[str, Any]:
        """A queue, by name or id, with its settings."""
        return self._run(_calls.queue(name))

    def create_queue(self, name: str, plugin: str, **settings: Json) -> str:
        """Creates a queue, with settings such as `threads=4`, and returns its id."""
        return self._run(_calls.create_queue(name, plugin, settings))

    def update_queue(self, name: str, **settings: Json) -> None:
        """Changes settings; `None` unsets one."""
        self._run(_calls.update_queue(name, settings))

    def delete_queue(self, name: str) -> None:
        self._run(_calls.delete_queue(name))

    def pause(self, queue: str, reason: str | None = None) -> None:
        """Nothing more is claimed from the queue; what runs goes on."""
        self._run(_calls.update_queue(queue, {"paused": True, "reason": reason}))

    def resume(self, queue: str) -> None:
        self._run(_calls.update_queue(queue, {"paused": None, "reason": None}))

    def schedules(self, *, queue: str | None = None, tenant: str | None = None, paused: bool | None = None) -> Objects:
        return self._run(_calls.schedules({"queue": queue, "tenant": tenant, "paused": paused}))

    def schedule(self, name: str) -> dict[str, Any]:
        return self._run(_calls.schedule(name))

    def create_schedule(self, name: str, queue: str, **fields: Unpack[ScheduleFields]) -> dict[str, Any]:
        return self._run(_calls.save_schedule("/schedules", {"name": name, "queue": queue, **fields}))

    def update_schedule(self, name: str, **fields: Unpack[ScheduleFields]) -> dict[str, Any]:
        """Changes fields; `None` takes one back to its default. With `rev` only if it still has that revision."""
        return self._run(_calls.save_schedule(f"/schedules/{_calls.segment(name)}", fields))

    def delete_schedule(self, name: str) -> None:
        self._run(_calls.delete_schedule(name))

    def pause_schedule(self, name: str) -> dict[str, Any]:
        return self._run(_calls.schedule(name, "pause"))

    def resume_schedule(self, name: str) -> dict[str, Any]:
        return self._run(_calls.schedule(name, "resume"))

    def run_schedule(self, name: str) -> str:
        """Makes a task of the schedule now, and returns its id."""
        return str(self._run(_calls.schedule(name, "run"))["task"])

    def files(self, name: str | None = None) -> Objects:
        """All file sets, or the newest versions of one."""
        return self._run(_files.versions(name))

    def put_files(self, name: str, source: _files.Source, *, tenant: str | None = None, expires: Any = None) -> dict[str, Any]:
        """Makes a new version of a set: of a folder, a file, or a mapping from paths in the set to files or bytes."""
        return self._run(_files.put(name, source, {"tenant": tenant, "expires": expires}))

    def get_files(self, name: str, folder: str | os.PathLike[str], *, version: int | None = None, prefix: str | None = None) -> dict[str, Any]:
        """Brings the files of a version, the newest unless `version` says another, into a folder, and returns the version."""
        found, entries = self._run(_files.wanted(name, version, prefix))
        for entry in entries:
            place = _files.Place(Path(folder), entry)
            if not place.is_there():
                self._get_file(_files.content_call(name, found["version"], entry["path"]), place)
        return found

    def _get_file(self, call: Call, place: _files.Place) -> None:
        tried = 0
        while True:
            part = place.open()
            try:
                with self._open(call) as (_, chunks):
                    for chunk in chunks:
                        part.write(chunk)
                return part.finish()
            except DisbatchError as error:
                time.sleep(self._pause(error, call, tried))
                tried += 1
            finally:
                part.give_up()


class AsyncClient(_Base):
    """As `Client`, for asyncio."""

    def _connect(self) -> None:
        self._http = httpx.AsyncClient(**self._options)

    async def close(self) -> None:
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def with_traceparent(self, traceparent: str | Callable[[], str | None]) -> AsyncClient:
        """A client that passes on this trace; it shares the connections of this one."""
        return self._copied(traceparent)

    async def _run(self, steps: Steps[T]) -> T:
        try:
            step = next(steps)
            while True:
                step = steps.send(await self._send(step) if isinstance(step, Call) else await asyncio.to_thread(step))
        except StopIteration as end:
            return cast(T, end.value)

    async def _send(self, call: Call) -> Answer:
        if call.delay > 0:
            await asyncio.sleep(call.delay)
        tried = 0
        while True:
            try:
                try:
                    return _answer(call, await self._http.send(self._request(self._http, call)))
                except httpx.HTTPError as error:
                    raise self._unreachable(call, error) from error
            except DisbatchError as error:
                await asyncio.sleep(self._pause(error, call, tried))
                tried += 1

    @asynccontextmanager
    async def _open(self, call: Call) -> AsyncIterator[tuple[Answer, AsyncIterator[bytes]]]:
        """The beginning of an answer and what comes of it. Raises `Unreachable` also if it breaks off."""
        try:
            response = await self._http.send(self._request(self._http, call), stream=True)
            try:
                if not response.is_success:
                    await response.aread()
                    _answer(call, response)
                yield Answer(response.status_code, response.headers, b""), response.aiter_bytes()
            finally:
                await response.aclose()
        except httpx.HTTPError as error:
            raise self._unreachable(call, error) from error

    async def request(self, method: str, path: str, *, query: Mapping[str, Any] | None = None, json: Json = None, repeatable: bool | None = None) -> Any:
        """Any other route of the API. It is repeated after failures if its method allows that, or `repeatable` says so."""
        return await self._run(_calls.request(_call(method, path, query, json, repeatable)))

    async def version(self) -> str:
        """The server's version."""
        return await self._run(_calls.version())

    async def check(self) -> str:
        """Raises `VersionError` unless the server's version is one that this library is for."""
        return await self._run(_calls.check())

    async def submit(self, queue: str, params: Json = None, **options: Unpack[SubmitOptions]) -> str:
        """Submits a task, or with `array` an array of them, and returns its id."""
        return await self._run(_calls.submit(queue, params, options))

    async def submit_many(self, queue: str, params: Iterable[Json], **options: Unpack[SubmitOptions]) -> Ids:
        """Submits a task for each params, 1000 and 8 MiB in one request, and returns their ids in the same order."""
        return await self._run(_calls.submit_many(queue, params, options))

    async def get(self, id: str) -> TaskInfo:
        """A task. Output that is too large for it is an id there; `output` has it."""
        return await self._run(_calls.get_task(id))

    async def wait(self, id: str, timeout: float | None = None) -> TaskInfo:
        """The task when it has ended. Raises `WaitTimeout` if it has not within `timeout` seconds."""
        return await self._run(_calls.wait(id, timeout))

    async def result(self, id: str, timeout: float | None = None) -> Any:
        """Waits for the end and returns the result. Raises `TaskFailed` unless the task's status is 1, succeeded."""
        return await self._run(_calls.result(id, timeout))

    async def cancel(self, id: str, reason: str | None = None) -> dict[str, Any]:
        return await self._run(_calls.act(id, "cancel", reason))

    async def answer(self, id: str, value: Mapping[str, Any]) -> dict[str, Any]:
        """Answers what a task has asked. `Conflict` if somebody else has: its `details` have the `answer`."""
        return await self._run(_calls.answer(id, value))

    async def retry(self, id: str, reason: str | None = None) -> dict[str, Any]:
        return await self._run(_calls.act(id, "retry", reason))

    async def rerun(
        self, id: str, *, downstream: str | None = None, params: Mapping[str, Any] | None = None, reason: str | None = None,
    ) -> dict[str, Any]:
        """Runs a task again that has ended, with `params` in place of its own; `downstream`: which of those that come after it, too:
        `none`, `failed` or `all`."""
        return await self._run(_calls.rerun("tasks", id, {"downstream": downstream, "params": params, "reason": reason}))

    async def rerun_array(
        self,
        id: str,
        *,
        elements: str | None = None,
        downstream: str | None = None,
        params: Mapping[str, Any] | None = None,
        reason: str | None = None,
    ) -> dict[str, Any]:
        """Runs elements of an array again that have ended, those that `failed` or `all`; the rest is as with `rerun`. `id` of the answer
        is a bulk job, which does it in the background."""
        options = {"elements": elements, "downstream": downstream, "params": params, "reason": reason}
        return await self._run(_calls.rerun("arrays", id, options))

    async def explain(self, id: str) -> dict[str, Any]:
        """Why a task does not run, or how it does: `summary` and `gates`."""
        return await self._run(_calls.explain(id))

    async def list(self, *, limit: int | None = None, **filters: Unpack[Filter]) -> AsyncIterator[TaskInfo]:
        """Tasks, the newest first; asks for the next page when it is needed."""
        after: str | None = None
        left = limit
        while left is None or left > 0:
            size = _calls.PAGE if left is None else min(left, _calls.PAGE)
            tasks, after = await self._run(_calls.page(_filters(filters), size, after))
            for task in tasks:
                yield task
            left = None if left is None else left - len(tasks)
            if after is None:
                return

    @overload
    def output(self, id: str, stream: Stream = "stdout", *, attempt: int | None = None, follow: Literal[False] = False) -> Coroutine[Any, Any, bytes]: ...

    @overload
    def output(self, id: str, stream: Stream = "stdout", *, attempt: int | None = None, follow: Literal[True]) -> AsyncIterator[bytes]: ...

    def output(
        self, id: str, stream: Stream = "stdout", *, attempt: int | None = None, follow: bool = False
    ) -> Coroutine[Any, Any, bytes] | AsyncIterator[bytes]:
        """What the task has printed so far, to be awaited; with `follow` to be iterated, until its attempt is over."""
        pieces = self._output(id, stream, attempt, follow)
        return pieces if follow else _joined(pieces)

    async def _output(self, id: str, stream: str, attempt: int | None, follow: bool) -> AsyncIterator[bytes]:
        position = _calls.Position()
        tried = 0
        if follow and attempt is None:
            attempt = await self._run(_calls.attempt(id))
        while True:
            call = _calls.output_call(id, stream, follow, attempt, position.offset)
            answered: float | None = None
            try:
                async with self._open(call) as (answer, chunks):
                    answered = time.monotonic()
                    position.answered(answer)
                    async for chunk in chunks:
                        # One that was not there yet when it was asked for. What comes after a lost connection is to be of the same.
                        if follow and attempt is None and not position.last:
                            attempt = await self._run(_calls.attempt(id))
                        if new := position.new(chunk):
                            tried = 0
                            yield new
                return
            except DisbatchError as error:
                if isinstance(error, ApiError) and error.status == 416 and position.offset:
                    return
                # A task may be silent for as long as it likes.
                if answered is not None and isinstance(error, RequestTimeout):
                    continue
                tried = _calls.tried_since(answered, tried)
                await asyncio.sleep(self._pause(error, call, tried))
                tried += 1

    async def events(self, id: str, after: str | None = None) -> AsyncIterator[Event]:
        """What happens to the task, until it is over; `after` is the `id` of the last event that is known."""
        tried = 0
        while True:
            call = _calls.events_call(id, after)
            reader = _calls.EventReader()
            answered: float | None = None
            try:
                async with self._open(call) as (_, chunks):
                    answered = time.monotonic()
                    async for chunk in chunks:
                        for event in reader.feed(chunk):
                            tried, after = 0, event.id or after
                            yield event
                            if event.event == "end":
                                return
                raise Unreachable(f"{call.name}: the events broke off")
            except DisbatchError as error:
                # A task may be silent for as long as it likes.
                if answered is not None and isinstance(error, RequestTimeout):
                    continue
                tried = _calls.tried_since(answered, tried)
                await asyncio.sleep(self._pause(error, call, tried))
                tried += 1

    async def queues(self, *, details: bool = False) -> Objects:
        return await self._run(_calls.queues(details))

    async def queue(self, name: str) -> dict[str, Any]:
        """A queue, by name or id, with its settings."""
        return await self._run(_calls.queue(name))

    async def create_queue(self, name: str, plugin: str, **settings: Json) -> str:
        """Creates a queue, with settings such as `threads=4`, and returns its id."""
        return await self._run(_calls.create_queue(name, plugin, settings))

    async def update_queue(self, name: str, **settings: Json) -> None:
        """Changes settings; `None` unsets one."""
        await self._run(_calls.update_queue(name, settings))

    async def delete_queue(self, name: str) -> None:
        await self._run(_calls.delete_queue(name))

    async def pause(self, queue: str, reason: str | None = None) -> None:
        """Nothing more is claimed from the queue; what runs goes on."""
        await self._run(_calls.update_queue(queue, {"paused": True, "reason": reason}))

    async def resume(self, queue: str) -> None:
        await self._run(_calls.update_queue(queue, {"paused": None, "reason": None}))

    async def schedules(self, *, queue: str | None = None, tenant: str | None = None, paused: bool | None = None) -> Objects:
        return await self._run(_calls.schedules({"queue": queue, "tenant": tenant, "paused": paused}))

    async def schedule(self, name: str) -> dict[str, Any]:
        return await self._run(_calls.schedule(name))

    async def create_schedule(self, name: str, queue: str, **fields: Unpack[ScheduleFields]) -> dict[str, Any]:
        return await self._run(_calls.save_schedule("/schedules", {"name": name, "queue": queue, **fields}))

    async def update_schedule(self, name: str, **fields: Unpack[ScheduleFields]) -> dict[str, Any]:
        """Changes fields; `None` takes one back to its default. With `rev` only if it still has that revision."""
        return await self._run(_calls.save_schedule(f"/schedules/{_calls.segment(name)}", fields))

    async def delete_schedule(self, name: str) -> None:
        await self._run(_calls.delete_schedule(name))

    async def pause_schedule(self, name: str) -> dict[str, Any]:
        return await self._run(_calls.schedule(name, "pause"))

    async def resume_schedule(self, name: str) -> dict[str, Any]:
        return await self._run(_calls.schedule(name, "resume"))

    async def run_schedule(self, name: str) -> str:
        """Makes a task of the schedule now, and returns its id."""
        return str((await self._run(_calls.schedule(name, "run")))["task"])

    async def files(self, name: str | None = None) -> Objects:
        """All file sets, or the newest versions of one."""
        return await self._run(_files.versions(name))

    async def put_files(self, name: str, source: _files.Source, *, tenant: str | None = None, expires: Any = None) -> dict[str, Any]:
        """Makes a new version of a set: of a folder, a file, or a mapping from paths in the set to files or bytes."""
        return await self._run(_files.put(name, source, {"tenant": tenant, "expires": expires}))

    async def get_files(self, name: str, folder: str | os.PathLike[str], *, version: int | None = None, prefix: str | None = None) -> dict[str, Any]:
        """Brings the files of a version, the newest unless `version` says another, into a folder, and returns the version."""
        found, entries = await self._run(_files.wanted(name, version, prefix))
        for entry in entries:
            place = _files.Place(Path(folder), entry)
            if not await asyncio.to_thread(place.is_there):
                await self._get_file(_files.content_call(name, found["version"], entry["path"]), place)
        return found

    async def _get_file(self, call: Call, place: _files.Place) -> None:
        tried = 0
        while True:
            part = place.open()
            try:
                async with self._open(call) as (_, chunks):
                    async for chunk in chunks:
                        part.write(chunk)
                return part.finish()
            except DisbatchError as error:
                await asyncio.sleep(self._pause(error, call, tried))
                tried += 1
            finally:
                part.give_up()


async def _joined(pieces: AsyncIterator[bytes]) -> bytes:
    return b"".join([piece async for piece in pieces])


def _call(method: str, path: str, query: Mapping[str, Any] | None, json: Json, repeatable: bool | None) -> Call:
    again = method in ("GET", "HEAD", "PUT") if repeatable is None else repeatable
    return Call(method, path, query or {}, body=json, repeatable=again)
