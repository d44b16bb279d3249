from logdb.client.consumer.subscription import CheckInterval


def checks(interval, *seen):
    found = []
    for one in seen:
        interval.checked(one)
        found.append(interval.interval_ms)
    return found


def test_while_nothing_changes_looks_come_to_be_far_apart():
    assert checks(CheckInterval(None, 3_000), *[1] * 8) == [100, 200, 400, 800, 1_600, 3_000, 3_000, 3_000]


def test_after_a_change_they_are_near_again():
    assert checks(CheckInterval(None, 3_000), 1, 1, 1, 2, 2) == [100, 200, 400, 100, 200]


def test_where_a_look_costs_nothing_they_stay_so():
    assert checks(CheckInterval(None, 100), 1, 1, 1) == [100, 100, 100]


def test_who_says_how_far_is_taken_at_their_word():
    assert checks(CheckInterval(7, 3_000), 1, 1, 2) == [7, 7, 7]
