"""The client of a directory or of servers."""

from logdb_connect.logdb_client import LogdbClient


def test_a_server_that_does_not_tell_its_id(tmp_path, monkeypatch):
    """An older server leaves the id out: the answer is decoded with its default.  It is asked once."""
    client = LogdbClient({"bootstrap.servers": str(tmp_path / "db")})
    try:
        session, asked = type(client.session), []
        nodes = session.cluster_nodes
        monkeypatch.setattr(session, "cluster_nodes", lambda self: (asked.append(1), nodes(self)._replace(database_id=""))[1])
        assert [client.cluster_id() for _ in range(2)] == [None, None]
        assert len(asked) == 1
        monkeypatch.undo()
    finally:
        client.close()
