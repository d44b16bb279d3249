"""The APIs of Kafka's protocol that this door has tables for, by key."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from logdb.codec.schema import Message
from logdb_kafka_api.messages import fetch, metadata, offsets, produce, topics, transactions


class Api(NamedTuple):
    """A request and its response; both have the same versions."""

    key: int
    name: str
    request: Message
    response: Message


_ALL = (
    Api(0, "Produce", produce.PRODUCE_REQUEST, produce.PRODUCE_RESPONSE),
    Api(1, "Fetch", fetch.FETCH_REQUEST, fetch.FETCH_RESPONSE),
    Api(2, "ListOffsets", offsets.LIST_OFFSETS_REQUEST, offsets.LIST_OFFSETS_RESPONSE),
    Api(3, "Metadata", metadata.METADATA_REQUEST, metadata.METADATA_RESPONSE),
    Api(10, "FindCoordinator", metadata.FIND_COORDINATOR_REQUEST, metadata.FIND_COORDINATOR_RESPONSE),
    Api(18, "ApiVersions", metadata.API_VERSIONS_REQUEST, metadata.API_VERSIONS_RESPONSE),
    Api(19, "CreateTopics", topics.CREATE_TOPICS_REQUEST, topics.CREATE_TOPICS_RESPONSE),
    Api(20, "DeleteTopics", topics.DELETE_TOPICS_REQUEST, topics.DELETE_TOPICS_RESPONSE),
    Api(22, "InitProducerId", transactions.INIT_PRODUCER_ID_REQUEST, transactions.INIT_PRODUCER_ID_RESPONSE),
)
APIS: Mapping[int, Api] = MappingProxyType({api.key: api for api in _ALL})
API_VERSIONS = APIS[18]
