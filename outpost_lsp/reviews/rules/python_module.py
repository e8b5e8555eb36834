"""What the rules of our own know of a Python file: its tree, its bindings, its functions and classes.

Nothing of the file is imported or run. A name counts as known only when it is bound exactly once in the whole file, so
that no rule has to guess which binding a use sees.
"""

from __future__ import annotations

import ast
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from outpost_lsp.domain.finding import Severity
from outpost_lsp.models.rule_based.analysis import RawFinding, SourceText
from outpost_lsp.reviews.rules.placed import Placed, quoted
from outpost_lsp.reviews.rules.table import CONFIDENCE

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
_MOST_LINES: Final = 5_000
"""The parser holds up everything else in this process while it runs, so that a longer file is left to ruff."""
_BINDING: Final = frozenset(
    (
        ast.FunctionDef, ast.AsyncFunctionDef, ast.alias, ast.ExceptHandler, ast.MatchAs, ast.MatchStar,
        ast.MatchMapping, ast.Global, ast.Nonlocal,
    )
)  # fmt: skip
_BY_NAME_CALLS: Final = frozenset(("setattr", "vars", "globals", "exec", "locals"))
_BY_NAME_ATTRIBUTES: Final = frozenset(("__dict__", "__setattr__", "__getattr__", "__getattribute__"))


@dataclass(slots=True)
class ClassFacts:
    """A class: its node, its methods by name, and every attribute that is set on anything in the file."""

    node: ast.ClassDef
    methods: dict[str, list[FunctionNode]]

    @property
    def is_plain(self) -> bool:
        """Whether all there is to the class stands in this file: no base, no decorator, no metaclass."""
        bases = [base for base in self.node.bases if not (isinstance(base, ast.Name) and base.id == "object")]
        return not bases and not self.node.keywords and not self.node.decorator_list


@dataclass(slots=True)
class PythonModule:
    """A parsed file. `functions` holds the functions of the top level whose names are bound once."""

    source: SourceText
    lines: Sequence[str]
    tree: ast.Module
    nodes: list[ast.AST]
    bindings: Counter[str]
    functions: dict[str, FunctionNode] = field(default_factory=dict)
    classes: dict[str, ClassFacts] = field(default_factory=dict)
    attributes_set: set[str] = field(default_factory=set)
    base_names: set[str] = field(default_factory=set)
    is_dynamic: bool = False
    """Attributes may be set by name: nothing can be said of a missing one."""

    def placed(
        self,
        node: ast.AST,
        code: str,
        severity: Severity,
        title: str,
        detail: str,
        *,
        key: str = "",
        only_new: bool = False,
        last: int | None = None,
        whole_file: bool = False,
    ) -> Placed:
        """A finding at a node; it quotes the node's first line, or up to the line `last`."""
        row = int(getattr(node, "lineno", 1))
        end = last or row
        line, quote = quoted(self.lines, row, end)
        finding = RawFinding(
            rule=code,
            code=code,
            severity=severity,
            title=title,
            detail=f"{detail} Found by a fixed rule.",
            line=line,
            quote=quote,
            key=key,
            confidence=CONFIDENCE[severity],
            only_new=only_new,
            whole_file=whole_file,
        )
        column = int(getattr(node, "col_offset", 0)) + 1
        last_column = int(getattr(node, "end_col_offset", column) or column)
        end_row = int(getattr(node, "end_lineno", row) or row)
        stop = (row, last_column + 1) if end_row == row else (row, len(self.lines[row - 1]) + 1)
        return Placed(finding, (row, column), stop)


def parsed(source: SourceText) -> PythonModule | None:
    """The facts of a file; `None` when this Python cannot parse it, or when it is too long to walk."""
    if source.text.count("\n") > _MOST_LINES or "\0" in source.text:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source.text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    module = PythonModule(source, source.text.split("\n"), tree, list(all_nodes(tree)), Counter())
    for node in module.nodes:
        _note(module, node)
    for statement in tree.body:
        if isinstance(statement, FunctionNode) and module.bindings[statement.name] == 1:
            module.functions[statement.name] = statement
        elif isinstance(statement, ast.ClassDef) and module.bindings[statement.name] == 1:
            module.classes[statement.name] = ClassFacts(statement, _methods(statement))
    return module


def _note(module: PythonModule, node: ast.AST) -> None:
    bindings = module.bindings
    kind = type(node)
    if isinstance(node, ast.Name):
        if not isinstance(node.ctx, ast.Load):
            bindings[node.id] += 1
    elif isinstance(node, ast.Attribute):
        if not isinstance(node.ctx, ast.Load):
            module.attributes_set.add(node.attr)
        if node.attr in _BY_NAME_ATTRIBUTES:
            module.is_dynamic = True
    elif isinstance(node, ast.Call):
        if isinstance(node.func, ast.Name) and node.func.id in _BY_NAME_CALLS:
            module.is_dynamic = True
    elif isinstance(node, ast.arg):
        bindings[node.arg] += 1
    elif isinstance(node, ast.ClassDef):
        bindings[node.name] += 1
        module.base_names.update(base.id for base in node.bases if isinstance(base, ast.Name))
        module.base_names.update(base.attr for base in node.bases if isinstance(base, ast.Attribute))
    elif kind in _BINDING:
        bindings.update(_bound(node))


def _bound(node: ast.AST) -> Sequence[str]:
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            return (name,)
        case ast.alias(name=name, asname=asname):
            return (asname or name.split(".")[0],)
        case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
            return (name,)
        case ast.MatchMapping(rest=str(name)):
            return (name,)
        case ast.Global(names=names) | ast.Nonlocal(names=names):
            return names
        case _:
            return ()


def _methods(node: ast.ClassDef) -> dict[str, list[FunctionNode]]:
    found: dict[str, list[FunctionNode]] = {}
    pending: list[ast.stmt] = list(node.body)
    while pending:
        statement = pending.pop()
        if isinstance(statement, FunctionNode):
            found.setdefault(statement.name, []).append(statement)
        elif not isinstance(statement, ast.ClassDef):
            for block in ("body", "orelse", "finalbody"):
                pending.extend(getattr(statement, block, ()))
    return found


def _child_fields(kind: type[ast.AST]) -> tuple[str, ...]:
    # What holds no nodes of interest is known by name: words, numbers, operators, contexts.
    return tuple(name for name in kind._fields if name not in _LEAVES)


_LEAVES: Final = frozenset(
    (
        "id", "attr", "ctx", "op", "ops", "arg", "s", "n", "kind", "level", "module", "name", "asname", "conversion",
        "type_comment", "type_ignores", "is_async", "simple", "lineno", "rest",
    )
)  # fmt: skip
_FIELDS: Final[Mapping[type[ast.AST], tuple[str, ...]]] = {
    kind: _child_fields(kind) for kind in vars(ast).values() if isinstance(kind, type) and issubclass(kind, ast.AST)
}
_SCOPES: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


def all_nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """Every node but operators and contexts, parents before children."""
    pending = [tree]
    for node in pending:
        yield node
        _add_children(node, pending)


def own_nodes(function: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a function or loop, without those inside functions and classes in it."""
    pending: list[ast.AST] = []
    _add_children(function, pending)
    for node in pending:
        yield node
        if not isinstance(node, _SCOPES):
            _add_children(node, pending)


def body_nodes(function: ast.AST) -> Iterator[ast.AST]:
    """The nodes of what a function or module does: parameters, decorators and annotations left out."""
    pending: list[ast.AST] = list(getattr(function, "body", ()))
    for node in pending:
        yield node
        if isinstance(node, ast.AnnAssign):
            pending.append(node.target)
            if node.value is not None:
                pending.append(node.value)
        elif not isinstance(node, _SCOPES):
            _add_children(node, pending)


def _add_children(node: ast.AST, pending: list[ast.AST]) -> None:
    for name in _FIELDS[type(node)]:
        value = getattr(node, name, None)
        if isinstance(value, list):
            pending.extend([item for item in value if isinstance(item, ast.AST)])
        elif isinstance(value, ast.AST):
            pending.append(value)


def is_generator(function: ast.AST) -> bool:
    """Whether calling it makes a generator."""
    return any(isinstance(node, ast.Yield | ast.YieldFrom) for node in own_nodes(function))


def is_stub(function: FunctionNode) -> bool:
    """Whether the body does nothing yet, or only says that a subclass has to."""
    body = function.body
    if body and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
        body = body[1:]
    return all(
        isinstance(statement, ast.Pass | ast.Raise | ast.Assert)
        or (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant))
        for statement in body
    )


def same(one: ast.AST | Sequence[ast.AST], other: ast.AST | Sequence[ast.AST]) -> bool:
    """Whether two pieces of code are the same, places aside."""
    return _dump(one) == _dump(other)


def calls_something(node: ast.AST) -> bool:
    """Whether evaluating it may have an effect or another value the next time."""
    return any(
        isinstance(part, ast.Call | ast.Await | ast.Yield | ast.YieldFrom | ast.NamedExpr) for part in ast.walk(node)
    )


def _dump(code: ast.AST | Sequence[ast.AST]) -> str:
    if isinstance(code, ast.AST):
        return ast.dump(code)
    return "\n".join(ast.dump(part) for part in code)


def at_severity(item: Placed, severity: Severity) -> Placed:
    """The same place with another severity."""
    return replace(item, finding=replace(item.finding, severity=severity, confidence=CONFIDENCE[severity]))
