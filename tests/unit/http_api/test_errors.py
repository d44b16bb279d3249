"""Every error of the library has a status and a code, and comes out on the other side as what it was."""

import inspect
import json

import pytest

from logdb import errors
from logdb.errors import LogdbError
from logdb.requests.error_document import rebuild
from logdb.serving.shares import NoRoom
from logdb_http_api.errors import CODES, ApiError, describe, headers_of

KINDS = [kind for kind in vars(errors).values() if inspect.isclass(kind) and issubclass(kind, LogdbError)]


def made(kind):
    """One of these, with values that tell its fields apart."""
    arguments, options = [], {}
    for at, one in enumerate(inspect.signature(kind.__init__).parameters.values() if kind.__init__ is not LogdbError.__init__ else ()):
        if one.name == "self":
            continue
        value = at if one.annotation is int else (f"a-{at}", f"b-{at}") if "tuple" in str(one.annotation) else f"text-{at}"
        if one.kind is inspect.Parameter.KEYWORD_ONLY:
            options[one.name] = value
        else:
            arguments.append(value)
    return kind(*arguments or ["a sentence"], **options)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_each_class_is_in_the_table(kind):
    status, code = CODES[kind]
    assert 400 <= status < 600
    assert code // 100 == status


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_an_error_is_raised_again_as_it_was(kind):
    error = made(kind)
    error.add_note("a note")
    status, body = describe(error)
    assert (status, body["error_code"]) == CODES[kind]
    again = rebuild(json.loads(json.dumps(body)))
    assert type(again) is kind
    assert (str(again), again.retriable, vars(again)) == (str(error), error.retriable, vars(error))


def test_a_class_of_an_application_has_the_code_of_its_base():
    class Special(errors.UnknownTopic):
        pass

    status, body = describe(Special("t"))
    assert (status, body["error_code"], body["error"]) == (404, 40401, "Special")
    assert rebuild(body) is None


def test_what_was_not_to_happen_tells_nothing():
    assert describe(ZeroDivisionError("secret")) == (500, {"error_code": 500, "message": "internal error"})
    assert describe(ApiError(415, 415, "no")) == (415, {"error_code": 415, "message": "no"})


def test_a_request_without_room_is_told_to_come_again():
    assert describe(NoRoom("full")) == (503, {"error_code": 503, "message": "full"})
    assert headers_of(NoRoom("full")) == {"Retry-After": "1"}


@pytest.mark.parametrize(
    "body",
    [
        None, [], "x", {}, {"error": "nosuch"}, {"error": 5}, {"error": "__builtins__"}, {"error": "Exception"},
        {"error": ["UnknownTopic"]},
        {"error": None, "message": "x"},
    ],
)  # fmt: skip
def test_what_is_no_error_of_ours(body):
    assert rebuild(body) is None


def test_a_hostile_server_cannot_change_what_an_error_is():
    body = {
        "error": "UnknownTopic",
        "message": 5,
        "notes": "x",
        "fields": {"retriable": True, "__class__": "x", "_a": 1, "a b": 1, "topic": ["t"]},
    }
    error = rebuild(body)
    assert (type(error), error.retriable, str(error), vars(error)) == (errors.UnknownTopic, False, "5", {"topic": ("t",)})
    assert rebuild(body | {"fields": 5, "notes": [1]}).__notes__ == ["1"]
