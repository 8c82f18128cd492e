"""Tasks that are submitted in a transaction, whose replica set loses its primary before, or while, it is committed.

Starts a set of three members, a DEN and a DCI. A program `failover` of each language inserts a task and an order in a transaction and says `inserted`;
when it is answered, it commits, and says the id of the task. Whatever happens in between, there is one order, and its task has run once.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pymongo

from disbatch import Client, DisbatchError
from disbatch.testing import free_port

HERE = Path(__file__).resolve().parent.parent
SET = "failover"
DATABASE = "disbatch"


def until(what: str, is_so: Callable[[], Any], seconds: float = 60) -> Any:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := is_so():
            return found
        time.sleep(0.05)
    raise TimeoutError(f"waited in vain for {what}")


class World:
    """The set, which has a DEN and a DCI; all in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.programs = Path(shutil.which(os.environ["DISBATCH_PROGRAM"]) or "").parent
        self.mongod = subprocess.run([self.programs / "disbatch-mongod", "path"], check=True, capture_output=True, text=True).stdout.strip()
        self.processes: dict[int | str, subprocess.Popen[Any]] = {}

    def __enter__(self) -> World:
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _start(self) -> None:
        self.ports = [free_port() for _ in range(3)]
        for port in self.ports:
            self.start_member(port)
        # A member that hears nothing of its primary for so long stands for election. The default is for networks.
        settings = {"electionTimeoutMillis": 2000, "heartbeatIntervalMillis": 500}
        members = [{"_id": number, "host": f"127.0.0.1:{port}"} for number, port in enumerate(self.ports)]
        for port in reversed(self.ports):
            with pymongo.MongoClient[Any]("127.0.0.1", port, directConnection=True) as member:
                member.admin.command("ping")
                if port == self.ports[0]:
                    member.admin.command({"replSetInitiate": {"_id": SET, "members": members, "settings": settings}})
        self.uri = f"mongodb://{','.join(f'127.0.0.1:{port}' for port in self.ports)}/{DATABASE}?replicaSet={SET}"
        self.mongo: pymongo.MongoClient[Any] = pymongo.MongoClient(self.uri)
        self.until_whole()
        config = self.folder / "config.json"
        config.write_text(json.dumps({"mongohost": self.uri.replace(f"/{DATABASE}", "/"), "database": DATABASE}))
        port = free_port()
        self.start("dci", self.programs / "dci", "--config", config, "--listen", f"127.0.0.1:{port}")
        self.start("den", self.programs / "den", "--config", config)
        self.client = Client(f"http://127.0.0.1:{port}")
        until("the DCI", self.answers)
        self.client.create_queue("failover", "Disbatch::Plugin::Shell", threads=4)
        # Until the DEN is at work: indexes are not made as long as a member is away.
        self.client.result(self.client.submit("failover", {"command": "true"}), 60)

    def answers(self) -> bool:
        try:
            return bool(self.client.version())
        except DisbatchError:
            return False

    def start(self, name: int | str, *command: object) -> None:
        with open(self.folder / f"{name}.log", "ab") as log:
            said = [str(part) for part in command]
            self.processes[name] = subprocess.Popen(said, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def start_member(self, port: int) -> None:
        data = self.folder / f"member-{port}"
        data.mkdir(exist_ok=True)
        place = ["--dbpath", data, "--port", port, "--bind_ip", "127.0.0.1", "--nounixsocket", "--replSet", SET]
        self.start(port, self.mongod, *place, "--wiredTigerCacheSizeGB", 0.25, "--oplogSize", 128)

    def states(self) -> list[str]:
        try:
            return [one["stateStr"] for one in self.mongo.admin.command("replSetGetStatus")["members"]]
        except pymongo.errors.PyMongoError:
            return []

    def until_whole(self) -> None:
        """Only then can it lose a member."""
        until("a whole set", lambda: sorted(self.states()) == ["PRIMARY", "SECONDARY", "SECONDARY"])

    def kill_primary(self) -> int:
        primary = until("a primary", lambda: self.mongo.primary)[1]
        self.processes[primary].kill()
        self.processes[primary].wait()
        return int(primary)

    def __exit__(self, *_: object) -> None:
        # The DEN first, as long as there is a database. Members would look for a new primary for a while.
        for name, process in reversed(self.processes.items()):
            process.kill() if isinstance(name, int) else process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


class Program:
    """That of a language, with orders and a task of its own in each round."""

    def __init__(self, world: World, command: list[str], name: str) -> None:
        self.world = world
        self.name = name
        self.runs = world.folder / f"{name}.runs"
        environment = {**os.environ, "MONGODB_URL": world.uri, "QUEUE": "failover", "COMMAND": f"echo $DISBATCH_TASK_ID >> {self.runs}", "ORDERS": name}
        self.process = subprocess.Popen(command, cwd=HERE, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        world.processes[name] = self.process
        assert self.process.stdout
        said = self.process.stdout.readline()
        assert said == "inserted\n", f"{name} says {said!r}"

    def answer(self) -> None:
        assert self.process.stdin
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def check(self) -> None:
        said, _ = self.process.communicate(timeout=90)
        assert self.process.returncode == 0, f"{self.name} has ended with {self.process.returncode}"
        id = said.strip()
        task = self.world.client.wait(id, 60)
        assert task["word"] == "succeeded", f"{self.name}: {task}"
        ordered = [one["task"] for one in self.world.mongo["shop"][self.name].find()]
        assert ordered == [id], f"{self.name} has orders of {ordered}, and the task {id}"
        made = [one["id"] for one in self.world.client.list(queue="failover") if str(self.runs) in one["params"]["command"]]
        assert made == self.runs.read_text().split() == [id], f"{self.name} has the tasks {made}, runs of {self.runs.read_text().split()}, and the task {id}"


def lose_primaries(commands: dict[str, list[str]], folder: Path) -> None:
    """The primary is gone before the transactions are committed, and the next one at about that time."""
    with World(folder) as world:
        programs = [Program(world, command, f"{language}-before") for language, command in commands.items()]
        member = world.kill_primary()
        for program in programs:
            program.answer()
        for program in programs:
            program.check()
        world.start_member(member)
        world.until_whole()
        programs = [Program(world, command, f"{language}-during") for language, command in commands.items()]
        for program in programs:
            program.answer()
        world.kill_primary()
        for program in programs:
            program.check()
