"""Place panels on the grid: side by side, one above the other. Nobody writes a coordinate."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

WIDTH = 24
HALF, GLANCE, STRIP, CHART, TALL = 3, 4, 6, 8, 10
"""Heights: a number in a step, a number, a short table, a chart, a chart with much to see."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a panel is, in units of the grid."""

    panel: Any
    x: int
    y: int
    w: int
    h: int


@dataclass(frozen=True, slots=True)
class Cell:
    """One panel of a height."""

    panel: Any
    height: int

    def places(self, width: int) -> Iterator[Place]:
        """Yield where its panels are, from its own upper left corner."""
        yield Place(panel=self.panel, x=0, y=0, w=width, h=self.height)


@dataclass(frozen=True, slots=True)
class Beside:
    """Boxes side by side; `shares` of the width, equal ones where it is empty."""

    boxes: Sequence["Box"]
    shares: Sequence[int] = ()

    def __post_init__(self) -> None:
        if self.shares and len(self.shares) != len(self.boxes):
            raise ValueError(f"{len(self.boxes)} boxes, and {len(self.shares)} shares")

    @property
    def height(self) -> int:
        """How high it is."""
        return max(box.height for box in self.boxes)

    def places(self, width: int) -> Iterator[Place]:
        """Yield where its panels are, from its own upper left corner."""
        shares = self.shares or [1] * len(self.boxes)
        edges = [round(width * sum(shares[:end]) / sum(shares)) for end in range(len(shares) + 1)]
        for box, left, right in zip(self.boxes, edges, edges[1:], strict=False):
            yield from (replace(place, x=place.x + left) for place in box.places(right - left))


@dataclass(frozen=True, slots=True)
class Stack:
    """Boxes one above the other."""

    boxes: Sequence["Box"]

    @property
    def height(self) -> int:
        """How high it is."""
        return sum(box.height for box in self.boxes)

    def places(self, width: int) -> Iterator[Place]:
        """Yield where its panels are, from its own upper left corner."""
        top = 0
        for box in self.boxes:
            yield from (replace(place, y=place.y + top) for place in box.places(width))
            top += box.height


Box = Cell | Beside | Stack


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A part of a board under a heading; `repeat`: a variable for each of whose values it stands."""

    title: str
    boxes: Sequence[Box] = field(default_factory=tuple)
    repeat: str = ""


def beside(*panels: Any, height: int = CHART, shares: Sequence[int] = ()) -> Beside:
    """Return panels side by side, all of one height; a box keeps its own."""
    return Beside([one if isinstance(one, Cell | Beside | Stack) else Cell(one, height) for one in panels], shares)


def stack(*boxes: Box) -> Stack:
    """Return boxes one above the other."""
    return Stack(boxes)
