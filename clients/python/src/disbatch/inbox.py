"""Submits tasks in the transaction of an application, by documents in the collection `inbox`: see docs/inbox.md.

Nothing else here needs pymongo: `pip install 'disbatch[mongodb]'`.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Union, overload

try:
    from bson import ObjectId
    from pymongo.asynchronous.collection import AsyncCollection
    from pymongo.asynchronous.database import AsyncDatabase
    from pymongo.collection import Collection
    from pymongo.database import Database
except ImportError as error:
    raise ImportError("disbatch.inbox needs pymongo 4.13 or newer: pip install 'disbatch[mongodb]'") from error

from ._calls import plain
from ._contract import problem
from ._types import EnqueueOptions, Json

if TYPE_CHECKING:
    from pymongo.asynchronous.client_session import AsyncClientSession
    from pymongo.client_session import ClientSession
    from typing_extensions import Unpack

NAME = "inbox"
VERSION = 1

Sync = Union[Database[Any], Collection[Any]]
Async = Union[AsyncDatabase[Any], AsyncCollection[Any]]
Traceparent = Union[str, Callable[[], Union[str, None]], None]


@overload
def enqueue(
    inbox: Sync, queue: str | ObjectId, params: Mapping[str, Json], *, key: str | None = None, by: str | None = None,
    traceparent: Traceparent = None, session: ClientSession | None = None, **options: Unpack[EnqueueOptions],
) -> str: ...


@overload
def enqueue(
    inbox: Async, queue: str | ObjectId, params: Mapping[str, Json], *, key: str | None = None, by: str | None = None,
    traceparent: Traceparent = None, session: AsyncClientSession | None = None, **options: Unpack[EnqueueOptions],
) -> Coroutine[Any, Any, str]: ...


def enqueue(
    inbox: Sync | Async, queue: str | ObjectId, params: Mapping[str, Json], *, key: str | None = None, by: str | None = None,
    traceparent: Traceparent = None, session: Any = None, **options: Any,
) -> str | Coroutine[Any, Any, str]:
    """Puts a task into the inbox and returns the id that it will have; to be awaited with an `AsyncDatabase` or a collection of it.

    `inbox` is the database of Disbatch, or its collection `inbox`. With a `session` the task is submitted when its transaction is
    committed. `key` is an idempotency key, `by` the producer, `traceparent` the trace or a function that has it.
    """
    collection = _collection(inbox)
    document = _document(queue, params, key=key, by=by, trace=traceparent, options=options)
    if isinstance(collection, AsyncCollection):
        return _awaited(collection.insert_one(document, session=session), str(document["_id"]))
    collection.insert_one(document, session=session)
    return str(document["_id"])


@overload
def enqueue_many(
    inbox: Sync, queue: str | ObjectId, params: Iterable[Mapping[str, Json]], *, key: str | None = None, by: str | None = None,
    traceparent: Traceparent = None, session: ClientSession | None = None, **options: Unpack[EnqueueOptions],
) -> list[str]: ...


@overload
def enqueue_many(
    inbox: Async, queue: str | ObjectId, params: Iterable[Mapping[str, Json]], *, key: str | None = None, by: str | None = None,
    traceparent: Traceparent = None, session: AsyncClientSession | None = None, **options: Unpack[EnqueueOptions],
) -> Coroutine[Any, Any, list[str]]: ...


def enqueue_many(
    inbox: Sync | Async, queue: str | ObjectId, params: Iterable[Mapping[str, Json]], *, key: str | None = None, by: str | None = None,
    traceparent: Traceparent = None, session: Any = None, **options: Any,
) -> list[str] | Coroutine[Any, Any, list[str]]:
    """Puts a task for each params into the inbox, and returns their ids in the same order. Without a transaction, some of them may be there
    if it fails. After the first, the key of a task is that of the first with `/1`, `/2` and so on."""
    collection = _collection(inbox)
    trace = traceparent() if callable(traceparent) else traceparent
    is_chain = options.pop("chain", None)
    documents: list[dict[str, Any]] = []
    for number, one in enumerate(params):
        own = f"{key}/{number}" if key is not None and number else key
        documents.append(_document(queue, one, key=own, by=by, trace=trace, options=options))
        if is_chain:
            # Each is a document by itself: what comes before it has to be named.
            options = {**options, "after": [documents[-1]["_id"]]}
    ids = [str(document["_id"]) for document in documents]
    if isinstance(collection, AsyncCollection):
        return _awaited(collection.insert_many(documents, session=session) if documents else None, ids)
    if documents:
        collection.insert_many(documents, session=session)
    return ids


async def _awaited(inserted: Coroutine[Any, Any, Any] | None, returned: Any) -> Any:
    if inserted is not None:
        await inserted
    return returned


def _collection(given: Any) -> Collection[Any] | AsyncCollection[Any]:
    if isinstance(given, (Database, AsyncDatabase)):
        given = given[NAME]
    if not isinstance(given, (Collection, AsyncCollection)):
        raise ValueError(f"tasks are put into a database of pymongo or its collection {NAME}, and not into {type(given).__name__}")
    if given.name != NAME:
        raise ValueError(f"the inbox is the collection {NAME}, and not {given.name}")
    return given


def _document(queue: Any, params: Any, *, trace: Traceparent, options: Mapping[str, Any], **fields: Any) -> dict[str, Any]:
    # A date and an id would be objects in the JSON of the contract.
    if not isinstance(params, Mapping):
        raise ValueError("params must be an object")
    fields["trace"] = trace() if callable(trace) else trace
    given = {name: _option(value) for name, value in options.items() if value is not None}
    document = {"_id": ObjectId(), "v": VERSION, "queue": queue, "params": params, **({"options": given} if given else {})}
    document.update((name, value) for name, value in fields.items() if value is not None)
    wrong = problem(document)
    if wrong is not None:
        raise ValueError(wrong)
    return document


def _option(value: Any) -> Any:
    known = plain(value)
    # It has a time zone: BSON has a type for it.
    return value if isinstance(value, datetime) else known
