"""Both clients have the same methods with the same parameters."""

import asyncio
import inspect
import threading
from collections.abc import Callable
from typing import Any

import pytest

from disbatch import AsyncClient, Client
from disbatch._calls import EventReader, Position, Retries, Steps, get, parts, post, retry_after
from disbatch._errors import RequestTimeout, Unreachable, api_error


def methods(kind: type) -> dict[str, list[str]]:
    found: dict[str, Callable[..., Any]] = dict(inspect.getmembers(kind, inspect.isfunction))
    return {name: [str(one) for one in inspect.signature(f).parameters.values()] for name, f in found.items() if name[0] != "_"}


def test_both_clients_have_the_same_methods() -> None:
    assert methods(Client) == methods(AsyncClient)
    assert len(methods(Client)) > 30


def test_the_plugin_side_needs_nothing_but_the_standard_library() -> None:
    import subprocess
    import sys

    text = "import sys, disbatch; disbatch.Task, disbatch.run; assert 'httpx' not in sys.modules; disbatch.Client; assert 'httpx' in sys.modules"
    subprocess.run([sys.executable, "-c", text], check=True)


def test_pauses_grow_with_jitter_and_have_an_end() -> None:
    retries = Retries(most=3, base=1.0, longest=3.0, longest_asked=60.0)
    pauses = [[retries.pause(Unreachable("x"), get("/"), tried) for _ in range(200)] for tried in range(4)]
    for tried, limit in enumerate((1.0, 2.0, 3.0)):
        told = [pause for pause in pauses[tried] if pause is not None]
        assert len(told) == 200 and max(told) <= limit and min(told) < limit / 4 < limit * 3 / 4 < max(told)
    assert set(pauses[3]) == {None}


def test_only_what_may_be_repeated_is_tried_again() -> None:
    retries = Retries(most=3, base=0.0, longest=0.0, longest_asked=60.0)

    def is_tried(error: Exception, repeatable: bool) -> bool:
        assert isinstance(error, Unreachable) or hasattr(error, "status")
        return retries.pause(error, post("/", {}, repeatable), 0) is not None  # type: ignore[arg-type]

    def answer(status: int, body: object = None) -> Exception:
        return api_error(status, body, None, "GET /")

    assert [is_tried(RequestTimeout("late"), one) for one in (True, False)] == [True, False]
    assert [is_tried(Unreachable("refused", sent=False), one) for one in (True, False)] == [True, True]
    for status, expected in ((500, [False, False]), (502, [True, False]), (503, [True, False]), (504, [True, False]), (409, [False, False])):
        assert [is_tried(answer(status), one) for one in (True, False)] == expected, status
    assert [is_tried(answer(429), one) for one in (True, False)] == [True, True]
    assert not is_tried(answer(429, {"limit": "max_queued"}), True)
    assert not is_tried(answer(503, {"rule": {}}), True)


def test_retry_after_is_a_number_or_a_date() -> None:
    assert retry_after("7") == 7
    assert retry_after("Wed, 21 Oct 2015 07:28:00 GMT") == 0
    assert retry_after("soon") is None
    assert retry_after(None) is None


def test_requests_are_cut_by_number_and_by_size() -> None:
    assert [len(part) for part in parts([{}] * 2500)] == [1000, 1000, 500]
    large = {"x": "y" * (5 * 1024 * 1024)}
    assert [len(part) for part in parts([large, large, {}, {}])] == [1, 3]
    assert list(parts([])) == []


def test_work_does_not_hold_up_the_loop() -> None:
    def steps() -> Steps[threading.Thread]:
        return (yield threading.current_thread)  # type: ignore[no-any-return]

    assert asyncio.run(AsyncClient("http://127.0.0.1:9")._run(steps())) != threading.current_thread()
    assert Client("http://127.0.0.1:9")._run(steps()) == threading.current_thread()


def test_events_may_be_cut_anywhere() -> None:
    text = 'event: output\nid: 1\ndata: {"text":"ü"}\n\n: ping\n\nevent: end\ndata: {}\n\n'.encode()
    for size in range(1, len(text)):
        reader = EventReader()
        events = [event for at in range(0, len(text), size) for event in reader.feed(text[at : at + size])]
        assert [(event.event, event.data, event.id) for event in events] == [("output", {"text": "ü"}, "1"), ("end", {}, "1")]


def test_a_position_skips_what_was_there() -> None:
    position = Position()
    assert position.new(b"abc") == b"abc"
    assert position.new(b"") == b""
    assert position.offset == 3


def test_as_many_wait_as_there_are() -> None:
    async def ask() -> None:
        many, there, all_there = 101, 0, asyncio.Event()

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal there
            await reader.readuntil(b"\r\n\r\n")
            there += 1
            if there == many:
                all_there.set()
            await all_there.wait()
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]")
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with AsyncClient(f"http://127.0.0.1:{port}", timeout=20, retries=0) as client:
            assert await asyncio.gather(*(client.queues() for _ in range(many))) == [[]] * many
        server.close()

    asyncio.run(ask())


def test_a_password_is_no_part_of_the_address() -> None:
    with pytest.raises(ValueError, match="username and password") as raised:
        Client("http://alice:horse@localhost")
    assert "horse" not in str(raised.value)


@pytest.mark.parametrize("text", ["", ".", ".."])
def test_an_id_is_one_part_of_an_address(text: str) -> None:
    with pytest.raises(ValueError), Client("http://127.0.0.1:9") as client:
        client.get(text)
