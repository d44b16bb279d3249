import json
import random
from collections import defaultdict

import logdb
from examples.spark.bank_statements import EMAILS, STATEMENTS, TRANSFERS, create_topics, keep_statements


class Bank:
    """What is to be found, computed record by record."""

    def __init__(self):
        self._balances, self._emails = defaultdict(int), {}

    def transfer(self, customer, cents):
        self._balances[customer] += cents

    def write_to(self, customer, email):
        self._emails[customer] = email

    def statements(self):
        return {
            customer: {"email": email, "balance": self._balances[customer]}
            for customer, email in self._emails.items()
            if email is not None and customer in self._balances
        }


def some_day(db, bank, rng):
    for _ in range(200):
        customer = f"customer-{rng.randrange(20)}"
        if rng.random() < 0.8:
            cents = rng.randrange(-10_000, 10_000)
            bank.transfer(customer, cents)
            db.append(TRANSFERS, b"%d" % cents, customer.encode())
        else:
            email = None if rng.random() < 0.3 else f"{customer}@{rng.choice('abc')}.example"
            bank.write_to(customer, email)
            db.append(EMAILS, None if email is None else email.encode(), customer.encode())


def test_every_transfer_counts_and_the_last_address(spark, tmp_path):
    rng, bank = random.Random(5), Bank()
    for limits in ({}, {"maxOffsetsPerTrigger": "150"}):  # one micro-batch, then two
        with logdb.open(tmp_path / "db") as db:
            create_topics(db)
            some_day(db, bank, rng)
        keep_statements(spark, {"path": str(tmp_path / "db")}, str(tmp_path / "checkpoint"), **limits).awaitTermination()
        with logdb.open(tmp_path / "db", mode="r") as db:
            found = {key.decode(): json.loads(value) for key, value in db.table(STATEMENTS).items()}
        assert found == bank.statements()
    assert 0 < len(found) < 20
