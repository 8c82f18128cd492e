"""The fixture, as users have it."""

import socket

import pytest

from disbatch import testing
from disbatch.testing import Dev


def test_a_queue_is_drained(disbatch_dev: Dev) -> None:
    queue = disbatch_dev.queue("drained", "Conformance::Python")
    ids = disbatch_dev.client.submit_many(queue, [{"do": [["print", str(n)]]} for n in range(5)])
    tasks = disbatch_dev.drain(queue)
    assert [task["id"] for task in tasks] == ids
    assert [task.get("stdout") for task in tasks] == [f"{n}\n" for n in range(5)]


def test_a_port_may_be_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        free = testing.free_port()
        ports = iter([taken.getsockname()[1], free])
        monkeypatch.setattr(testing, "free_port", lambda: next(ports))
        with Dev() as dev:
            assert dev.url == f"http://127.0.0.1:{free}"
            assert dev.client.check()


def test_without_the_program_it_says_so() -> None:
    with pytest.raises(FileNotFoundError, match="DISBATCH_PROGRAM"):
        Dev(program="no-such-program")
