"""A replicated state machine: commands that a quorum of voters has on disk, applied in one order on each of them.

Raft by pysyncobj 0.3.17, hardened (docs/inside/decisions/0007-raft-by-pysyncobj.md says what it does here, and why).
``quorum.Quorum`` is what the controller uses, ``files.create`` makes the directory of a voter.

    quorum     a voter that runs: its thread; propose, barrier, voters
    inbox      what is asked of the voter (asked), bounded, until it is settled
    node       a core with a directory, a machine and connections; does the effects
    core       the rules: a state, an event, the time → effects; pure, as are effects, entries, starts, snapshots, voters, messages
    pysyncobj_adapter    pysyncobj's tick over a core: it elects, commits, steps down
    journal    entries on disk       vote, snapshot_file, starts_file, files    what else is on disk
    messages   what voters say to each other, as bytes
    tcp        connections
"""
