"""shares.py: no owner takes all there is, however many try."""

import asyncio
import time

import pytest

from logdb.serving.shares import NoRoom, Shares

A, B, C, D = "abcd"


def run(story):
    asyncio.run(story())


def of(shares, *owners):
    """How much each of them has taken."""
    return tuple(shares._of.get(owner, 0) for owner in owners)


def test_an_owner_takes_what_it_leaves_to_others():
    shares = Shares(100, "bytes")
    for owner, most in ((A, 50), (B, 25), (C, 13)):
        while shares.has_room(1, owner):
            shares.take_now(1, owner)
        assert of(shares, owner) == (most,)
    assert shares.has_room(1, D), "however many there are, the next one finds room"


def test_owners_that_come_together_get_the_same():
    shares, going = Shares(99, "bytes"), True
    while going:
        going = False
        for owner in (A, B):
            if shares.has_room(1, owner):
                shares.take_now(1, owner)
                going = True
    assert of(shares, A, B) == (33, 33)


def test_requests_without_room_wait_for_it_in_turn():
    async def story():
        shares, order = Shares(100, "bytes"), []

        async def take(count, name, owner):
            await shares.take(count, owner)
            order.append(name)

        shares.take_now(80, A)
        waiting = [
            asyncio.create_task(take(*each)) for each in ((30, "first", B), (10, "second", B), (1, "third", A), (10, "another's", C))
        ]
        await asyncio.sleep(0)
        assert (order, shares.taken) == (["another's"], 90), "the second would fit, and waits for its turn"
        shares.give_back(80, A)
        await asyncio.gather(*waiting)
        assert (order, shares.taken) == (["another's", "first", "third", "second"], 51)
        assert not shares._waiting

    run(story)


def test_more_of_what_is_taken_in_part_comes_before_the_owners_other_amounts():
    async def story():
        shares, order = Shares(100, "bytes"), []

        async def take(count, name, *, ahead=False):
            await shares.take(count, A, ahead=ahead)
            order.append(name)

        shares.take_now(30, A)
        tasks = [asyncio.create_task(take(50, "other"))]
        await asyncio.sleep(0)
        assert not shares.has_room(5, A) and shares.has_room(5, A, ahead=True)
        tasks.append(asyncio.create_task(take(45, "more", ahead=True)))
        await asyncio.sleep(0)
        assert order == []
        shares.give_back(25, A)
        await tasks[1]
        assert order == ["more"]
        shares.give_back(50, A)
        await tasks[0]

    run(story)


def test_a_wait_for_much_does_not_hold_up_others():
    async def story():
        shares, order = Shares(3, "threads"), []

        async def work(name, owner):
            await shares.take(1, owner)
            await asyncio.sleep(0)
            order.append(name)
            shares.give_back(1, owner)

        many = [asyncio.create_task(work(f"a{at}", A)) for at in range(50)]
        await asyncio.sleep(0)
        shares.take_now(1, D)  # what was left
        one = asyncio.create_task(work("b", B))
        await asyncio.gather(*many, one)
        assert order.index("b") <= 3, "and not behind the fifty"

    run(story)


def test_what_is_larger_than_all_there_is_is_taken_alone():
    async def story():
        shares = Shares(100, "bytes")
        await shares.take(500, A)
        assert shares.taken == 500
        shares.give_back(500, A)
        await shares.take(1, A)

    run(story)


def test_a_wait_that_takes_too_long_is_refused_and_leaves_nothing_behind():
    async def story():
        shares = Shares(100, "bytes", wait_s=0.01)
        await shares.take(40, A)
        with pytest.raises(NoRoom, match="no room for 50 bytes: 40 of 100 are taken, 40 of them by you"):
            await shares.take(50, A)
        await shares.take(20, A)
        shares.give_back(60, A)
        assert (shares.taken, shares._of, shares._waiting) == (0, {}, {})

    run(story)


def test_a_client_that_goes_while_it_waits_takes_nothing():
    async def story():
        shares = Shares(100, "bytes")
        await shares.take(100, A)
        waiting = [asyncio.create_task(shares.take(50, A)) for _ in range(2)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        shares.give_back(100, A)  # given to the first, which is gone
        await asyncio.wait(waiting)
        assert waiting[0].cancelled()
        assert shares.taken == 50
        shares.give_back(50, A)
        assert (shares.taken, shares._of, shares._waiting) == (0, {}, {})

    run(story)


def test_a_turn_that_comes_in_the_moment_of_the_refusal_is_given_back():
    async def story():
        shares, loop = Shares(100, "bytes", wait_s=0.01), asyncio.get_running_loop()
        await shares.take(100, A)

        def stall():
            loop.call_soon(shares.give_back, 100, A)  # before the timer, which has run out when the loop goes on
            time.sleep(0.05)

        waiting = asyncio.create_task(shares.take(50, A))
        await asyncio.sleep(0)
        loop.call_soon(stall)
        with pytest.raises(NoRoom, match="no room for 50 bytes"):
            await waiting
        assert shares.taken == 0

    run(story)
