"""The shapes of what is sent and answered. Keys are those of the REST API, without the dot of options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypedDict, Union

Json = Any
When = Union[str, int, float, datetime]
Seconds = Union[int, float, timedelta]


class _EveryTask(TypedDict):
    id: str
    queue: str
    status: int
    word: str
    ended: bool
    params: Json


class TaskInfo(_EveryTask, total=False):
    """A task. `id` and `queue` are ids as text; `word` is its status in a word, `ended` whether it is over."""

    queue_name: str | None
    node: str | None
    ctime: str
    mtime: str
    attempt: int
    result: Json
    progress: Json
    stdout: Json
    stderr: Json
    exit: Json
    history: Json
    started: str | None
    priority: int
    group: str
    tags: Sequence[str]
    owner: str
    tenant: str


class EnqueueOptions(TypedDict, total=False):
    """Options of tasks that the inbox takes, too, see "The document" of docs/inbox.md."""

    run_at: When
    delay: Seconds
    timeout: Seconds
    grace: Seconds
    max_attempts: int
    backoff: Mapping[str, float]
    deadline: When
    unique: str
    group: str
    priority: int
    tags: Sequence[str]
    steps: Sequence[Mapping[str, Json]]
    files: Mapping[str, Json]
    after: Sequence[str]
    after_when: str
    after_failed: str
    chain: bool
    locks: Sequence[str]


class SubmitOptions(EnqueueOptions, total=False):
    """Options of a submission, see "Options of a submission" of docs/api.md."""

    secure_params: Mapping[str, Json]
    tenant: str
    array: Union[str, Sequence[Json]]
    array_key: str
    array_cap: int
    array_final: Mapping[str, Json]
    array_final_when: str
    idempotency_key: str


class ScheduleFields(TypedDict, total=False):
    """Fields of a schedule, see "Schedules" of docs/api.md."""

    cron: Union[str, Sequence[str]]
    zone: str
    gap: str
    fold: str
    jitter: int
    start: When
    end: When
    calendars: Sequence[Mapping[str, str]]
    overlap: str
    catch_up: int
    params: Mapping[str, Json]
    secure_params: Mapping[str, Json]
    options: Mapping[str, Json]
    tenant: str
    description: str
    paused: bool
    rev: int


class Filter(TypedDict, total=False):
    """Which tasks `list` has."""

    queue: str
    status: Union[str, int, Sequence[Union[str, int]]]
    node: str
    tags: Sequence[str]
    any_tags: Sequence[str]
    text: str
    since: When
    until: When
    created_since: When
    created_until: When
    newer_than: Seconds
    older_than: Seconds


@dataclass(frozen=True)
class Event:
    """What happens to a task: `status`, `progress`, `output` or `end`, and its data."""

    event: str
    data: dict[str, Json]
    id: str | None = None
