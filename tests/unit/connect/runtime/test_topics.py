"""The config topic, as the workers of a group read and write it."""

from contextlib import closing

from logdb_connect.client import connected
from logdb_connect.runtime.topics import TopicConfigs


class Changes:
    """What a worker does about changes: nothing."""

    def connector_changed(self, name):
        pass

    tasks_changed = target_changed = connector_changed

    def restart_asked(self, name, *, include_tasks, only_failed):
        pass


def test_a_transaction_that_a_leader_left_open_holds_no_worker_up(tmp_path):
    """The next leader ends it; until then the others work with what was decided."""
    with closing(connected({"bootstrap.servers": str(tmp_path / "db")})) as client:
        configs = TopicConfigs(client, "configs", group_id="g", on_change=Changes(), replication=1)
        configs.topic._timeout_ms = 0  # who waits for the transaction fails
        dead = client.transactional_producer({}, "connect-cluster-g")
        dead.init_transactions()
        dead.begin_transaction()
        dead.send("configs", b'{"properties":{"name":"one"}}', b"connector-one", partition=0)
        dead.flush()
        configs.catch_up()
        assert not configs.is_current()
        configs.lead()
        configs.put_connector("two", {"name": "two"}, None)
        assert configs.is_current()
        assert list(configs.configs.connectors) == ["two"]
        configs.resign()
        dead.close(0)
