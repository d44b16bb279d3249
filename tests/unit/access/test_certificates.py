"""The principal of a client certificate."""

import pytest

from logdb.access.certificates import expires_ms, principal_of
from logdb.errors import AuthenticationFailed


def certificate(**attributes):
    return {"subject": tuple(((name, value),) for name, value in attributes.items())}


ALICE = certificate(countryName="DE", organizationName="Acme", organizationalUnitName="ops", commonName="alice")


@pytest.mark.parametrize(
    ("rule", "subject", "principal"),
    [
        ("cn", ALICE, "User:alice"),
        ("dn", ALICE, "User:CN=alice,OU=ops,O=Acme,C=DE"),
        ("dn", certificate(commonName='a,b+c"d\\e<f>g;h'), r"User:CN=a\,b\+c\"d\\e\<f\>g\;h"),
        ("dn", certificate(commonName=" alice "), r"User:CN=\ alice\ "),
        ("dn", certificate(commonName=" "), r"User:CN=\ "),
        ("dn", certificate(commonName="#1"), r"User:CN=\#1"),
        ("dn", {"subject": ((("commonName", "alice"), ("userId", "7")),)}, "User:CN=alice+UID=7"),
        ("dn", certificate(jurisdictionCountryName="DE"), "User:jurisdictionCountryName=DE"),
    ],
)
def test_a_subject_is_a_principal_by_a_rule(rule, subject, principal):
    assert str(principal_of(subject, rule)) == principal


@pytest.mark.parametrize(
    ("rule", "subject"),
    [
        ("cn", certificate(organizationName="Acme")),
        ("cn", certificate(commonName="")),
        ("cn", {"subject": ((("commonName", "alice"),), (("commonName", "root"),))}),
        ("cn", {}),
        ("dn", {"subject": ()}),
    ],
)
def test_a_subject_that_names_no_principal_for_sure_is_none(rule, subject):
    with pytest.raises(AuthenticationFailed, match="certificate"):
        principal_of(subject, rule)


def test_when_a_certificate_expires():
    assert expires_ms({"notAfter": "Jan  5 09:34:43 2018 GMT"}) == 1_515_144_883_000
