"""Runs the cases of clients/conformance/cases with both clients. `../../run-conformance` starts it."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import tempfile
import time
import traceback
import urllib.request
import warnings
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import disbatch
from disbatch import AsyncClient, Client

MISSING = object()


def fill(value: Any, known: dict[str, Any]) -> Any:
    """The value with `$name` and `${name}` replaced, and what stands for a list or a time."""
    if isinstance(value, dict):
        if "$repeat" in value:
            return [value["$repeat"]] * value["times"]
        if "$time" in value:
            from datetime import datetime

            return datetime.fromisoformat(value["$time"].replace("Z", "+00:00"))
        return {fill(key, known): fill(one, known) for key, one in value.items()}
    if isinstance(value, list):
        return [fill(one, known) for one in value]
    if not isinstance(value, str):
        return value
    whole = re.fullmatch(r"\$([a-z_]+)(?:\.(\d+))?", value)
    if whole and whole[1] in known:
        found = known[whole[1]]
        return found[int(whole[2])] if whole[2] else found
    return re.sub(r"\$\{([a-z_]+)\}", lambda name: str(known[name[1]]), value)


def problem(want: Any, have: Any, known: dict[str, Any], at: str = "it") -> str | None:
    """How `have` is not what the pattern `want` says."""
    if isinstance(want, dict):
        for operator, operand in want.items():
            if operator == "$any":
                return None
            if operator == "$save":
                known[operand] = have
                return None
            if operator == "$re":
                fine = isinstance(have, str) and re.search(operand, have) is not None
                return None if fine else f"{at} is {have!r:.300}, which does not match {operand}"
            if operator == "$len":
                return None if len(have) == operand else f"{at} has {len(have)} and not {operand}"
            if operator == "$type":
                names = {"string": str, "number": (int, float), "array": list, "object": dict}
                return None if isinstance(have, names[operand]) else f"{at} is {have!r:.300}, which is no {operand}"
            if operator == "$exact":
                return None if same(operand, have) else f"{at} is {have!r:.600} and not {operand!r:.600}"
            if operator == "$contains":
                rest = iter(have)
                for one in operand:
                    if not any(problem(fill(one, known), other, known) is None for other in rest):
                        return f"{at} lacks {one!r:.300} in {have!r:.600}"
                return None
        if not isinstance(have, dict):
            return f"{at} is {have!r:.300} and no object"
        for key, one in want.items():
            if wrong := problem(one, have.get(key, MISSING), known, f"{at}.{key}"):
                return wrong
        return None
    want = fill(want, known)
    if isinstance(want, list):
        if not isinstance(have, list) or len(have) != len(want):
            return f"{at} is {have!r:.600} and not {len(want)} long"
        return next((wrong for n, one in enumerate(want) if (wrong := problem(one, have[n], known, f"{at}.{n}"))), None)
    return None if same(want, have) else f"{at} is {have!r:.600} and not {want!r:.300}"


def same(one: Any, other: Any) -> bool:
    if MISSING in (one, other):
        return False
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def seen(value: Any) -> Any:
    """What a method returns, as JSON has it."""
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, disbatch.Event):
        return {"event": value.event, "data": value.data, "id": value.id}
    if isinstance(value, list):
        return [seen(one) for one in value]
    return value


class Ways:
    """How the methods are called: at once, or awaited."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.loop = asyncio.new_event_loop() if name == "async" else None

    def client(self, **options: Any) -> Any:
        return AsyncClient(**options) if self.loop else Client(**options)

    def call(self, client: Any, step: dict[str, Any], args: list[Any], options: dict[str, Any]) -> Any:
        value = getattr(client, step["call"])(*args, **options)
        take = step.get("take")
        if self.loop is None:
            return collected(value, take) if isinstance(value, Iterator) else value
        return self.loop.run_until_complete(awaited(value, take))

    def close(self, client: Any) -> None:
        if self.loop:
            self.loop.run_until_complete(client.close())
        else:
            client.close()


def is_last(one: Any, take: dict[str, Any] | None) -> bool:
    return take is not None and problem(take, seen(one), {}) is None


def collected(values: Iterator[Any], take: dict[str, Any] | None) -> Any:
    listed = []
    for one in values:
        listed.append(one)
        if is_last(one, take):
            break
    return listed


async def awaited(value: Any, take: dict[str, Any] | None) -> Any:
    if not isinstance(value, AsyncIterator):
        return await value
    listed = []
    async for one in value:
        listed.append(one)
        if is_last(one, take):
            break
    return listed


def failure(error: Exception) -> dict[str, Any]:
    keys = ("code", "status", "message", "details", "retry_after", "task")
    told = {key: getattr(error, key) for key in keys if hasattr(error, key)}
    told.setdefault("message", str(error))
    told.setdefault("code", type(error).__name__)
    return told


def ask(url: str, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(url, data), timeout=10) as answer:
        return json.load(answer)


def local(step: dict[str, Any]) -> str | None:
    """A step that looks at files."""
    if "write" in step:
        path = Path(step["write"])
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(step["text"] * step.get("times", 1))
    elif "same" in step:
        one, other = (Path(path).read_bytes() for path in step["same"])
        return None if one == other else f"{step['same']} differ"
    elif "link" in step:
        Path(step["link"]).symlink_to(step["to"])
    elif "file" in step:
        mode = f"{Path(step['file']).stat().st_mode & 0o7777:o}"
        return None if mode == step["mode"] else f"{step['file']} has mode {mode}"
    elif "absent" in step:
        return f"{step['absent']} is there" if Path(step["absent"]).exists() else None
    return None


def run_step(ways: Ways, client: Any, step: dict[str, Any], known: dict[str, Any]) -> str | None:
    if "call" not in step:
        return local(fill(step, known))
    if "trace" in step:
        client = client.with_traceparent(step["trace"])
    args, options = fill(step.get("args", []), known), fill(step.get("options", {}), known)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            value = ways.call(client, step, args, options)
            value = seen(b"".join(value) if step["call"] == "output" and isinstance(value, list) else value)
        except Exception as error:
            if "error" not in step:
                return f"{step['call']}: {traceback.format_exc()}"
            return problem(step["error"], failure(error), known, f"the error of {step['call']}")
    if "error" in step:
        return f"{step['call']} returns {value!r:.300} and does not fail"
    if "warning" in step:
        told = [str(one.message) for one in warned]
        if len(told) != 1 or problem(step["warning"], told[0], known):
            return f"{step['call']} warns of {told}"
    if "save" in step:
        known[step["save"]] = value
    return problem(step["expect"], value, known, step["call"]) if "expect" in step else None


def run_case(ways: Ways, case: dict[str, Any], known: dict[str, Any]) -> str | None:
    options = {"url": known["faults"] if "script" in case else known["dci"], **fill(case.get("client", {}), known)}
    if "script" in case:
        ask(known["faults"] + "/_script", case["script"])
        options.setdefault("backoff", 0.02)
    client = ways.client(**options)
    try:
        for step in case["steps"]:
            if wrong := run_step(ways, client, step, known):
                return wrong
    finally:
        ways.close(client)
    if "requests" not in case:
        return None
    requests = ask(known["faults"] + "/_requests")
    if len(requests) != len(case["requests"]):
        return f"{len(requests)} requests, and not {len(case['requests'])}: {requests!r:.900}"
    for n, want in enumerate(case["requests"]):
        want = dict(want)
        after = want.pop("after", None)
        if after is not None and requests[n]["at"] - requests[n - 1]["at"] < after:
            return f"request {n} came too early"
        if wrong := problem(want, requests[n], known, f"request {n}"):
            return wrong
    return None


def variants(case: dict[str, Any], ways: Ways) -> Iterator[tuple[str, dict[str, str]]]:
    if "for" not in case:
        yield case["name"], {}
    elif ways.name == "sync":
        # Plugins know nothing of clients.
        for plugin, kind in case["for"]:
            yield f"{case['name']} ({kind})", {"plugin": plugin.replace("${language}", "Python"), "kind": kind}


def main() -> None:
    cases = [case for path in sorted(Path(os.environ["CONFORMANCE_CASES"]).glob("*.json")) for case in json.loads(path.read_text())]
    cases = [case for case in cases if case.get("stage", "open") == os.environ["CONFORMANCE_STAGE"]]
    failed = passed = 0
    only = sys.argv[sys.argv.index("-k") + 1] if "-k" in sys.argv else ""
    for ways in (Ways("sync"), Ways("async")):
        with tempfile.TemporaryDirectory() as folder:
            known: dict[str, Any] = {name: os.environ[f"CONFORMANCE_{name.upper()}"] for name in ("dci", "faults", "mongodb", "tls", "ca", "token")}
            known |= {"run": f"py-{ways.name}", "tmp": folder}
            for case in cases:
                for name, more in variants(case, ways):
                    if only not in name:
                        continue
                    started = time.monotonic()
                    wrong = run_case(ways, case, {**known, **more} if more else known)
                    failed, passed = failed + (wrong is not None), passed + (wrong is None)
                    if wrong or "-v" in sys.argv:
                        print(f"{'FAILED' if wrong else 'ok'} {ways.name}: {name} ({time.monotonic() - started:.1f} s) {wrong or ''}")
    print(f"python: {passed} passed, {failed} failed")
    sys.exit(failed > 0 or (passed == 0 and not only))


if __name__ == "__main__":
    main()
