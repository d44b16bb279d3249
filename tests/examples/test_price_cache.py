import pytest

import logdb
from examples import price_cache
from examples.price_cache import TOPIC, PriceCache, change, change_many, create_topic


@pytest.fixture
def db(tmp_path):
    with logdb.open(tmp_path / "db") as opened:
        create_topic(opened)
        yield opened


def followed(db):
    cache = PriceCache()
    cache.follow(db)
    return cache


def test_the_cache_is_the_same_before_and_after_compaction(db):
    change_many(db, 5_000, 100, seed=1)
    before = followed(db)
    assert 0 < len(before) <= 100
    db.compact(TOPIC)
    after = PriceCache()
    assert after.follow(db) < 1_000
    assert after == before
    assert {key: int(value) for key, value in db.table(TOPIC).items()} == {key: int(value) for key, value in after._prices.items()}


def test_a_cache_that_follows_is_as_one_that_starts(db):
    following = PriceCache()
    for seed in range(5):
        change_many(db, 500, 50, seed)
        following.follow(db)
        db.compact(TOPIC)
        assert following == followed(db)
    assert following.follow(db) == 0


def test_one_price(db):
    cache = PriceCache()
    change(db, "tea", 350)
    assert cache.price("tea") is None
    assert cache.follow(db) == 1
    assert cache.price("tea") == 350
    change(db, "tea", None)
    cache.follow(db)
    assert cache.price("tea") is None
    assert len(cache) == 0


def test_the_program(capsys):
    price_cache.main()
    printed = capsys.readouterr().out
    assert "the same" in printed
    assert "product-7 now costs 4711" in printed
