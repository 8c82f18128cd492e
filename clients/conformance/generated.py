"""Uses the client that a generator has made of `/openapi-3.0.json`, in the folder `generated`: generated.py URL"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path.cwd()))
from generated import Client  # noqa: E402
from generated.api.queues import create_queue, list_queues  # noqa: E402
from generated.api.tasks import create_tasks, wait_for_task  # noqa: E402
from generated.models import NewQueue, NewTasks  # noqa: E402

with Client(base_url=sys.argv[1], raise_on_unexpected_status=True) as client:
    made = create_queue.sync(client=client, body=NewQueue(name="generated", plugin="Conformance::Python", threads=2))
    assert made is not None, "the queue was not made"
    new = NewTasks.from_dict({"queue": "generated", "params": [{"do": []}]})
    answer = create_tasks.sync(client=client, body=new)
    assert answer is not None, "no task was made"
    task = answer.to_dict()["MongoDB::InsertManyResult"]["inserted"][0]["_id"]["$oid"]
    ended = wait_for_task.sync(task, client=client, timeout=30)
    assert ended is not None and ended.to_dict()["status"] == 1, ended
    names = [queue.name for queue in list_queues.sync(client=client) or []]
    assert "generated" in names, names
