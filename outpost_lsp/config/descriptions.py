"""What the text below each setting in the source says, read when a schema or the documentation is made.

Nothing of it is needed to run, so nothing of it is read at the start.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator
from functools import cache

from outpost_lsp.config.fields import Section


def descriptions() -> dict[str, dict[str, str]]:
    """The description of each field, by the name of its section's class."""
    return {
        section.__name__: _fields_of(section.__module__).get(section.__name__, {}) for section in _sections(Section)
    }


def _sections(section: type[Section]) -> Iterator[type[Section]]:
    for below in section.__subclasses__():
        yield below
        yield from _sections(below)


@cache
def _fields_of(module: str) -> dict[str, dict[str, str]]:
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    return {node.name: dict(_described(node)) for node in tree.body if isinstance(node, ast.ClassDef)}


def _described(section: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for field, below in zip(section.body, section.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(below, ast.Expr):
            text = below.value.value if isinstance(below.value, ast.Constant) else None
            if isinstance(text, str):
                yield field.target.id, inspect.cleandoc(text)
