"""An API of orders with FastAPI.  An order is a record; its offset is its number.

A client that got 201 finds its order after a power cut: the topic's level is ``fsync``, and one fdatasync serves all requests that wait.
FastAPI calls plain functions in threads, which may share one database.

pip install 'fastapi[standard]'
ORDERS=orders.db fastapi run examples/fastapi_orders/app.py
"""

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import Depends, FastAPI, HTTPException, Query, Request
from pydantic import BaseModel, Field

import logdb
from logdb.errors import OffsetOutOfRange

TOPIC, CONFIG = "orders", {"durability": "fsync", "retention.ms": "30d"}


class Order(BaseModel):
    item: str = Field(min_length=1)
    count: int = Field(gt=0)


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    with logdb.open(os.environ["ORDERS"]) as db:  # one process has it: run one worker, or open a server's URL in several
        db.create_topic(TOPIC, config=CONFIG, if_not_exists=True)
        app.state.orders = db.log(TOPIC)
        yield


app = FastAPI(lifespan=lifespan)


def orders(request: Request) -> logdb.Log:
    log: logdb.Log = request.app.state.orders
    return log


Orders = Annotated[logdb.Log, Depends(orders)]


@app.post("/orders", status_code=201)
def place(order: Order, log: Orders) -> dict[str, int]:
    return {"number": log.append(order.model_dump_json().encode(), order.item.encode())}


@app.get("/orders/{number}")
def look(number: int, log: Orders) -> dict[str, Any]:
    try:
        (record,) = log.read(number, end_offset=number + 1)
    except (OffsetOutOfRange, ValueError):
        raise HTTPException(404, f"there are orders {log.start_offset} to {log.end_offset - 1}") from None
    return shown(record)


@app.get("/orders")
def page(log: Orders, after: Annotated[int, Query(ge=-1)] = -1, limit: Annotated[int, Query(gt=0, le=1000)] = 100) -> list[dict[str, Any]]:
    """The next orders; ``after`` is the number of the last one that the client has."""
    start = min(max(after + 1, log.start_offset), log.end_offset)
    return [shown(record) for record in log.read(start, end_offset=start + limit)]


def shown(record: logdb.Record) -> dict[str, Any]:
    return {"number": record.offset, "placed_ms": record.timestamp_ms, **json.loads(record.value or b"{}")}
