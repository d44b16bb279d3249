import json
import re
from collections.abc import Mapping
from typing import Literal, NamedTuple

import openapi_spec_validator
import pytest

from logdb_http_api.door import openapi, routing
from logdb_http_api.door.schemas import Number, OneOf, Schemas
from support.serving import served

INT64 = {"type": "integer", "minimum": -(2**63), "maximum": 2**63 - 1}


class Inner(NamedTuple):
    """What it is."""

    key: bytes | None
    count: int = 0


@pytest.mark.parametrize(
    ("shape", "schema"),
    [
        (int, {"type": "integer"}),
        (object, {}),
        (str | None, {"anyOf": [{"type": "string"}, {"type": "null"}]}),
        (Literal["a", "b"], {"enum": ["a", "b"]}),
        (list[bool], {"type": "array", "items": {"type": "boolean"}}),
        ([float], {"type": "array", "items": {"type": "number"}}),
        (Number(0, 9), {"type": "integer", "minimum": 0, "maximum": 9}),
        (OneOf(Number(0, 9), None), {"anyOf": [{"type": "integer", "minimum": 0, "maximum": 9}, {"type": "null"}]}),
        ({"*": int}, {"type": "object", "additionalProperties": {"type": "integer"}}),
        (
            {"a": int, "b?": str},
            {
                "type": "object",
                "properties": {"a": {"type": "integer"}, "b": {"type": "string"}},
                "required": ["a"],
                "additionalProperties": False,
            },
        ),
        (
            Mapping[str, int],
            {
                "type": "array",
                "items": {"type": "array", "prefixItems": [{"type": "string"}, INT64], "minItems": 2, "maxItems": 2, "items": False},
            },
        ),
    ],
)
def test_schemas(shape, schema):
    assert Schemas().of(shape) == schema


def test_what_has_a_name_is_said_once():
    schemas = Schemas()
    assert schemas.of([Inner]) == {"type": "array", "items": {"$ref": "#/components/schemas/Inner"}}
    assert schemas.of(Inner) == {"$ref": "#/components/schemas/Inner"}
    assert schemas.named == {
        "Inner": {
            "title": "Inner",
            "description": "What it is.",
            "type": "object",
            "properties": {
                "key": {"anyOf": [{"type": "string", "contentEncoding": "base64"}, {"type": "null"}]},
                "count": {**INT64, "default": 0},
            },
            "required": ["key"],
            "additionalProperties": False,
        }
    }


MADE_AND_NO_MORE = {"POST /v3/clusters/{cluster_id}/acls", "POST /v3/clusters/{cluster_id}/acls:batch"}  # 201 alone, as Confluent's


@pytest.fixture(scope="module")
def door(tmp_path_factory):
    with served(tmp_path_factory.mktemp("served") / "db") as s:
        (door,) = s.server._doors
        yield s, door


def test_the_document_is_valid_and_has_every_route_and_nothing_else(door):
    s, door = door
    status, document = s.call("/openapi.json")
    assert status == 200 and document["openapi"] == "3.1.0"
    openapi_spec_validator.validate(document)
    described = {(method.upper(), path) for path, item in document["paths"].items() for method in item}
    assert described == {(route.method, route.path) for route in door.routes}
    operations = [operation for item in document["paths"].values() for operation in item.values()]
    assert len({operation["operationId"] for operation in operations}) == len(operations) == len(door.routes)


def test_every_route_says_what_it_takes_and_gives(door):
    for route in door[1].routes:
        name = f"{route.method} {route.path}"
        assert (route.status in (101, 204) or name in MADE_AND_NO_MORE) != bool(route.gives), name
        in_path = set(re.findall(r"{(\w+)}", route.path))
        assert not in_path & {parameter.name for parameter in route.takes}, name


def test_every_operation_has_a_tag_a_summary_and_a_description_and_so_have_its_parameters(door):
    document = openapi.document(door[1].routes)
    tags = {tag["name"] for tag in document["tags"]}
    used = set()
    for path, item in document["paths"].items():
        for method, operation in item.items():
            name = f"{method} {path}"
            assert len(operation["tags"]) == 1 and tags.issuperset(operation["tags"]), name
            used.update(operation["tags"])
            assert operation["summary"] and not operation["summary"].endswith("."), name
            assert len(operation["description"]) > 10 and "``" not in operation["description"], name
            assert not operation["description"].startswith("See "), name
            for parameter in operation.get("parameters", ()):
                assert len(parameter["description"]) > 5, (name, parameter["name"])
            for status, response in operation["responses"].items():
                assert response["description"], (name, status)
    assert used == tags, "no tag is of nothing"
    assert all(tag["description"].endswith(".") for tag in document["tags"])
    assert document["info"]["description"]


def test_a_handlers_words_and_needs_are_in_it():
    routes = routing.Routes()

    takes = (routing.Parameter("n", int, "How many."),)

    @routes.get("/things/{partition}", "Things", needs=("Read Topic",), takes=takes, gives={"a/b": bytes})
    async def things(request):
        """Some of them.

        With ``n``, so many.
        """

    document = openapi.document(routes.all)
    operation = document["paths"]["/things/{partition}"]["get"]
    assert operation["description"] == "Some of them.\n\nWith `n`, so many."
    assert operation["x-logdb-needs"] == ["Read Topic"]
    assert [(one["name"], one["in"], one["required"]) for one in operation["parameters"]] == [
        ("partition", "path", True),
        ("n", "query", False),
    ]
    assert {"200", "401", "403", "404", "422", "503", "4XX"} == operation["responses"].keys()
    json.dumps(document)
