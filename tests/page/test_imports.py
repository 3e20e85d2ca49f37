"""Data flows one way, and no import runs in a circle."""

import ast
from pathlib import Path

import pytest

import prefixwatch

ROOT = Path(prefixwatch.__file__).parent
MODULES = {
    ".".join(("prefixwatch", *file.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__"): file
    for file in sorted(ROOT.rglob("*.py"))
}


def origin(module: str, node: ast.ImportFrom) -> str:
    """Return the whole name of what a `from` statement names, relative or not."""
    if not node.level:
        return node.module or ""
    parts = module.split(".")
    is_package = MODULES[module].name == "__init__.py"
    parent = parts[: len(parts) - node.level + is_package]
    return ".".join([*parent, *([node.module] if node.module else [])])


def imports(module: str) -> set[str]:
    """Return the modules of the package that `module` imports, wherever in its text."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(MODULES[module].read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            source = origin(module, node)
            for alias in node.names:
                whole = f"{source}.{alias.name}"
                found.add(whole if whole in MODULES else source)
    return {name for name in found if name in MODULES}


IMPORTS = {module: imports(module) for module in MODULES}


def test_the_walk_sees_the_package():
    assert IMPORTS["prefixwatch.page.plans"] >= {"prefixwatch.page.dialects", "prefixwatch.page.exposition"}
    assert "prefixwatch.page.caveats" in IMPORTS["prefixwatch.page.plans"]


@pytest.mark.parametrize(
    ("package", "allowed"),
    [
        pytest.param("prefixwatch.page", ("prefixwatch.page",), id="page imports nothing of the rest"),
        pytest.param("prefixwatch.figures", ("prefixwatch.figures", "prefixwatch.page"), id="figures know page alone"),
    ],
)
def test_nothing_reaches_back_up(package, allowed):
    wrong = {
        f"{module} imports {name}"
        for module, names in IMPORTS.items()
        if (module + ".").startswith(package + ".")
        for name in names
        if not (name + ".").startswith(tuple(one + "." for one in allowed))
    }
    assert not wrong


@pytest.mark.parametrize(
    "module", [name for name in MODULES if name.startswith(("prefixwatch.page", "prefixwatch.figures"))]
)
def test_the_core_does_no_input_or_output(module):
    names: set[str] = set()
    for node in ast.walk(ast.parse(MODULES[module].read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            names.add(origin(module, node).partition(".")[0])
    assert not names & {"aiohttp", "asyncio", "logging", "os", "pathlib", "random", "socket", "sys", "time", "yaml"}


def test_no_import_runs_in_a_circle():
    done: set[str] = set()
    circles: list[str] = []

    def walk(module: str, path: tuple[str, ...]) -> None:
        if module in path:
            circles.append(" -> ".join((*path[path.index(module) :], module)))
        elif module not in done:
            for name in sorted(IMPORTS[module]):
                walk(name, (*path, module))
            done.add(module)

    for module in MODULES:
        walk(module, ())
    assert not circles
