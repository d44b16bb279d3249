"""What is tried again many times is logged once."""

from logdb_replication.logged_once import LoggedOnce


def test_the_same_is_news_once_and_again_after_another_or_a_success():
    logged = LoggedOnce[str]()
    assert [logged.is_news("t", said) for said in (None, None, 1, 1, 2, 1)] == [True, False, True, False, True, True]
    assert logged.is_news("u", 1)
    logged.forget("t")
    logged.forget("never seen")
    assert (logged.is_news("t", 1), logged.is_news("u", 1)) == (True, False)


def test_what_is_gone_is_forgotten():
    logged = LoggedOnce[str]()
    assert all(logged.is_news(thing, 1) for thing in ("t", "u"))
    logged.keep(lambda thing: thing == "t")
    assert (logged.is_news("t", 1), logged.is_news("u", 1)) == (False, True)
