"""Submits a task with an order: see clients/conformance/failover.py."""

import os
from typing import Any

from pymongo import MongoClient
from pymongo.client_session import ClientSession

from disbatch.inbox import enqueue

client: MongoClient[Any] = MongoClient(os.environ["MONGODB_URL"])
tried = 0


def order(session: ClientSession) -> str:
    global tried
    tried += 1
    id = enqueue(client.get_default_database(), os.environ["QUEUE"], {"command": os.environ["COMMAND"]}, session=session)
    client["shop"][os.environ["ORDERS"]].insert_one({"task": id}, session=session)
    if tried == 1:
        print("inserted", flush=True)
        input()
    return id


with client.start_session() as session:
    print(session.with_transaction(order))
