"""What holds for all tests."""

from hypothesis import settings

# A deadline per example measures the machine's load, not the code; a failure prints how to run it again.
settings.register_profile("logdb", deadline=None, print_blob=True)
settings.load_profile("logdb")
