"""The one error of a board that cannot be built."""


class BoardError(Exception):
    """A board that cannot be built: says what is unknown or wrong, and where it should come from."""
