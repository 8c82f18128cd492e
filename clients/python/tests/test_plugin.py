"""Plugins by hand, as docs/plugins.md says: without a runner, with a control descriptor, and warm."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from disbatch import Task

WORK = """
import sys
from disbatch.plugin import Task, run, run_batch, run_warm
def work(task):
    print("out", task.params.get("n"))
    task.progress(250, "too far"); task.progress(float("nan"))
    task.result({"n": task.params["n"]})
    if task.params["n"] < 0: sys.exit("negative")
"""


def plugin(text: str, stdin: str, **env: str) -> tuple[int, str, str, list[Any]]:
    """Exit status, standard output and error, and what was sent on the control descriptor."""
    ours, theirs = os.pipe()
    with os.fdopen(ours) as control:
        ended = subprocess.run(
            [sys.executable, "-c", WORK + text], input=stdin, text=True, capture_output=True, pass_fds=[theirs], timeout=30,
            env={**os.environ, "DISBATCH_CONTROL_FD": str(theirs), **env},
        )
        os.close(theirs)
        said = [json.loads(line) for line in control]
    return ended.returncode, ended.stdout, ended.stderr, said


def line(id: str, n: int) -> dict[str, Any]:
    return {"task": {"_id": {"$oid": id}, "params": {"n": n}}, "env": {"DISBATCH_TASK_ID": id}}


PROGRESS = {"progress": {"percent": 100, "message": "too far"}}


def test_one_task() -> None:
    assert plugin("run(work)", '{"params":{"n":1}}') == (0, "out 1\n", "", [PROGRESS, {"result": {"n": 1}}])
    code, out, err, _ = plugin("run(work)", '{"params":{"n":-1}}')
    assert (code, out, err) == (1, "out -1\n", "negative\n")
    code, _, err, _ = plugin("run(work)", '{"params":{}}')
    assert code == 1 and "KeyError: 'n'" in err
    assert plugin("run_batch(lambda tasks: work(tasks[0]))", '{"params":{"n":1}}')[:2] == (0, "out 1\n")
    assert plugin("run(work)", "nonsense")[0] == 1
    said = plugin("run(lambda task: (task.save(3), task.interrupted()))", "{}")[3]
    assert said == [{"storage": 3}, {"interrupted": True}]


def test_a_container_names_a_path(tmp_path: Path) -> None:
    control, task = tmp_path / "control", '{"params":{"n":1}}'
    env = {"DISBATCH_CONTROL_FD": "", "DISBATCH_CONTROL": str(control)}
    code, out, err, _ = plugin("run(work)", task, **env)
    assert (code, out) == (0, "out 1\n") and "progress and results are lost" in err and not control.exists()
    control.write_text("{}\n")
    assert plugin("run(work)", task, **env)[:3] == (0, "out 1\n", "")
    assert [json.loads(line) for line in control.read_text().splitlines()] == [{}, PROGRESS, {"result": {"n": 1}}]


def test_task_after_task() -> None:
    lines = "".join(json.dumps(one) + "\n" for one in (line("a", 1), line("b", -2), line("c", 3)))
    code, out, err, said = plugin("run_warm(work)", lines, DISBATCH_WARM="1")
    assert (code, out, err) == (0, "out 1\nout -2\nout 3\n", "negative\n")
    assert [one["done"] for one in said if "done" in one] == [{"id": "a", "exit": 0}, {"id": "b", "exit": 1}, {"id": "c", "exit": 0}]


def test_a_task_has_no_variables_of_the_one_before() -> None:
    names = ["DISBATCH_TASK_ID", "TRACEPARENT", "DISBATCH_STEP_NAME", "DISBATCH_NODE"]
    first = {"DISBATCH_TASK_ID": "a", "TRACEPARENT": "00-1", "DISBATCH_STEP_NAME": "sum", "DISBATCH_NODE": "theirs"}
    lines = "".join(json.dumps({"task": {}, "env": env}) + "\n" for env in (first, {"DISBATCH_TASK_ID": "b"}))
    text = f"import os\nrun_warm(lambda task: print(*[os.environ.get(name) for name in {names}]))"
    _, out, err, _ = plugin(text, lines, DISBATCH_WARM="1", DISBATCH_NODE="own")
    assert (out, err) == ("a 00-1 sum theirs\nb None None own\n", "")


def test_a_batch_one_by_one_and_at_once() -> None:
    both = json.dumps({"tasks": [line("a", 1), line("b", -2)]}) + "\n"
    code, out, _, said = plugin("run(work)", both, DISBATCH_WARM="1")
    assert (code, out) == (0, "")
    assert "".join(one["stdout"] for one in said if one.get("id") == "a" and "stdout" in one) == "out 1\n"
    assert {"id": "b", "stderr": "negative\n"} in said and said[-1] == {"id": "b", "done": {"exit": 1}}
    text = "run_batch(lambda tasks: (tasks[1].print('two'), tasks[1].done(3)))"
    _, _, _, said = plugin(text, both, DISBATCH_WARM="1")
    assert said == [{"id": "b", "stdout": "two\n"}, {"id": "b", "done": {"exit": 3}}, {"id": "a", "done": {"exit": 0}}]
    _, _, _, said = plugin("run_batch(lambda tasks: 1 / 0)", both, DISBATCH_WARM="1")
    assert [one["done"] for one in said if "done" in one] == [{"exit": 1}, {"exit": 1}]
    assert "ZeroDivisionError" in said[0]["stderr"]


def test_a_task_that_waits_hears_of_its_cancel() -> None:
    text = """
import threading, time
def after_all_was_read(tasks):
    while threading.active_count() > 1: time.sleep(0.01)
    tasks[0].print(str(tasks[0].cancelled.is_set()))
run_batch(after_all_was_read)
"""
    lines = "".join(json.dumps(one) + "\n" for one in ({"tasks": [line("a", 1)]}, {"tasks": [line("b", 2)]}, {"cancel": {"id": "b"}}))
    said = plugin(text, lines, DISBATCH_WARM="1")[3]
    assert [one["stdout"] for one in said if "stdout" in one] == ["False\n", "True\n"]
    code, _, err, _ = plugin("run_batch(work)", "nonsense\n", DISBATCH_WARM="1")
    assert code == 1 and "JSONDecodeError" in err


def test_long_text_of_a_batch_is_in_lines_that_the_runner_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "🦀" * 300_000 + "\x01" * 300_000
    with open(tmp_path / "control", "w+b") as control:
        monkeypatch.setenv("DISBATCH_CONTROL_FD", str(control.fileno()))
        task = Task({"_id": "a"}, in_batch=True)
        task.print(text)
        task.log("half \udc80")
        control.seek(0)
        lines = list(control)
    assert max(len(line) for line in lines) < 2 * 1024 * 1024
    said = [json.loads(line) for line in lines]
    assert "".join(one.get("stdout", "") for one in said) == text + "\n"
    assert said[-1] == {"id": "a", "stderr": "half ?\n"}


def test_only_what_can_be_stored_is_sent() -> None:
    task = Task({"params": {"a": 1}, "secure_params": {"password": "horse"}})
    assert task.secure_params == {"password": "horse"} and "horse" not in repr(task.document)
    for wrong in (0, -1, "1"):
        with pytest.raises(ValueError, match="status must be a positive integer"):
            task.status(wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="result must be an object"):
        task.result([1])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="result must have at most 1048576 bytes"):
        task.result({"a": "x" * 1024 * 1024})
    with pytest.raises(ValueError, match="the task must be an object"):
        Task(5)  # type: ignore[arg-type]


def test_a_task_is_committed_under_the_name_of_its_attempt() -> None:
    task = Task({}, env={"DISBATCH_COMMIT": "6b0003bb686c8275d8013333.2", "DISBATCH_DATABASE": "disbatch"})
    assert task.commit_document() == {"_id": "6b0003bb686c8275d8013333.2", "status": 1}
    assert task.commit_document(7)["status"] == 7
    with pytest.raises(ValueError, match="status must be a positive integer"):
        task.commit_document(0)
    with pytest.raises(ValueError, match='its manifest has no "commits": true'):
        Task({}, env={}).commit_document()
    # As the driver says it: without a transaction, the effects would be there anyhow.
    with pytest.raises(ValueError, match="commit needs a session with a transaction"):
        task.commit(type("Session", (), {"in_transaction": False}))
