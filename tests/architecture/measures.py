"""The house in numbers: ``python -m tests.architecture.measures`` prints each, and what it counts where that is short.

What is counted:

files, lines                    all of ``src``, docstrings and empty lines too
long files, long functions      of more than 600 lines; of more than 60 without the docstring
modules with one importer       the front of a room (``__init__``) is no importer: it only names what the room offers;
                                modules that are loaded by their names are not counted
shared names                    public names that classes of two modules bear
questions                       places outside ``spec`` and ``products`` that compare the kind of a release with a word
lifecycles                      functions that mark a folder, charge and seal: those that call ``put_in_place``
circles                         of modules, as ``tests.architecture.circles`` finds them
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import grimp
from tests.architecture.circles import circles

SOURCE = Path(__file__).parents[2] / "src"
KINDS = {"tables", "groups", "areas"}
LONG_FILE, LONG_FUNCTION = 600, 60


@cache
def trees() -> dict[Path, ast.Module]:
    """Every file of ``src``, parsed."""
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(SOURCE.rglob("*.py"))}


def place(path: Path) -> str:
    return path.relative_to(SOURCE / "tabulae").as_posix()


def lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def long_files() -> list[str]:
    return [f"{place(path)}: {lines(path)}" for path in trees() if lines(path) > LONG_FILE]


def long_functions() -> Iterator[str]:
    """Functions by their lines without the docstring."""
    for path, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                body = node.body[ast.get_docstring(node) is not None :]
                length = int(node.end_lineno or 0) - (body[0].lineno if body else node.lineno) + 1
                if length > LONG_FUNCTION:
                    yield f"{place(path)}:{node.name}: {length}"


BY_NAME = {
    "tabulae.sources.source": r"tabulae\.sources\.engines\.\w+",
    "tabulae.spec.document": r"tabulae\.products\.\w+\.product",
    "tabulae.spec.section": r"tabulae\.products\.\w+\.spec",
    "tabulae.strategy._select": r"tabulae\.strategy\.(hdmm|residual|eigen|classic)\.\w+",
}
"""Who loads modules by their names, and which (`docs/architecture.md` says why)."""


def one_importer(graph: grimp.ImportGraph) -> list[str]:
    """Each module that exactly one other reads, and that one."""
    fronts = {module for module in graph.modules if (SOURCE / Path(*module.split("."))).is_dir()}
    found = {
        module: graph.find_modules_that_directly_import(module)
        for module in sorted(graph.modules - fronts)
        if not any(re.fullmatch(loaded, module) for loaded in BY_NAME.values())
    }
    return [f"{module}: {next(iter(by))}" for module, by in found.items() if len(by) == 1 and not by & fronts]


def shared_names() -> list[str]:
    where: dict[str, list[str]] = defaultdict(list)
    for path, tree in trees().items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                where[node.name].append(place(path))
    return [f"{name}: {', '.join(places)}" for name, places in sorted(where.items()) if len(places) > 1]


def questions() -> Iterator[str]:
    """Comparisons of something called ``kind`` with a kind of release, and of a section of the spec with None."""
    for path, tree in trees().items():
        if place(path).startswith(("spec/", "products/")):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Compare) and _asks(node):
                yield f"{place(path)}, line {node.lineno}: {ast.unparse(node)}"


def _asks(node: ast.Compare) -> bool:
    sides = [node.left, *node.comparators]
    named = {side.attr if isinstance(side, ast.Attribute) else "" for side in sides}
    words = {side.value for side in sides if isinstance(side, ast.Constant) and isinstance(side.value, str)}
    of_spec = any(isinstance(s, ast.Attribute) and ast.unparse(s.value).endswith("spec") for s in sides)
    return bool("kind" in named and words & KINDS) or bool(
        of_spec and named & KINDS and "None" in map(ast.unparse, sides)
    )


def lifecycles() -> list[str]:
    return [
        f"{place(path)}:{node.name}"
        for path, tree in trees().items()
        if "put_in_place" in path.read_text(encoding="utf-8")  # few files: walks within walks take seconds
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
        and any(isinstance(call, ast.Call) and ast.unparse(call.func) == "put_in_place" for call in ast.walk(node))
    ]  # fmt: skip


def main() -> None:
    """The command line."""
    graph = grimp.build_graph("tabulae", cache_dir=None)
    rows: dict[str, list[str]] = {
        f"files of more than {LONG_FILE} lines": long_files(),
        f"functions of more than {LONG_FUNCTION} lines": list(long_functions()),
        "modules with one importer": one_importer(graph),
        "names that two public classes share": shared_names(),
        "questions which kind a release is": list(questions()),
        "lifecycles of a release": lifecycles(),
        "circles of modules": [", ".join(circle) for circle in circles(graph)],
    }
    told = [f"{len(trees())} files, {sum(map(lines, trees())):,} lines"]
    for name, found in rows.items():
        told += [f"{len(found)} {name}", *(f"  {one}" for one in found)]
    sys.stdout.write("\n".join(told) + "\n")


if __name__ == "__main__":
    main()
