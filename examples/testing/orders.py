"""An application to test: it reads orders, and sends an invoice for each that is paid."""

import logdb


def send_invoices(db: logdb.Database) -> int:
    """Handle the orders that no earlier call has handled; returns how many invoices were sent."""
    count = 0
    with db.consumer("orders", group_id="invoices", auto_offset_reset="earliest", value_deserializer="json") as consumer:
        while records := consumer.poll(timeout_ms=200):
            with db.transaction("invoices", key_serializer="string", value_serializer="json") as tx:
                for order in (record.value for several in records.values() for record in several if record.value["paid"]):
                    tx.send("invoices", {"order": order["id"], "cents": order["cents"]}, key=str(order["id"]))
                    count += 1
                tx.send_offsets(consumer)
    return count
