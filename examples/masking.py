"""Interceptors that mask.

On the way in, card numbers never reach the disk: all but their last four digits are starred before a record is serialized.  On
the way out, those who only need to see that something was bought don't see by whom: names are replaced by a keyed hash, the
same for the same customer.  Neither producer nor consumer code knows of it.
"""

import dataclasses
import hashlib
import re
import tempfile
from typing import Any

import logdb
from logdb import AnyRecord, ConsumedRecord, Interceptor, OutgoingRecord, serde

CARD = re.compile(r"\b\d(?:[ -]?\d){11,18}\b")


def is_card(digits: str) -> bool:
    """Whether a number adds up as card numbers do (Luhn): an order number of the same length is left alone."""
    doubled = (int(digit) * (1 + at % 2) for at, digit in enumerate(reversed(digits)))
    return sum(number // 10 + number % 10 for number in doubled) % 10 == 0


def mask_cards(text: str) -> str:
    def starred(match: re.Match[str]) -> str:
        digits = re.sub(r"\D", "", match.group())
        return "*" * (len(digits) - 4) + digits[-4:] if is_card(digits) else match.group()

    return CARD.sub(starred, text)


class MaskCards(Interceptor):
    """On the way in: in every text of a record's value."""

    def on_send(self, record: OutgoingRecord) -> OutgoingRecord:
        return dataclasses.replace(record, value=self._masked(record.value))

    def _masked(self, value: Any) -> Any:
        match value:
            case str():
                return mask_cards(value)
            case dict():
                return {key: self._masked(inner) for key, inner in value.items()}
            case list():
                return [self._masked(inner) for inner in value]
        return value


class HideNames(Interceptor):
    """On the way out: the field ``customer``, and the key."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def on_consume(self, records: list[AnyRecord]) -> list[AnyRecord]:
        return [self._hidden(record) for record in records]

    def _hidden(self, record: AnyRecord) -> ConsumedRecord:
        value: Any = record.value
        hidden = {**value, "customer": self._alias(value["customer"])}
        return ConsumedRecord.of(record, key=self._alias(str(record.key)), value=hidden)

    def _alias(self, name: str) -> str:
        return "customer-" + hashlib.blake2b(name.encode(), key=self._secret, digest_size=4).hexdigest()


def main() -> None:
    with tempfile.TemporaryDirectory() as directory, logdb.open(directory) as db:
        db.create_topic("purchases")
        with db.producer(key_serializer=serde.string, value_serializer=serde.json, interceptors=[MaskCards()]) as producer:
            for name, note in (("Ada", "paid with 4111 1111 1111 1111"), ("Bob", "order 1234567890123456"), ("Ada", "paid in cash")):
                producer.send("purchases", {"customer": name, "note": note}, key=name)
        for record in db.log("purchases").read(0):
            print(f"on the disk   {(record.value or b'').decode()}")
        with db.consumer(
            "purchases",
            auto_offset_reset="earliest",
            key_deserializer=serde.string,
            value_deserializer=serde.json,
            interceptors=[HideNames(b"kept elsewhere")],
        ) as consumer:
            for records in consumer.poll(timeout_ms=1_000).values():
                for seen in records:
                    print(f"analysts see  {seen.value}")


if __name__ == "__main__":
    main()
