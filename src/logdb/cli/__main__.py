"""``python -m logdb.cli``: the command where its script is not on the path."""

from logdb.cli import main

main()
