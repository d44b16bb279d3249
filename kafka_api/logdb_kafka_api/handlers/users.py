"""Users: their SCRAM credentials, and their quotas.

A quota of Kafka's is of a user, of a client id, of an address, or of several together; here it is of a user.  ``producer_byte_rate``
and ``consumer_byte_rate`` are the quotas of bytes; Kafka has none that counts requests.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from logdb.access.credentials import credential_of_salted
from logdb.errors import InvalidSecurity, LogdbError
from logdb.mistakes import one_of
from logdb.requests.security import AlterUser
from logdb.requests.users import Mechanism, Quota, ScramCredential, Users
from logdb_kafka_api.api import answers
from logdb_kafka_api.call import Call, Values
from logdb_kafka_api.errors import Code, code_of
from logdb_kafka_api.messages.configs import (
    ALTER_CLIENT_QUOTAS_REQUEST,
    ALTER_CLIENT_QUOTAS_RESPONSE,
    DESCRIBE_CLIENT_QUOTAS_REQUEST,
    DESCRIBE_CLIENT_QUOTAS_RESPONSE,
)
from logdb_kafka_api.messages.security import (
    ALTER_USER_SCRAM_CREDENTIALS_REQUEST,
    ALTER_USER_SCRAM_CREDENTIALS_RESPONSE,
    DESCRIBE_USER_SCRAM_CREDENTIALS_REQUEST,
    DESCRIBE_USER_SCRAM_CREDENTIALS_RESPONSE,
)

_MECHANISMS: Mapping[int, Mechanism] = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
_NUMBERS: Mapping[Mechanism, int] = {name: number for number, name in _MECHANISMS.items()}
_USER = "user"
_EXACTLY, _EACH = 0, 2  # how a component of a filter matches; 1: the default quota
_RATES = {"producer_byte_rate": "produce_bytes", "consumer_byte_rate": "fetch_bytes"}

# ---------------------------------------------------------------- SCRAM


@answers(50, DESCRIBE_USER_SCRAM_CREDENTIALS_REQUEST, DESCRIBE_USER_SCRAM_CREDENTIALS_RESPONSE)
async def describe_user_scram_credentials(call: Call) -> Values:
    """Mechanisms and iterations of users; without names, of all.

    A refusal is told of each user that is named: librdkafka up to 2.16 frees a string on its stack where the answer as a whole has an error
    (rd_kafka_DescribeUserScramCredentialsResponse_parse).
    """
    named = call.values["users"] and [one["name"] for one in call.values["users"]]
    try:
        users = await call.call(call.session.security.users)
    except LogdbError as error:
        refused: Values = {"error_code": code_of(error), "error_message": str(error)}
        whole = {"error_code": Code.NONE, "error_message": None} if named else refused
        return {**whole, "results": [{"user": name, **refused} for name in named or ()]}
    known = {one.name: one.mechanisms for one in users.users if one.mechanisms}
    counts = Counter(named or known.keys())
    return {
        "error_code": Code.NONE,
        "error_message": None,
        "results": [_described(call, name, known.get(name, ()), is_twice=count > 1) for name, count in counts.items()],
    }


def _described(call: Call, user: str, mechanisms: Sequence[Mechanism], *, is_twice: bool) -> Values:
    code, message = Code.NONE, None
    if is_twice:
        code, message = Code.DUPLICATE_RESOURCE, f"user {user!r} is named twice"
    elif not mechanisms:
        code, message = Code.RESOURCE_NOT_FOUND, f"user {user!r} has no password"
    credentials = [(one, call.door.access.scram_credential(user, one)) for one in mechanisms if not code]
    return {
        "user": user,
        "error_code": code,
        "error_message": message,
        "credential_infos": [{"mechanism": _NUMBERS[one], "iterations": credential.iterations} for one, credential in credentials],
    }


@answers(51, ALTER_USER_SCRAM_CREDENTIALS_REQUEST, ALTER_USER_SCRAM_CREDENTIALS_RESPONSE)
async def alter_user_scram_credentials(call: Call) -> Values:
    """Set or delete the credential of a mechanism, user by user."""
    by_user: dict[str, list[Values]] = {}
    for one in (*call.values["deletions"], *call.values["upsertions"]):
        by_user.setdefault(one["name"], []).append(one)
    return {"results": [await call.call(_altered, call, user, changes) for user, changes in by_user.items()]}


def _altered(call: Call, user: str, changes: Sequence[Values]) -> Values:
    code, message = _refusal(user, changes)
    if not code:
        try:
            call.session.security.alter_credentials(user, dict(map(_changed, changes)))
        except LogdbError as error:
            code, message = code_of(error), str(error)
            if isinstance(error, InvalidSecurity):
                code = Code.UNACCEPTABLE_CREDENTIAL
    return {"user": user, "error_code": code, "error_message": message}


def _refusal(user: str, changes: Sequence[Values]) -> tuple[Code, str | None]:
    mechanisms = [one["mechanism"] for one in changes]
    if not set(mechanisms) <= _MECHANISMS.keys():
        return Code.UNSUPPORTED_SASL_MECHANISM, f"mechanisms are {', '.join(_NUMBERS)}"
    if len(set(mechanisms)) < len(mechanisms):
        return Code.DUPLICATE_RESOURCE, f"a mechanism of {user!r} is named twice"
    return Code.NONE, None


def _changed(change: Values) -> tuple[Mechanism, ScramCredential | None]:
    """What a mechanism gets; None: a deletion."""
    mechanism = _MECHANISMS[change["mechanism"]]
    if "salt" not in change:
        return mechanism, None
    return mechanism, credential_of_salted(mechanism, change["salted_password"], change["salt"], change["iterations"])


# ---------------------------------------------------------------- quotas


@answers(48, DESCRIBE_CLIENT_QUOTAS_REQUEST, DESCRIBE_CLIENT_QUOTAS_RESPONSE)
async def describe_client_quotas(call: Call) -> Values:
    """The quotas of users that a filter selects."""
    try:
        users = await call.call(call.session.security.users)
    except LogdbError as error:
        return {"error_code": code_of(error), "error_message": str(error), "entries": None}
    return {
        "error_code": Code.NONE,
        "error_message": None,
        "entries": [
            {"entity": [{"entity_type": _USER, "entity_name": name}], "values": values}
            for name, quota in _quotas(users)
            if (values := _values(quota)) and _is_selected(call.values, name)
        ],
    }


def _quotas(users: Users) -> list[tuple[str | None, Quota | None]]:
    return [(None, users.default_quota), *((one.name, one.quota) for one in users.users)]


def _values(quota: Quota | None) -> list[Values]:
    rates = {} if quota is None else {key: getattr(quota, field) for key, field in _RATES.items()}
    return [{"key": key, "value": float(rate)} for key, rate in rates.items() if rate is not None]


def _is_selected(asked: Values, name: str | None) -> bool:
    components = asked["components"]
    if asked["strict"] and not components:
        return False
    for one in components:
        if one["entity_type"] != _USER:
            return False
        if one["match_type"] != _EACH and name != (one["match"] if one["match_type"] == _EXACTLY else None):
            return False
    return True


@answers(49, ALTER_CLIENT_QUOTAS_REQUEST, ALTER_CLIENT_QUOTAS_RESPONSE)
async def alter_client_quotas(call: Call) -> Values:
    """Change the quotas of each entity by itself."""
    return {"entries": [await call.call(_altered_quota, call, one) for one in call.values["entries"]]}


def _altered_quota(call: Call, entry: Values) -> Values:
    answer = {"entity": entry["entity"], "error_code": Code.NONE, "error_message": None}
    try:
        call.session.authorize(AlterUser(None))
        user, quota = _change_of_quota(entry)
        if not call.values["validate_only"]:
            call.session.security.alter_user(user, quota=quota)
    except LogdbError as error:
        return {**answer, "error_code": code_of(error), "error_message": str(error)}
    return answer


def _change_of_quota(entry: Values) -> tuple[str | None, dict[str, int | None]]:
    """Whose quota is changed, None: the default; and the rates, None: unlimited.

    Raises:
        InvalidSecurity: It is no quota of a user, or no rate.
    """
    types = [one["entity_type"] for one in entry["entity"]]
    if types != [_USER]:
        raise InvalidSecurity(f"a quota of {' and '.join(types) or 'nothing'}: must be the quota of a user")
    quota: dict[str, int | None] = {}
    for one in entry["ops"]:
        key, value = one["key"], one["value"]
        if key not in _RATES:
            raise InvalidSecurity(f"quota {key!r}: must be {one_of(_RATES)}")
        if not one["remove"] and not (value >= 1 and value < 1 << 63 and value == int(value)):
            raise InvalidSecurity(f"quota {key}={value} a second: must be a whole number, 1 or more")
        quota[_RATES[key]] = None if one["remove"] else int(value)
    return entry["entity"][0]["entity_name"], quota
