"""The same examples on every machine, however slow: a failure in continuous integration repeats here."""

from hypothesis import settings

settings.register_profile("repeatable", derandomize=True, deadline=None, max_examples=60)
settings.load_profile("repeatable")
