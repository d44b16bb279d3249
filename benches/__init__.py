"""logdb against what a user would pick instead, on the same work in the same run."""
