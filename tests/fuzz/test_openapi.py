"""The door asked whatever its OpenAPI document allows, and what it does not, by schemathesis.

Whatever is asked: an answer, no error of the server's own but one that asks to try again, and a refusal is JSON with an ``error_code``;
what is answered is as the document says.  ``LOGDB_TEST_SCALE`` multiplies the number of requests; above 1
each run draws others.
"""

import contextlib
import json
import os
import re

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import response_schema_conformance

import logdb
from support.serving import served

SCALE = int(os.environ.get("LOGDB_TEST_SCALE", "1"))
EXAMPLE_COUNT = 4
PART_COUNT = 8
TRY_AGAIN = 50003  # what Kafka's REST proxy says where trying again may help
ENDLESS = re.compile("/events$")  # streams, which end with the client
WAITING = re.compile("/calls/(join|sync)_group$")  # for other members, as long as the request says
NAMES = {
    "topic": "t",
    "topic_name": "t",
    "group": "g",
    "consumer_group_id": "g",
    "instance": "one",
    "partition": "0",
    "partition_id": "0",
    "broker_id": "0",
    "name": "retention.ms",
    "file": "app.js",
}
LINES = re.compile("/v3/.*/records$")  # each record has an answer of its own, one behind the other
UNCHECKED = re.compile("/calls/fetch_offsets$")  # schemathesis takes a list of pairs that are objects for no schema
PARTITION_COUNT_MAX = 3  # of topics that are made: 100,000 are allowed, and take their time


@schemathesis.serializer("application/vnd.logdb.batches", "application/vnd.logdb.backup")
def batches(_context, value):
    """Bytes that are no record batches, and no outline of a backup."""
    return value if isinstance(value, bytes) else repr(value).encode(errors="replace")


@pytest.fixture(scope="module")
def s(tmp_path_factory):
    with served(tmp_path_factory.mktemp("served") / "db", wait_ms_max=20) as s:
        yield s


@pytest.fixture(scope="module")
def operations(s):
    schema = schemathesis.openapi.from_url(f"{s.url}/openapi.json")
    found = [result.ok() for result in schema.get_all_operations()]
    return [one for one in found if not ENDLESS.search(one.path) and not WAITING.search(one.path)]


def there_is(s):
    """See that there is a topic, and a consumer instance; what there is, by the parameter of a path that names it."""
    if not any(info.name == "t" for info in s.database.topics()):
        s.database.create_topic("t", partitions=2)
        s.database.log("t").append_many([b"{}", b"1"])
    if not any(group.group_id == "g" for group in s.database.groups()):
        with s.database.consumer(group_id="g") as consumer:
            consumer.assign([logdb.TopicPartition("t", 0)])
            consumer.commit({logdb.TopicPartition("t", 0): logdb.OffsetAndMetadata(1)})
    s.call("/consumers/g", {"name": "one", "format": "json"}, content_type="application/vnd.kafka.v2+json")
    return {**NAMES, "cluster_id": s.database._session.metadata.database_id}


def with_known(value, config):
    """The same JSON, in which topics and groups, and configs or topics by name, are those that there are."""
    named = {"topic": "t", "group_id": "g", "partition": 0, "name": "retention.ms" if config else "t"}
    if isinstance(value, dict):
        return {
            key: named[key] if key in named and not isinstance(part, dict | list) else with_known(part, config)
            for key, part in value.items()
        }
    return [with_known(part, config) for part in value] if isinstance(value, list) else value


def takes_more_than_names(operation):
    """Whether there is something that the document does not allow."""
    return operation.body or operation.query or re.search("{(partition|broker|offset|timestamp)", operation.path)


def check(s, operation, mode, example_count):
    @settings(max_examples=example_count, deadline=None, derandomize=SCALE == 1, suppress_health_check=list(HealthCheck))
    @given(operation.as_strategy(generation_mode=mode), st.integers(0, 3))
    def whatever_is_asked(case, known):
        names = there_is(s)
        if case.path_parameters and known:
            case.path_parameters.update({name: names[name] for name in case.path_parameters if name in names})
        elif case.path_parameters and "cluster_id" in case.path_parameters:
            case.path_parameters["cluster_id"] = names["cluster_id"]
        if known > 1:
            case.body = with_known(case.body, config="/v3/" in operation.path)
        if isinstance(case.body, dict):
            for name in ("partitions", "partitions_count"):
                if type(count := case.body.get(name)) is int and 0 < count <= 100_000:
                    case.body[name] = min(count, PARTITION_COUNT_MAX)
        response = case.call(timeout=60)
        asked = f"{response.request.method} {response.request.url} {response.request.body!r:.2000}"
        if response.status_code >= 400:
            said = response.json()
            may_go_well = response.status_code == 503 or said["error_code"] == TRY_AGAIN
            assert response.status_code < 500 or may_go_well, (asked, response.status_code, said)
            assert isinstance(said["error_code"], int) and isinstance(said["message"], str), (asked, said)
        elif LINES.search(case.operation.path):
            assert all("error_code" in json.loads(line) for line in response.text.splitlines()), (asked, response.text)
        elif not UNCHECKED.search(case.operation.path):
            case.validate_response(response, checks=[response_schema_conformance])

    whatever_is_asked()


@pytest.mark.parametrize("part", range(PART_COUNT))
def test_what_the_document_allows(s, operations, part):
    for operation in operations[part::PART_COUNT]:
        check(s, operation, GenerationMode.POSITIVE, EXAMPLE_COUNT * SCALE)


@pytest.mark.parametrize("part", range(PART_COUNT))
def test_what_the_document_does_not_allow(s, operations, part):
    for operation in filter(takes_more_than_names, operations[part::PART_COUNT]):
        with contextlib.suppress(Unsatisfiable):  # a parameter that is any string is all there is
            check(s, operation, GenerationMode.NEGATIVE, EXAMPLE_COUNT * SCALE)
