"""A replicated state machine: commands that a quorum of voters has on disk, applied in one order on each of them.

Raft by pysyncobj 0.3.17, hardened (docs/inside/decisions/0007-raft-by-pysyncobj.md says what is overridden, and why).
``quorum.Quorum`` is what the controller uses, ``files.create`` makes the directory of a voter.

    quorum     a voter that runs: its thread; propose, barrier, voters
    inbox      what is asked of the voter, bounded, until it is settled
    node       the overrides of pysyncobj: one thread, no sockets
    journal    entries on disk       vote, snapshots, starts, files    what else is on disk
    messages   what voters say to each other, as bytes
    frames     authentication        tcp    connections
"""
