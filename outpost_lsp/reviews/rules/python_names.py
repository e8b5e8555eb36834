"""Rules of our own about names in a Python file: attributes that nobody sets, library names that do not exist."""

from __future__ import annotations

import ast
import difflib
import importlib
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Final

from outpost_lsp.reviews.rules.placed import Placed
from outpost_lsp.reviews.rules.python_module import ClassFacts, FunctionNode, PythonModule, own_nodes

_LIKE: Final = 0.8
_LIBRARY: Final = frozenset(
    (
        "os", "os.path", "sys", "re", "json", "math", "time", "datetime", "random", "string", "itertools", "functools",
        "collections", "subprocess", "shutil", "logging", "threading", "copy", "hashlib", "base64", "glob", "io",
        "pathlib", "tempfile", "urllib.parse", "csv", "struct", "socket", "uuid", "enum", "asyncio", "contextlib",
        "operator", "textwrap", "heapq", "bisect", "statistics", "decimal", "fractions", "inspect", "traceback",
        "warnings", "argparse", "dataclasses", "queue", "secrets", "zlib", "gzip", "pickle", "platform", "getpass",
    )
)  # fmt: skip
"""Modules without import effects, whose names are looked up in this very interpreter."""
_RETURNS_NEW: Final = frozenset(
    (
        "strip", "lstrip", "rstrip", "upper", "lower", "capitalize", "casefold", "swapcase", "zfill",
        "ljust", "rjust", "removeprefix", "removesuffix", "expandtabs", "splitlines", "isoformat",
    )
)  # fmt: skip
_NEW_VALUES: Final = frozenset(("sorted", "reversed", "enumerate", "zip", "abs", "round", "sum", "min", "max"))
_IN_PLACE: Final = frozenset(("append", "extend", "insert", "remove", "sort", "reverse", "clear"))


def name_faults(module: PythonModule) -> Iterator[Placed]:
    """Everything this file says about its names."""
    yield from _library_names(module)
    for facts in module.classes.values():
        yield from _unset_attributes(module, facts)
    for node in module.nodes:
        match node:
            case ast.Expr(value=ast.Call() as call):
                yield from _thrown_away(module, call)
            case ast.Assign(targets=[ast.Attribute() as target], value=ast.Attribute() as value):
                if ast.unparse(target) == ast.unparse(value):
                    yield _kept(module, node, ast.unparse(target))
            case ast.ClassDef():
                yield from _repeated_methods(module, node)
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call() as call):
                yield from _none_of_a_change(module, node, name, call)
            case ast.Return(value=ast.Call() as call):
                yield from _none_of_a_change(module, node, "", call)
            case ast.List() | ast.Tuple() | ast.Set():
                yield from _lost_comma(module, node)
            case _:
                pass


def _library_names(module: PythonModule) -> Iterator[Placed]:
    imported: dict[str, str] = {}
    by_import = Counter(
        (alias.asname or alias.name).split(".")[0]
        for node in module.nodes
        if isinstance(node, ast.Import)
        for alias in node.names
    )
    for node in module.nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                bound = alias.asname or alias.name
                if alias.name in _LIBRARY and module.bindings[bound.split(".")[0]] == by_import[bound.split(".")[0]]:
                    imported[bound] = alias.name
        elif isinstance(node, ast.ImportFrom) and node.module in _LIBRARY and not node.level:
            for alias in node.names:
                yield from _unknown(module, node, str(node.module), alias.name)
    if "os" in imported:
        imported["os.path"] = "os.path"
    for node in module.nodes:
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            owner = ast.unparse(node.value) if isinstance(node.value, ast.Name | ast.Attribute) else ""
            if owner in imported:
                yield from _unknown(module, node, imported[owner], node.attr)


def _unknown(module: PythonModule, node: ast.AST, owner: str, name: str) -> Iterator[Placed]:
    # Another Python may have more names: only one that is nearly another counts as misspelt.
    library = sys.modules.get(owner) or importlib.import_module(owner)
    if name == "*" or name[0] == "_" or hasattr(library, name) or f"{owner}.{name}" in sys.modules:
        return
    if near := difflib.get_close_matches(name, [known for known in dir(library) if known[0] != "_"], 1, _LIKE):
        if near[0].lower() == name.lower() and near[0] != name and not name.islower():
            return
        yield module.placed(
            node,
            "no-such-name",
            "error",
            f"AttributeError: `{owner}` has no `{name}`" if isinstance(node, ast.Attribute)
            else f"ImportError: `{owner}` has no `{name}`",
            f"The nearest name there is `{near[0]}`.",
            key=f"{owner}.{name}",
            only_new=True,
        )  # fmt: skip


def _unset_attributes(module: PythonModule, facts: ClassFacts) -> Iterator[Placed]:
    node = facts.node
    if not facts.is_plain or module.is_dynamic or node.name in module.base_names or "__getattr__" in facts.methods:
        return
    known = module.attributes_set | set(facts.methods) | set(dir(object))
    for statement in node.body:
        for part in ast.walk(statement) if not isinstance(statement, FunctionNode) else ():
            if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
                known.add(part.id)
    known.update(
        part.value for part in ast.walk(node) if isinstance(part, ast.Constant) and isinstance(part.value, str)
    )
    for statement in node.body:
        if isinstance(statement, ast.ClassDef):
            known.add(statement.name)
        elif isinstance(statement, ast.Import | ast.ImportFrom):
            known.update(alias.asname or alias.name for alias in statement.names)
    for statement in node.body:
        if not isinstance(statement, FunctionNode) or not statement.args.args:
            continue
        if statement.args.args[0].arg != "self":
            continue
        for part in own_nodes(statement):
            match part:
                case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Load()) if name not in known:
                    near = difflib.get_close_matches(name, known, 1, _LIKE)
                    if near:
                        yield module.placed(
                            part,
                            "unset-attribute",
                            "error",
                            f"AttributeError: nothing sets `self.{name}`",
                            f"The class knows `{near[0]}`.",
                            key=name,
                        )


def _thrown_away(module: PythonModule, call: ast.Call) -> Iterator[Placed]:
    name = ""
    match call.func:
        case ast.Attribute(attr=attribute, value=owner) if attribute in _RETURNS_NEW:
            name = attribute if not isinstance(owner, ast.Call) or not call.args else ""
        case ast.Name(id=function) if function in _NEW_VALUES and not module.bindings[function] and call.args:
            name = function
    if name:
        yield module.placed(
            call,
            "result-thrown-away",
            "warning",
            f"Nothing changes: `{name}()` returns a new value, and it is thrown away",
            "The object itself stays as it was.",
            key=ast.unparse(call)[:80],
            # Objects other than texts have methods of these names that change them.
            only_new=isinstance(call.func, ast.Attribute) or name not in ("sorted", "reversed"),
        )


def _kept(module: PythonModule, node: ast.AST, name: str) -> Placed:
    return module.placed(
        node,
        "self-assigning-attribute",
        "error",
        f"The assignment has no effect: `{name}` is assigned to itself",
        "The right side was probably meant to be another value.",
        key=name,
        only_new=True,
    )


def _repeated_methods(module: PythonModule, node: ast.ClassDef) -> Iterator[Placed]:
    seen: dict[str, FunctionNode] = {}
    for statement in node.body:
        if not isinstance(statement, FunctionNode):
            continue
        if statement.name in seen and not statement.decorator_list and not seen[statement.name].decorator_list:
            yield module.placed(
                statement,
                "repeated-method",
                "error",
                f"The earlier `{statement.name}` is never used: this method replaces it",
                f"`{node.name}` defines it twice.",
                key=f"{node.name}.{statement.name}",
            )
        seen[statement.name] = statement


def _none_of_a_change(module: PythonModule, node: ast.AST, name: str, call: ast.Call) -> Iterator[Placed]:
    match call.func:
        case ast.Attribute(value=ast.Name(id=owner), attr=method) if method in _IN_PLACE:
            if owner == name and method == "sort" and not call.args:
                yield _none(module, node, f"{owner}.{method}")
                return
            is_list = any(
                isinstance(part, ast.Assign)
                and any(isinstance(target, ast.Name) and target.id == owner for target in part.targets)
                and isinstance(part.value, ast.List | ast.ListComp)
                for part in module.nodes
            )
            if (
                is_list
                and len(call.args) == (2 if method == "insert" else len(call.args))
                and (owner == name or method in ("sort", "reverse", "append", "extend", "insert"))
            ):
                yield _none(module, node, f"{owner}.{method}")
        case ast.Attribute(value=ast.Name(id="random"), attr="shuffle"):
            yield _none(module, node, "random.shuffle")


def _none(module: PythonModule, node: ast.AST, what: str) -> Placed:
    return module.placed(
        node,
        "none-of-a-change",
        "error",
        f"The value is always None: `{what}()` changes the list in place",
        "Methods that change a list return nothing.",
        key=what,
    )


def _lost_comma(module: PythonModule, node: ast.List | ast.Tuple | ast.Set) -> Iterator[Placed]:
    # One text among several that goes over two lines reads like two texts whose comma was lost.
    if len(node.elts) < 3 or not all(
        isinstance(item, ast.Constant) and isinstance(item.value, str) for item in node.elts
    ):
        return
    long = [item for item in node.elts if item.end_lineno is not None and item.end_lineno > item.lineno]
    if len(long) != 1:
        return
    first = module.lines[long[0].lineno - 1].rstrip()
    if (
        not first.endswith(('"', "'"))
        or '"""' in first
        or "'''" in first
        or first.endswith((' "', " '", '\\n"', "\\n'"))
    ):
        return
    yield module.placed(
        long[0],
        "lost-comma",
        "warning",
        "Two texts become one: a comma is missing between the lines",
        "Texts that follow each other without a comma are joined.",
        key=ast.unparse(long[0])[:80],
        only_new=True,
        last=long[0].lineno + 1,
    )
