"""What is put into the inbox: as the contract says, and once."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from bson import ObjectId, json_util
from pymongo import AsyncMongoClient, MongoClient
from pymongo.client_session import ClientSession

from disbatch import WaitTimeout
from disbatch._contract import SCHEMA, problem
from disbatch._types import EnqueueOptions, SubmitOptions
from disbatch.inbox import enqueue, enqueue_many
from disbatch.testing import Dev

Document = dict[str, Any]
CONTRACT = Path(__file__).parents[3] / "contract"
VECTORS = json.loads((CONTRACT / "inbox.vectors.json").read_text())["vectors"]
FIELDS = {"queue", "params", "options", "key", "by", "trace"}
# A task that leaves its id in a file for each time that it has run.
NOTING = "echo $DISBATCH_TASK_ID >> {}"


@pytest.fixture
def client(disbatch_dev: Dev) -> Iterator[MongoClient[Document]]:
    with MongoClient[Document](disbatch_dev.mongodb, tz_aware=True) as client:
        yield client


@pytest.fixture
def orders(client: MongoClient[Document]) -> Iterator[Any]:
    """A collection of the application, in a database of its own."""
    yield client["shop"]["orders"]
    client.drop_database("shop")


@pytest.fixture(scope="session")
def queue(disbatch_dev: Dev) -> str:
    return disbatch_dev.queue("inbox", "Disbatch::Plugin::Shell")


def document_of(vector: Document) -> Document:
    text = json.dumps({"_id": {"$oid": str(ObjectId())}, **vector["document"]})
    return json_util.loads(text, json_options=json_util.JSONOptions(tz_aware=True))  # type: ignore[no-any-return]


def given(document: Document) -> Document:
    """What of it says something; its id is another one each time."""
    options = {name: value for name, value in (document.get("options") or {}).items() if value is not None}
    return {name: value for name, value in {**document, "_id": None, "options": options or None}.items() if value is not None}


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_the_contract_is_kept(vector: Document, client: MongoClient[Document], orders: Any) -> None:
    document = document_of(vector)
    assert (problem(document) is None) == vector["valid"]
    # What the arguments can say.
    if document.get("v") != 1 or not {"queue", "params"} <= document.keys() <= FIELDS | {"_id", "v"} or document.get("options") == []:
        assert not vector["valid"]
        return
    more: Any = {name: document.get(name) for name in ("key", "by")} | document.get("options", {})
    inbox = orders.database["inbox"]
    try:
        id = enqueue(inbox, document["queue"], document["params"], traceparent=document.get("trace"), **more)
    except ValueError as refused:
        assert not vector["valid"], refused
        assert list(inbox.find()) == []
    else:
        assert vector["valid"]
        (stored,) = inbox.find()
        assert given(stored) == given(document) and str(stored["_id"]) == id


def test_the_options_are_those_of_the_contract() -> None:
    options = SCHEMA["properties"]["options"]["properties"]
    assert EnqueueOptions.__annotations__.keys() == {name for name, rule in options.items() if "not" not in rule}
    assert {name for name, rule in options.items() if "not" in rule} <= SubmitOptions.__annotations__.keys()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"secure_params": {"pin": 1}}, "secure_params: secure parameters are not taken by the inbox, where others could read them"),
        ({"array": "0-9"}, "array: arrays are not taken by the inbox"),
        ({"tenant": "acme"}, "tenant: the tenant follows from the configuration"),
        ({"idempotency_key": "k"}, "idempotency_key: is the field 'key' of the document"),
        ({"max_attemps": 3}, "max_attemps is unknown; known are run_at, delay, .*max_attempts"),
        ({"timeout": -1}, "timeout must be seconds from 0 to 315360000"),
        ({"delay": float("nan")}, "delay must be seconds from 0 to 315360000"),
        ({"priority": True}, "priority must be an integer from -1000 to 1000"),
        ({"max_attempts": 1.5}, "max_attempts must be an integer from 1 to 1000000"),
        ({"after": []}, "after must be 1 to 1000 ids of tasks"),
        ({"after_when": "never"}, "after_when must be succeeded, finished or any"),
        ({"key": "k" * 201}, "key must be text of 1 to 200 characters"),
        ({"run_at": datetime(2099, 1, 1)}, "has no time zone"),
        ({"queue": ""}, "queue must be the name or the id of a queue"),
        ({"queue": datetime.now(timezone.utc)}, "queue must be the name or the id of a queue"),
        ({"params": [1]}, "params must be an object"),
        ({"params": ObjectId()}, "params must be an object"),
    ],
)
def test_what_is_wrong_is_named_before_anything_is_inserted(options: Any, message: str, orders: Any) -> None:
    with pytest.raises(ValueError, match=message):
        enqueue(orders.database, **{"queue": "q", "params": {"a": 1}, **options})
    with pytest.raises(ValueError, match=message):
        enqueue_many(orders.database, **{"queue": "q", **options, "params": [{"a": 1}, options.get("params", {"a": 2})]})
    assert orders.database.list_collection_names() == []


def test_it_is_put_into_nothing_else(client: MongoClient[Document], orders: Any) -> None:
    with pytest.raises(ValueError, match="the inbox is the collection inbox, and not orders"):
        enqueue(orders, "q", {"a": 1})
    for wrong in (client, "inbox", None):
        with pytest.raises(ValueError, match="a database of pymongo or its collection inbox, and not into"):
            enqueue(wrong, "q", {"a": 1})  # type: ignore[call-overload]


def test_options_keep_their_types(orders: Any) -> None:
    at = datetime(2099, 1, 1, tzinfo=timezone(timedelta(hours=1)))
    queue = ObjectId()
    options: Any = {"deadline": at, "timeout": timedelta(minutes=2), "locks": ("a", "b"), "unique": None}
    enqueue(orders.database, queue, {"at": at}, traceparent=lambda: "00-1", **options)
    (stored,) = orders.database["inbox"].find({}, {"_id": 0})
    assert stored == {
        "v": 1, "queue": queue, "params": {"at": at}, "trace": "00-1", "options": {"deadline": at, "timeout": 120.0, "locks": ["a", "b"]},
    }


def test_many_have_keys_of_their_own_and_may_be_a_chain(orders: Any) -> None:
    before = str(ObjectId())
    ids = enqueue_many(orders.database, "q", ({"n": n} for n in range(3)), key="k", chain=True, after=[before], group="g")
    stored = list(orders.database["inbox"].find())
    assert [str(one["_id"]) for one in stored] == ids and [one["params"]["n"] for one in stored] == [0, 1, 2]
    assert [one["key"] for one in stored] == ["k", "k/1", "k/2"]
    assert [one["options"] for one in stored] == [{"after": [link], "group": "g"} for link in (before, stored[0]["_id"], stored[1]["_id"])]
    assert enqueue_many(orders.database, "q", []) == []


def test_without_pymongo_it_says_so() -> None:
    text = "import sys; sys.modules['pymongo'] = None; import disbatch; disbatch.Client\ntry: import disbatch.inbox\nexcept ImportError as error: print(error)"
    said = subprocess.run([sys.executable, "-c", text], check=True, capture_output=True, text=True).stdout
    assert said == "disbatch.inbox needs pymongo 4.13 or newer: pip install 'disbatch[mongodb]'\n"
    text = "import sys, disbatch; disbatch.Client; assert 'pymongo' not in sys.modules"
    subprocess.run([sys.executable, "-c", text], check=True)


def runs(path: Path) -> list[str]:
    return sorted(path.read_text().split())


def test_what_is_committed_runs_once_and_what_is_aborted_never(disbatch_dev: Dev, client: MongoClient[Document], orders: Any, queue: str, tmp_path: Path) -> None:
    inbox = client.get_default_database()
    params = {"command": NOTING.format(tmp_path / "runs")}
    with client.start_session() as session, session.start_transaction():
        committed = enqueue(inbox, queue, params, session=session)
        more = enqueue_many(inbox, queue, [params] * 20, after=[committed], session=session)
        orders.insert_one({"_id": 1, "tasks": [committed, *more]}, session=session)
    with client.start_session() as session, pytest.raises(ZeroDivisionError), session.start_transaction():
        aborted = [enqueue(inbox, queue, params, session=session), *enqueue_many(inbox, queue, [params] * 2, session=session)]
        1 / 0
    alone = enqueue(inbox["inbox"], queue, params)
    for id in (committed, *more, alone):
        assert disbatch_dev.client.wait(id, 60)["word"] == "succeeded"
    assert runs(tmp_path / "runs") == sorted([committed, *more, alone])
    assert inbox["tasks"].count_documents({"_id": {"$in": [ObjectId(id) for id in aborted]}}) == 0
    assert orders.find_one()["tasks"] == [committed, *more]


def test_a_transaction_that_is_tried_again_submits_once(disbatch_dev: Dev, client: MongoClient[Document], orders: Any, queue: str, tmp_path: Path) -> None:
    inbox = client.get_default_database()
    params = {"command": NOTING.format(tmp_path / "runs")}
    orders.insert_one({"_id": "stock", "left": 3})
    tried: list[str] = []

    def sell(session: ClientSession) -> str:
        tried.append(enqueue(inbox, queue, params, session=session))
        if len(tried) == 1:
            # Somebody else is faster: what follows conflicts with it.
            orders.update_one({"_id": "stock"}, {"$inc": {"left": -1}})
        orders.update_one({"_id": "stock"}, {"$inc": {"left": -1}, "$push": {"tasks": tried[-1]}}, session=session)
        return tried[-1]

    with client.start_session() as session:
        id = session.with_transaction(sell)
    assert len(tried) == 2 and orders.find_one() == {"_id": "stock", "left": 1, "tasks": [id]}
    assert disbatch_dev.client.result(id, 60) is None
    assert runs(tmp_path / "runs") == [id]
    assert inbox["tasks"].count_documents({"_id": ObjectId(tried[0])}) == 0


def test_a_primary_that_steps_down_leaves_one_task(disbatch_dev: Dev, client: MongoClient[Document], orders: Any, queue: str, tmp_path: Path) -> None:
    inbox = client.get_default_database()
    params = {"command": NOTING.format(tmp_path / "runs")}
    tried: list[str] = []

    def step_down() -> None:
        # The set has one member, which is elected again.
        client.admin.command({"replSetStepDown": 1, "force": True})

    def sell(session: ClientSession) -> str:
        tried.append("before")
        orders.insert_one({"tried": len(tried)}, session=session)
        if len(tried) == 1:
            step_down()
        # With the error of the driver, which says that it may be tried again.
        tried.append(enqueue(inbox, queue, params, session=session))
        if len(tried) == 3:
            step_down()
        return tried[-1]

    with client.start_session() as session:
        id = session.with_transaction(sell)
    assert [one for one in tried if one == "before"] == ["before"] * 3 and len(tried) == 5
    assert [one["tried"] for one in orders.find()] == [4]
    assert disbatch_dev.client.result(id, 60) is None
    assert runs(tmp_path / "runs") == [id]


def test_a_task_is_seen_before_it_is_moved(disbatch_dev: Dev, client: MongoClient[Document], queue: str) -> None:
    inbox = client.get_default_database()["inbox"]
    # Of a version that no DEN knows, so that it stays, and so does what comes after it.
    first = inbox.insert_one({"v": 2, "queue": queue, "params": {"command": "true"}}).inserted_id
    id = enqueue(inbox, queue, {"command": "true"}, after=[str(first)])
    task = disbatch_dev.client.get(id)
    assert (task["id"], task["word"], task["inbox"]) == (id, "queued", True)  # type: ignore[typeddict-item]
    with pytest.raises(WaitTimeout, match="it is queued"):
        disbatch_dev.client.wait(id, 0)
    inbox.delete_many({"_id": {"$in": [first, ObjectId(id)]}})


def test_with_asyncio(disbatch_dev: Dev, queue: str, tmp_path: Path) -> None:
    params = {"command": NOTING.format(tmp_path / "runs")}

    async def submit() -> tuple[list[str], str]:
        async with AsyncMongoClient[Document](disbatch_dev.mongodb) as client:
            inbox = client.get_default_database()
            async with client.start_session() as session:
                async with await session.start_transaction():
                    ids = [await enqueue(inbox, queue, params, session=session), *await enqueue_many(inbox["inbox"], queue, [params] * 2, session=session)]
                aborted = ""
                with pytest.raises(ZeroDivisionError):
                    async with await session.start_transaction():
                        aborted = await enqueue(inbox, queue, params, session=session)
                        1 / 0
            assert await enqueue_many(inbox, queue, []) == []
            with pytest.raises(ValueError, match="urgency is unknown"):
                await enqueue(inbox, queue, params, urgency=1)  # type: ignore[call-overload]
            return ids, aborted

    ids, aborted = asyncio.run(submit())
    for id in ids:
        assert disbatch_dev.client.wait(id, 60)["word"] == "succeeded"
    assert runs(tmp_path / "runs") == sorted(ids) and aborted not in ids
