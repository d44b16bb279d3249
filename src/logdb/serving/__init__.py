"""What doors share: the server, the addresses it may listen at, limits on connections."""
