"""File sets: what is sent and where it is put, without a word about how."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Union

from ._calls import Call, Steps, get, post, segment
from ._errors import ProtocolError

CHUNK = 1024 * 1024
ENTRIES = 1000

Source = Union[str, "os.PathLike[str]", Mapping[str, Union[bytes, str, "os.PathLike[str]"]]]


@dataclass(frozen=True)
class LocalFile:
    """A file to be sent: of a path, or what is in it."""

    name: str
    path: Path | None
    data: bytes = b""

    def chunks(self, numbers: range | list[int]) -> Iterator[tuple[int, bytes]]:
        if self.path is None:
            for n in numbers:
                yield n, self.data[n * CHUNK : (n + 1) * CHUNK]
            return
        with self.path.open("rb") as file:
            for n in numbers:
                file.seek(n * CHUNK)
                yield n, file.read(CHUNK)

    def digest(self) -> tuple[str, int]:
        """SHA-256 and length."""
        if self.path is None:
            return hashlib.sha256(self.data).hexdigest(), len(self.data)
        sha, size = hashlib.sha256(), 0
        with self.path.open("rb") as file:
            while chunk := file.read(CHUNK):
                sha.update(chunk)
                size += len(chunk)
        return sha.hexdigest(), size

    def entry(self, sha: str, size: int) -> dict[str, Any]:
        entry: dict[str, Any] = {"path": self.name, "sha256": sha, "size": size}
        if self.path is not None:
            stat = self.path.stat()
            changed = datetime.fromtimestamp(stat.st_mtime, timezone.utc)
            entry["mode"] = f"{stat.st_mode & 0o777:03o}"
            entry["mtime"] = changed.strftime("%Y-%m-%dT%H:%M:%SZ")
        return entry


def local_files(source: Source) -> list[LocalFile]:
    """All files below a folder, a single file, or those of a mapping from their paths in the set; bytes are what is in one."""
    if isinstance(source, Mapping):
        return [
            LocalFile(name, None, one) if isinstance(one, bytes) else LocalFile(name, Path(one))
            for name, one in sorted(source.items())
        ]
    top = Path(source)
    if top.is_file():
        return [LocalFile(top.name, top)]
    if not top.is_dir():
        raise FileNotFoundError(f"{top} is neither a folder nor a file")
    found = sorted(path for path in top.rglob("*") if path.is_file() and not path.is_symlink())
    return [LocalFile(path.relative_to(top).as_posix(), path) for path in found]


def put(name: str, source: Source, options: Mapping[str, Any]) -> Steps[dict[str, Any]]:
    files = local_files(source)
    # One that is opened twice and left alone goes away by itself.
    call = post(f"/files/{segment(name)}", {"." + key: value for key, value in options.items() if value is not None}, True)
    version = (yield call).json(call)["id"]
    entries = []
    for file in files:
        sha, size = yield file.digest
        yield from put_content(file, sha, size)
        entries.append(file.entry(sha, size))
    for first in range(0, max(len(entries), 1), ENTRIES):
        yield post(f"/files/versions/{version}/entries", {"entries": entries[first : first + ENTRIES]}, True)
    call = post(f"/files/versions/{version}/commit", {}, True)
    return (yield call).json(call)  # type: ignore[no-any-return]


def put_content(file: LocalFile, sha: str, size: int) -> Steps[None]:
    path = f"/files/contents/{sha}"
    call = get(path)
    state = (yield call).json(call)
    if state["done"]:
        return
    if state["length"] is None:
        missing: range | list[int] = range((size + CHUNK - 1) // CHUNK)
    else:
        missing = [n for part in state["missing"] for n in range(part["first"], part["last"] + 1)]
    for n, data in file.chunks(missing):
        yield Call("PUT", f"{path}/{n}", {"length": size}, content=data, repeatable=True)
    # Reading back 10 GiB may take minutes.
    yield Call("POST", f"{path}/finish", content=b"", repeatable=True, patience=300)


def versions(name: str | None) -> Steps[list[dict[str, Any]]]:
    """All sets, or the newest versions of one."""
    if name is not None:
        call = get(f"/files/{segment(name)}", _limit=1)
        return (yield call).json(call)["versions"]  # type: ignore[no-any-return]
    listed: list[dict[str, Any]] = []
    while True:
        call = get("/files", _limit=ENTRIES, _after=listed[-1]["name"] if listed else None)
        page = (yield call).json(call)
        listed += page
        if len(page) < ENTRIES:
            return listed


def wanted(name: str, version: int | None, prefix: str | None) -> Steps[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """A version and all of its files whose paths begin with `prefix`."""
    entries: list[dict[str, Any]] = []
    after = None
    while True:
        call = get(f"/files/{segment(name)}", _version=version, _prefix=prefix, _after=after, _limit=ENTRIES)
        page = (yield call).json(call)
        entries += page.pop("entries")
        # There may be a newer one in a moment.
        version, after = page["version"], page.pop("next")
        if after is None:
            page.pop("versions", None)
            return page, entries


def content_call(name: str, version: int, path: str) -> Call:
    parts = "/".join(segment(part) for part in path.split("/"))
    return Call("GET", f"/files/{segment(name)}/content/{parts}", {".version": version}, headers={"Accept": "*/*"}, repeatable=True)


class Place:
    """Where a file of a set is put: whole or not at all, and never outside of the folder."""

    def __init__(self, top: Path, entry: Mapping[str, Any]) -> None:
        parts = str(entry["path"]).split("/")
        if any(part in ("", ".", "..") or "\0" in part or "\\" in part for part in parts):
            raise ProtocolError(f"the server names a file {entry['path']!r}, which is no path in a folder")
        self.entry = entry
        self.path = top.joinpath(*parts)
        top.mkdir(parents=True, exist_ok=True)
        if not self.path.parent.resolve().is_relative_to(top.resolve()):
            raise ProtocolError(f"{self.path.parent} leads out of {top}")
        self.path.parent.mkdir(parents=True, exist_ok=True)

    def is_there(self) -> bool:
        if self.path.is_symlink() or not self.path.is_file() or self.path.stat().st_size != self.entry["size"]:
            return False
        return LocalFile("", self.path).digest()[0] == str(self.entry["sha256"])

    def open(self) -> Part:
        return Part(self)


class Part:
    """A file that is not whole yet."""

    def __init__(self, place: Place) -> None:
        self.place = place
        number, self.name = tempfile.mkstemp(dir=place.path.parent, prefix=".disbatch-")
        self.file = os.fdopen(number, "wb")
        self.sha = hashlib.sha256()

    def write(self, data: bytes) -> None:
        self.file.write(data)
        self.sha.update(data)

    def finish(self) -> None:
        entry = self.place.entry
        self.file.close()
        if self.sha.hexdigest() != entry["sha256"]:
            raise ProtocolError(f"{entry['path']}: what has come has another SHA-256 than the file set says")
        os.chmod(self.name, int(entry.get("mode") or "644", 8) & 0o777)
        if isinstance(changed := entry.get("mtime"), str):
            at = datetime.fromisoformat(changed.rstrip("Z")).replace(tzinfo=timezone.utc).timestamp()
            os.utime(self.name, (at, at))
        os.replace(self.name, self.place.path)

    def give_up(self) -> None:
        self.file.close()
        if os.path.exists(self.name):
            os.unlink(self.name)
