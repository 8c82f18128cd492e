"""A Disbatch for tests: `disbatch dev` in a folder of its own.

    with Dev(plugins=["./plugins"]) as dev:
        dev.queue("greet", "My::Greet")
        ids = dev.client.submit_many("greet", [{"name": "Ada"}])
        (task,) = dev.drain("greet")
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ._client import Client
from ._errors import DisbatchError
from ._types import TaskInfo

if TYPE_CHECKING:
    from typing_extensions import Self

READY = "following the logs"
PORT_IS_TAKEN = "cannot be used; choose another with --port"


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


class Dev:
    """A database, a DEN and a DCI, from `disbatch dev` until `stop`."""

    def __init__(
        self, *, plugins: Sequence[str | os.PathLike[str]] = (), program: str | None = None, data: str | os.PathLike[str] | None = None,
        timeout: float = 120.0,
    ) -> None:
        """`plugins` are folders of plugins. `program` is `disbatch`: else `DISBATCH_PROGRAM` or that in `PATH`. Without `data`
        there is a temporary folder, which goes away with it."""
        name = program or os.environ.get("DISBATCH_PROGRAM") or "disbatch"
        found = shutil.which(name)
        if found is None:
            raise FileNotFoundError(f"there is no program {name!r}: install Disbatch, or name it in DISBATCH_PROGRAM")
        self._temporary = None if data is not None else tempfile.TemporaryDirectory(prefix="disbatch-dev-")
        self.folder = Path(data) if data is not None else Path(self._temporary.name if self._temporary else "")
        more = [argument for folder in plugins for argument in ("--plugins", os.fspath(folder))]
        is_ready = self._start([found, "dev", "--data", str(self.folder), *more], timeout)
        # Somebody else may have been faster.
        if not is_ready and PORT_IS_TAKEN in self.log:
            is_ready = self._start([found, "dev", "--data", str(self.folder), *more], timeout)
        if not is_ready:
            said = "".join(self._lines[-20:])
            self.stop()
            raise RuntimeError(f"disbatch dev did not start:\n{said}")
        self.client = Client(self.url)

    def _start(self, command: list[str], timeout: float) -> bool:
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self._lines: list[str] = []
        self._ready = threading.Event()
        self._process = subprocess.Popen(
            [*command, "--port", str(port)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        return self._ready.wait(timeout) and self._process.poll() is None

    def _read(self) -> None:
        # To the end: a pipe that nobody reads from stops who writes.
        for line in self._process.stdout or ():
            self._lines.append(line)
            if READY in line:
                self._ready.set()
        self._process.wait()
        self._ready.set()

    @property
    def log(self) -> str:
        """What it and its processes have said."""
        return "".join(self._lines)

    @property
    def mongodb(self) -> str:
        """Where its MongoDB is, with the name of its database, for what writes into the inbox."""
        config = json.loads((self.folder / "config.json").read_text())
        return str(config["mongohost"].replace("/?", f"/{config['database']}?"))

    def queue(self, name: str, plugin: str, *, threads: int = 4, **settings: Any) -> str:
        """A queue that runs tasks; returns its name."""
        self.client.create_queue(name, plugin, threads=threads, **settings)
        return name

    def drain(self, queue: str, timeout: float = 60.0) -> list[TaskInfo]:
        """Waits until all tasks of the queue have ended, and returns them in the order of their submission."""
        end = time.monotonic() + timeout
        while live := list(self.client.list(queue=queue, status=["queued", "claimed", "running", "blocked", "deferred"])):
            for task in live:
                self.client.wait(task["id"], max(0.0, end - time.monotonic()))
        return [self.client.get(task["id"]) for task in reversed(list(self.client.list(queue=queue)))]

    def stop(self) -> None:
        """Ends all of it, running tasks too."""
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            # The second signal does not wait for tasks.
            self._process.terminate()
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._reader.join(5)
        if self._temporary is not None:
            self._temporary.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.client.close()
        except DisbatchError:
            pass
        self.stop()
