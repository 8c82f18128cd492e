"""Submits tasks to Disbatch and follows them (`Client`, `AsyncClient`), and helps to write plugins (`Task`, `run`).

A plugin needs nothing but the standard library: the clients, and with them httpx, are imported when they are first named.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._errors import (
    ApiError,
    BadRequest,
    Conflict,
    DisbatchError,
    Forbidden,
    NotFound,
    ProtocolError,
    QuotaExceeded,
    Rejected,
    RequestTimeout,
    ServerError,
    TaskFailed,
    TooManyRequests,
    Unauthorized,
    Unavailable,
    Unreachable,
    VersionError,
    WaitTimeout,
)
from ._types import Event, TaskInfo
from ._version import VERSION as __version__
from .plugin import Task, run, run_batch, run_warm

if TYPE_CHECKING:
    from ._client import AsyncClient, Client

__all__ = [
    "ApiError",
    "AsyncClient",
    "BadRequest",
    "Client",
    "Conflict",
    "DisbatchError",
    "Event",
    "Forbidden",
    "NotFound",
    "ProtocolError",
    "QuotaExceeded",
    "Rejected",
    "RequestTimeout",
    "ServerError",
    "Task",
    "TaskFailed",
    "TaskInfo",
    "TooManyRequests",
    "Unauthorized",
    "Unavailable",
    "Unreachable",
    "VersionError",
    "WaitTimeout",
    "__version__",
    "run",
    "run_batch",
    "run_warm",
]


def __getattr__(name: str) -> Any:
    if name in ("AsyncClient", "Client"):
        from . import _client

        return getattr(_client, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
