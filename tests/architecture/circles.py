"""No circle of modules: ``python -m tests.architecture.circles`` prints each with the imports that tie it, and fails.

An import inside a function counts, and so does one that only type checkers see: a reader of a module that stands in a
circle has to read all of it.
"""

from __future__ import annotations

import sys

import grimp


def circles(graph: grimp.ImportGraph) -> list[list[str]]:
    """The largest sets of modules each of which imports, directly or not, every other of its set."""
    found = {
        frozenset((graph.find_upstream_modules(module) & graph.find_downstream_modules(module)) | {module})
        for module in graph.modules
    }
    return sorted(sorted(circle) for circle in found if len(circle) > 1)


def ties(graph: grimp.ImportGraph, circle: list[str]) -> list[str]:
    """Each import from one module of a circle to another, with its place."""
    return [
        f"  {module}, line {detail['line_number']}: {detail['line_contents'].strip()}"
        for module in circle
        for imported in sorted(graph.find_modules_directly_imported_by(module) & set(circle))
        for detail in graph.get_import_details(importer=module, imported=imported)
    ]


def report(graph: grimp.ImportGraph) -> str:
    """What is wrong in words; empty where nothing is."""
    lines: list[str] = []
    for circle in circles(graph):
        lines += [f"{len(circle)} modules import each other in a circle:", *ties(graph, circle)]
    return "\n".join(lines)


def main() -> None:
    """The command line."""
    if told := report(grimp.build_graph("tabulae", cache_dir=None)):
        sys.exit(f"{told}\nMove what they share below them, or merge what is one concept.")


if __name__ == "__main__":
    main()
