"""What a module in ``handlers`` declares is all that the others know of an API."""

import pytest

from logdb_kafka_api.api import DECLARED, answers
from logdb_kafka_api.apis import APIS


def test_each_api_is_answered_by_a_function_of_its_name() -> None:
    assert dict(APIS) == DECLARED
    assert list(APIS) == sorted(APIS)
    for key, api in APIS.items():
        assert api.key == key
        assert api.run.__name__ == "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in api.name).removeprefix("_")
        assert api.response.name == f"{api.name}Response"
        assert list(api.response.versions) == list(api.request.versions)


def test_what_differs_from_most() -> None:
    assert {api.name for api in APIS.values() if api.before_authentication} == {"SaslHandshake", "ApiVersions", "SaslAuthenticate"}
    assert {api.name for api in APIS.values() if not api.is_advertised} == {"GetTelemetrySubscriptions", "PushTelemetry"}
    assert {api.name for api in APIS.values() if api.at_once is not None} == {"Produce"}


def test_a_key_has_one_api() -> None:
    with pytest.raises(ValueError, match="API 3 is declared twice: Metadata, FetchRequest"):
        answers(3, APIS[1].request, APIS[1].response)(APIS[1].run)
