"""The one kind of error that the demo raises on purpose."""


class DemoError(Exception):
    """Say what could not be done, where, and what to do about it."""
