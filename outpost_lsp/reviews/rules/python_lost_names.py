"""Names and texts that a change broke, seen by comparing both sides of a Python function.

The old side shows which name was meant: it is gone from where the new one stands, and is still there elsewhere.
"""

from __future__ import annotations

import ast
import builtins
import difflib
from collections import Counter
from collections.abc import Iterator
from typing import Final

from outpost_lsp.reviews.rules.placed import Placed
from outpost_lsp.reviews.rules.python_module import PythonModule, body_nodes

_LIKE: Final = 0.75


def misspelt_attributes(old: PythonModule, new: PythonModule, before: ast.AST, after: ast.AST) -> Iterator[Placed]:
    """Attributes of `self` that the old side knows nowhere, in place of one that is nearly the same."""
    known_before = {node.attr for node in old.nodes if isinstance(node, ast.Attribute)} | set(old.bindings)
    used_before, used_after = _attributes(before), _attributes(after)
    still = Counter(node.attr for node in new.nodes if isinstance(node, ast.Attribute)) + new.bindings
    for node in body_nodes(after):
        match node:
            case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Load()):
                if name in known_before or name in new.attributes_set or new.bindings[name]:
                    continue
                gone = [known for known in used_before if used_after[known] < used_before[known] and still[known]]
                if near := difflib.get_close_matches(name, gone, 1, _LIKE):
                    yield new.placed(
                        node,
                        "misspelt-attribute",
                        "error",
                        f"AttributeError: `self.{name}` stands where `self.{near[0]}` stood",
                        f"Nothing in the file sets or defines `{name}`.",
                        key=name,
                    )
            case _:
                pass


def _attributes(function: ast.AST) -> Counter[str]:
    return Counter(
        node.attr
        for node in body_nodes(function)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"
    )


def lost_self(old: PythonModule, new: PythonModule, before: ast.AST, after: ast.AST) -> Iterator[Placed]:
    """Bare names that the old side wrote with `self.` in front, unless what they mean was put outside of the class."""
    attributes_before, attributes_after = _attributes(before), _attributes(after)
    names_before = {node.id for node in body_nodes(before) if isinstance(node, ast.Name)}
    names_before |= {node.arg for side in (before, after) for node in ast.walk(side) if isinstance(node, ast.arg)}
    stored_after = {
        node.id for node in body_nodes(after) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    moved_out = _outermost(new.tree) - _outermost(old.tree)
    said: set[str] = set()
    for node in body_nodes(after):
        if not isinstance(node, ast.Name) or node.id in said or isinstance(node.ctx, ast.Del):
            continue
        name = node.id
        if attributes_before[name] <= attributes_after[name] or hasattr(builtins, name):
            continue
        stores = isinstance(node.ctx, ast.Store)
        if stores and not _stored_once_less(before, after, name):
            continue
        if not stores and (name in names_before or name in stored_after or name in moved_out):
            continue
        said.add(name)
        words = "the object keeps its old value" if stores else f"another `{name}` is read"
        yield new.placed(
            node,
            "lost-self",
            "error",
            f"`self.` is gone before `{name}`: {words}",
            "Before this change the attribute of the object stood here.",
            key=name,
        )


def _outermost(tree: ast.Module) -> set[str]:
    """The names that the statements of a file itself define, import or assign."""
    found: set[str] = set()
    for statement in tree.body:
        match statement:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                found.add(name)
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                found.update(alias.asname or alias.name for alias in aliases)
            case ast.Assign(targets=targets):
                found.update(target.id for target in targets if isinstance(target, ast.Name))
            case ast.AnnAssign(target=ast.Name(id=name)):
                found.add(name)
            case _:
                pass
    return found


def _stored_once_less(before: ast.AST, after: ast.AST, name: str) -> bool:
    """Whether an assignment to the attribute became one to a name that nothing reads later."""

    def stores(function: ast.AST, *, attribute: bool) -> int:
        return sum(
            (isinstance(node, ast.Attribute) and node.attr == name if attribute else isinstance(node, ast.Name) and node.id == name)
            and isinstance(getattr(node, "ctx", None), ast.Store)
            for node in body_nodes(function)
        )  # fmt: skip

    def reads(function: ast.AST) -> int:
        return sum(
            isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load)
            for node in body_nodes(function)
        )

    attribute_gone = stores(after, attribute=True) < stores(before, attribute=True)
    name_came = stores(after, attribute=False) > stores(before, attribute=False)
    return attribute_gone and name_came and reads(after) <= reads(before)


def lost_imports(old: PythonModule, new: PythonModule) -> Iterator[Placed]:
    """Names whose import is gone though they are used, in files where a star import keeps other rules silent."""
    if not any(isinstance(node, ast.ImportFrom) and node.names[0].name == "*" for node in new.nodes):
        return
    imported = {
        alias.asname or alias.name.split(".")[0]
        for node in old.tree.body
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    first: dict[str, ast.Name] = {}
    for node in new.nodes:
        if not isinstance(node, ast.Name) or not isinstance(node.ctx, ast.Load) or new.bindings[node.id]:
            continue
        if node.id in imported:
            first.setdefault(node.id, node)
    for name, node in sorted(first.items()):
        yield new.placed(
            node,
            "undefined-name",
            "error",
            f"`{name}` is not defined here: its import is gone",
            "Only a star import could still bring it.",
            key=name,
            whole_file=True,
        )


def misspelt_names(old: PythonModule, new: PythonModule, before: ast.AST, after: ast.AST) -> Iterator[Placed]:
    """Names that stand nowhere on the old side and are bound nowhere, nearly the same as one that is gone here.

    Other rules say so of files without star imports.
    """
    if not any(isinstance(node, ast.ImportFrom) and node.names[0].name == "*" for node in new.nodes):
        return
    known_before = {node.id for node in old.nodes if isinstance(node, ast.Name)}
    used_before, used_after = _names(before), _names(after)
    for node in body_nodes(after):
        if not isinstance(node, ast.Name) or isinstance(node.ctx, ast.Store) or node.id in known_before:
            continue
        if new.bindings[node.id] or hasattr(builtins, node.id):
            continue
        gone = [name for name in used_before if used_after[name] < used_before[name] and new.bindings[name]]
        if near := difflib.get_close_matches(node.id, gone, 1, _LIKE):
            yield new.placed(
                node,
                "undefined-name",
                "error",
                f"`{node.id}` is not defined: it stands where `{near[0]}` stood",
                "Nothing in the file binds the name.",
                key=node.id,
                whole_file=True,
            )


def _names(function: ast.AST) -> Counter[str]:
    return Counter(node.id for node in body_nodes(function) if isinstance(node, ast.Name))


def lost_prefix(module: PythonModule, before: ast.AST, after: ast.AST) -> Iterator[Placed]:
    """Texts that the old side wrote as f-strings, word for word."""
    formatted = {_source_of(node) for node in body_nodes(before) if isinstance(node, ast.JoinedStr)}
    plain = {node.value for node in body_nodes(before) if isinstance(node, ast.Constant)}
    for node in body_nodes(after) if formatted else ():
        match node:
            case ast.Constant(value=str(text)) if "{" in text and text in formatted and text not in plain:
                yield module.placed(
                    node,
                    "missing-f-string-syntax",
                    "error",
                    "The braces are shown as they stand: the string lost its `f`",
                    "Before this change it was an f-string.",
                    key=text[:80],
                )
            case _:
                pass


def _source_of(node: ast.JoinedStr) -> str:
    parts = []
    for value in node.values:
        if isinstance(value, ast.FormattedValue):
            conversion = f"!{chr(value.conversion)}" if value.conversion > 0 else ""
            form = f":{_source_of(value.format_spec)}" if isinstance(value.format_spec, ast.JoinedStr) else ""
            parts.append(f"{{{ast.unparse(value.value)}{conversion}{form}}}")
        else:
            parts.append(str(getattr(value, "value", "")))
    return "".join(parts)
