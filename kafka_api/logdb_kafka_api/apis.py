"""The APIs of Kafka's protocol that this door answers, by key: what the modules in ``handlers`` declare."""

from collections.abc import Mapping
from importlib import import_module
from pkgutil import iter_modules
from types import MappingProxyType

from logdb_kafka_api import handlers
from logdb_kafka_api.api import DECLARED, Api

for _module in iter_modules(handlers.__path__):
    import_module(f"{handlers.__name__}.{_module.name}")

APIS: Mapping[int, Api] = MappingProxyType(dict(sorted(DECLARED.items())))
