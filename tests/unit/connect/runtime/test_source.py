"""Where a source task ends its transactions."""

from logdb_connect.data import SourceRecord
from logdb_connect.runtime.source import TaskTransactions


def record(number):
    return SourceRecord(topic="topic", value=number, source_partition={}, source_offset={"next": number})


def test_a_transaction_ends_at_a_record_of_a_later_poll():
    transactions, (first, second, third) = TaskTransactions(), map(record, range(3))
    transactions.commit_transaction(third)  # by a thread that has read ahead
    transactions.abort_transaction(first)
    assert transactions.pieces([first, second]) == [([first], "abort"), ([second], None)]
    assert transactions.pieces([third]) == [([third], "commit"), ([], None)]
    assert transactions.pieces([third]) == [([third], None)], "once"
