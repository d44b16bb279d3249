"""All brokers of a partition stop at once, and one of them comes back late, damaged, or not at all.

Below ``min.insync.replicas`` the high watermark does not move (``replica/leader.py``), so a replica that leaves the set from then on
has all that was acknowledged, and may lead: Kafka's eligible leader replicas, KIP-966.
"""

from logdb_replication.controller.commands import FenceBroker
from support.controllers import Controllers


def three() -> Controllers:
    made = Controllers()
    for node in (1, 2, 3):
        made.register(node, directory_id=f"d{node}")
        made.unfence(node)
    made.create(config={"min.insync.replicas": 2})
    assert made.state.partition("t", 0).in_sync == (1, 2, 3)
    return made


def back(made: Controllers, *nodes: int, **options) -> None:
    for node in nodes:
        made.register(node, "b", **{"directory_id": f"d{node}", **options})
    for node in nodes:
        made.unfence(node)


def test_two_of_three_that_come_back_elect_a_leader():
    made = three()
    back(made, 1, 2)  # the third is gone; the leading controller fences it a moment later
    made.apply(FenceBroker(3, made.epochs[3]))
    assert made.state.partition("t", 0).leader in (1, 2)


def test_the_last_to_come_back_has_lost_its_disk_and_the_others_lead():
    made = three()
    back(made, 1, 2)
    back(made, 3, directory_id="new")
    assert made.state.partition("t", 0).leader in (1, 2)  # today: none, for ever, and in_sync is ()


def test_the_last_to_come_back_has_a_damaged_log_and_the_others_lead():
    made = three()
    back(made, 1, 2)
    back(made, 3, unclean=True)
    assert made.state.partition("t", 0).leader in (1, 2)
