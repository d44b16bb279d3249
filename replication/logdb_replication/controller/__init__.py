"""The controller: a cluster's metadata as one replicated state machine, in a process of its own beside each broker.

    state, commands         the metadata as a value; what changes it, and what each change is answered, as data
    machine                 commands applied to the state
    elections, placement    who leads, who is in sync; where new partitions go
    supervisor, process     the child process of a broker: a voter of the quorum, and a listener for brokers
    listener, service       connections of brokers; what they are answered; sessions: which brokers live
    feed                    the commands that were applied last, for those that watch
    client, state_copy      what a broker asks of the controllers; its own copy of the state
    messages, connections   requests and replies; how they travel

What is replicated depends on nothing but the state and the command: no clock, no chance.
"""
