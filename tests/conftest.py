"""What all tests share: hypothesis sets no deadlines, since a busy machine is no failure."""

from hypothesis import settings

settings.register_profile("no deadlines", deadline=None)
settings.load_profile("no deadlines")
