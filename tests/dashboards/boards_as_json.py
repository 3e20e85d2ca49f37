"""The committed boards, and walks over them."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser as promql

from drawing.answers import SCRAPE_SECONDS

GENERATED = Path(__file__).parents[2] / "dashboards" / "generated"
BOARDS: dict[str, dict[str, Any]] = {
    file.stem: json.loads(file.read_text()) for file in sorted(GENERATED.glob("*.json"))
}


def panels(board: dict[str, Any]) -> list[dict[str, Any]]:
    return [panel for panel in board["panels"] if panel["type"] != "row"]


def titled(board: str, title: str) -> dict[str, Any]:
    (found,) = [panel for panel in panels(BOARDS[board]) if panel["title"] == title]
    return found


ALL_PANELS = [(uid, panel) for uid, board in BOARDS.items() for panel in panels(board)]
ALL_TARGETS = [(uid, panel, target) for uid, panel in ALL_PANELS for target in panel.get("targets", ())]


def parsed(expr: str) -> Any:
    """Return an expression's tree: Grafana's variables are no PromQL, so values stand for them."""
    return promql.parse(expr.replace("$__rate_interval", f"{4 * SCRAPE_SECONDS:.0f}s"))


def nodes(tree: Any, inside: tuple[str, ...] = ()) -> Iterator[tuple[Any, tuple[str, ...]]]:
    """Yield each selector of a tree with the functions around it."""
    match tree:
        case promql.VectorSelector():
            yield tree, inside
        case promql.MatrixSelector():
            yield from nodes(tree.vector_selector, inside)
        case promql.Call():
            for one in tree.args:
                yield from nodes(one, (*inside, tree.func.name))
        case promql.BinaryExpr():
            yield from nodes(tree.lhs, inside)
            yield from nodes(tree.rhs, inside)
        case promql.AggregateExpr() | promql.ParenExpr() | promql.UnaryExpr() | promql.SubqueryExpr():
            yield from nodes(tree.expr, inside)
