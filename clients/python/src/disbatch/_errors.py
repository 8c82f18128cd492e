"""What can go wrong, each with a `code` for programs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._types import TaskInfo


class DisbatchError(Exception):
    """Anything that this library raises."""

    code = "error"


class Unreachable(DisbatchError):
    """There was no answer, or it broke off. What was asked for may have been done, unless `sent` is false."""

    code = "unreachable"

    def __init__(self, message: str, *, sent: bool = True) -> None:
        super().__init__(message)
        self.sent = sent


class RequestTimeout(Unreachable):
    """The answer did not come in time."""

    code = "request_timeout"


class ProtocolError(DisbatchError):
    """What answers is no DCI, or says what this version does not understand."""

    code = "protocol"


class VersionError(DisbatchError):
    """The server and this library do not fit."""

    code = "version"


class WaitTimeout(DisbatchError):
    """The task has not ended in time; it goes on. `task` is how it stood."""

    code = "wait_timeout"

    def __init__(self, message: str, task: Mapping[str, Any]) -> None:
        super().__init__(message)
        self.task = task


class TaskFailed(DisbatchError):
    """The task has ended, and not with status 1."""

    code = "task_failed"

    def __init__(self, message: str, task: TaskInfo) -> None:
        super().__init__(message)
        self.task = task


class ApiError(DisbatchError):
    """The server refuses. `message` are its words, `details` is the whole answer."""

    def __init__(
        self, status: int, code: str, message: str, details: Mapping[str, Any], retry_after: float | None, request: str
    ) -> None:
        super().__init__(f"{request}: {status} {message}")
        self.status = status
        self.code = code
        self.message = message
        self.details = details
        self.retry_after = retry_after
        self.request = request


class BadRequest(ApiError):
    """400: a parameter is wrong."""


class Unauthorized(ApiError):
    """401: it is not known who asks."""


class Forbidden(ApiError):
    """403: who asks may not do this."""


class NotFound(ApiError):
    """What is asked for does not exist: 404, or 400 where a queue is changed that does not exist."""


class Conflict(ApiError):
    """409: it cannot be done as things stand. Also 400 where a queue of this name exists already."""


class TooManyRequests(ApiError):
    """429: wait for `retry_after` seconds."""


class QuotaExceeded(TooManyRequests):
    """429: the tenant would have more than it may; `details["limit"]` says of what."""


class ServerError(ApiError):
    """500 and above."""


class Unavailable(ServerError):
    """503: the database is away, or the server has too much to do."""


class Rejected(Unavailable):
    """503: no such tasks are taken at the moment; `details["rule"]` says of whom."""


KINDS: dict[int, tuple[str, type[ApiError]]] = {
    400: ("bad_request", BadRequest),
    401: ("unauthorized", Unauthorized),
    403: ("forbidden", Forbidden),
    404: ("not_found", NotFound),
    405: ("method_not_allowed", ApiError),
    408: ("request_timeout", ApiError),
    409: ("conflict", Conflict),
    410: ("gone", ApiError),
    413: ("too_large", ApiError),
    416: ("range_not_satisfiable", ApiError),
    421: ("misdirected", ApiError),
    422: ("unprocessable", ApiError),
    429: ("too_many_requests", TooManyRequests),
    503: ("unavailable", Unavailable),
}


def kind_of(status: int, body: Mapping[str, Any]) -> tuple[str, type[ApiError], str | None]:
    """The code and the type for an answer, and words in place of the server's where it has MongoDB's."""
    if status == 400 and "MongoDB::DuplicateKeyError" in body:
        return "conflict", Conflict, "there is a queue with this name already"
    if status == 400 and any(
        isinstance(part, Mapping) and part.get(count) == 0
        for part, count in (
            (body.get("MongoDB::UpdateResult"), "matched_count"),
            (body.get("MongoDB::DeleteResult"), "deleted_count"),
        )
    ):
        return "not_found", NotFound, None
    if status == 429 and "limit" in body:
        return "quota_exceeded", QuotaExceeded, None
    if status == 503 and "rule" in body:
        return "rejected", Rejected, None
    code, kind = KINDS.get(status, ("server_error", ServerError) if status >= 500 else ("error", ApiError))
    return code, kind, None


def api_error(status: int, body: Any, retry_after: float | None, request: str) -> ApiError:
    """The error that an answer stands for."""
    details: Mapping[str, Any] = body if isinstance(body, Mapping) else {}
    code, kind, words = kind_of(status, details)
    said = details.get("error")
    if words is None:
        words = said if isinstance(said, str) else f"the answer has status {status}"
    own_code = details.get("code")
    return kind(status, own_code if isinstance(own_code, str) else code, words, details, retry_after, request)
