"""Commands on the nodes of a cluster, and the mirror of one."""
