"""What the door does for each API: one module for each family."""

from collections.abc import Mapping
from types import MappingProxyType

from logdb_kafka_api.call import Handler
from logdb_kafka_api.handlers import fetch, metadata, offsets, produce, topics, transactions

HANDLERS: Mapping[int, Handler] = MappingProxyType(
    {
        0: produce.produce,
        1: fetch.fetch,
        2: offsets.list_offsets,
        3: metadata.metadata,
        10: metadata.find_coordinator,
        18: metadata.api_versions,
        19: topics.create_topics,
        20: topics.delete_topics,
        22: transactions.init_producer_id,
    }
)
"""By the key of the API; what is here is advertised."""
UNAUTHENTICATED = frozenset((17, 18, 36))
"""APIs that a client may ask before it is authenticated: SaslHandshake, ApiVersions, SaslAuthenticate."""
