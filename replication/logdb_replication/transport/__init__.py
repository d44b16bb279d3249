"""Authenticated connections between nodes: quorum and controllers have one handshake and one kind of frames.

    frames      what is on the wire after the handshake, and its keys: no I/O
    handshake   both sides prove the cluster's secret, on a socket that blocks
    sockets     where to listen; connections that have proven nothing yet, bounded in number and time

``raft.tcp`` and ``controller.connections`` say who speaks (a ``Protocol``) and what the frames hold.
"""
