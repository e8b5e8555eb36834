"""Rules of our own about the flow of a Python file: what is never reached, what never varies, what never ends."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

from outpost_lsp.reviews.rules.placed import Placed
from outpost_lsp.reviews.rules.python_module import (
    FunctionNode,
    PythonModule,
    calls_something,
    is_generator,
    is_stub,
    own_nodes,
    same,
)

_LEAVES: Final = (ast.Return, ast.Raise, ast.Continue, ast.Break)
_SAME_SIDES: Final = (ast.Sub, ast.Div, ast.FloorDiv, ast.Mod, ast.BitXor, ast.BitAnd, ast.BitOr)
_ENDS_THE_PROGRAM: Final = frozenset(("exit", "_exit", "abort", "quit", "execv", "execve", "execvp", "fail"))


def flow_faults(module: PythonModule) -> Iterator[Placed]:
    """Everything this file says about its flow."""
    for node in module.nodes:
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list) and block:
                yield from _unreachable(module, block)
        match node:
            case ast.Try() | ast.TryStar():
                yield from _caught_above(module, node.handlers)
            case ast.If():
                yield from _same_condition(module, node)
                yield from _same_branches(module, node)
            case ast.BoolOp():
                yield from _same_operands(module, node)
            case ast.BinOp(left=left, op=operator, right=right) if isinstance(operator, _SAME_SIDES):
                yield from _same_sides(module, node, left, right)
            case ast.For():
                yield from _beyond_the_end(module, node)
            case ast.Subscript(
                value=ast.Name(id=name),
                slice=ast.Call(func=ast.Name(id="len"), args=[argument]),
                ctx=ast.Load(),
            ):
                if isinstance(argument, ast.Name) and argument.id == name:
                    yield module.placed(
                        node, "index-beyond-end", "error", f"IndexError: `{name}` has no element at its length",
                        "The last element stands at the length minus one.", key=name,
                    )  # fmt: skip
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield from _promised_value(module, node)
            case _:
                pass


def _unreachable(module: PythonModule, block: Sequence[ast.stmt]) -> Iterator[Placed]:
    for statement, following in pairwise(block):
        if not isinstance(statement, _LEAVES):
            continue
        # A `yield` after a `return` makes a generator, and a constant or a raise behind it is there for a reader.
        rest = block[block.index(following) :]
        meant = isinstance(following, ast.Pass | ast.Raise | ast.Assert | FunctionNode | ast.ClassDef | ast.Global)
        if meant or any(isinstance(node, ast.Yield | ast.YieldFrom) for part in rest for node in ast.walk(part)):
            return
        if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
            return
        word = type(statement).__name__.lower()
        yield module.placed(
            following,
            "unreachable-code",
            "warning",
            f"The lines from here on never run: `{word}` stands before them",
            f"The block is left by the `{word}` above.",
            key=ast.unparse(following)[:80],
        )
        return


def _caught_above(module: PythonModule, handlers: Sequence[ast.ExceptHandler]) -> Iterator[Placed]:
    seen: list[type[BaseException]] = []
    for handler in handlers:
        names = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
        classes = [_builtin_exception(module, name) for name in names]
        known = [found for found in classes if found is not None]
        if known and len(known) == len(names):
            covered = [(found, above) for found in known for above in seen if issubclass(found, above)]
            if len({found for found, _ in covered}) == len(set(known)):
                found, above = covered[0]
                yield module.placed(
                    handler,
                    "unreachable-handler",
                    "error",
                    f"This handler never runs: `{above.__name__}` above catches `{found.__name__}` already",
                    "Handlers are tried from the top; the narrower one belongs first.",
                    key=f"{found.__name__},{above.__name__}",
                )
        seen.extend(known)


def _builtin_exception(module: PythonModule, name: ast.expr | None) -> type[BaseException] | None:
    if not isinstance(name, ast.Name) or module.bindings[name.id]:
        return None
    found = getattr(builtins, name.id, None)
    return found if isinstance(found, type) and issubclass(found, BaseException) else None


def _same_condition(module: PythonModule, node: ast.If) -> Iterator[Placed]:
    tests = [node.test]
    current = node
    while len(current.orelse) == 1 and isinstance(current.orelse[0], ast.If):
        current = current.orelse[0]
        if any(same(current.test, test) for test in tests) and not calls_something(current.test):
            yield module.placed(
                current.test,
                "repeated-condition",
                "error",
                "This branch never runs: the same condition was tested above",
                "Whatever is true here was handled by the earlier branch.",
                key=ast.unparse(current.test)[:80],
            )
            return
        tests.append(current.test)


def _same_branches(module: PythonModule, node: ast.If) -> Iterator[Placed]:
    if not node.orelse or isinstance(node.orelse[0], ast.If) or not same(node.body, node.orelse):
        return
    if len(node.body) == 1 and isinstance(node.body[0], ast.Pass):
        return
    yield module.placed(
        node,
        "same-branches",
        "warning",
        "The condition decides nothing: both branches are the same",
        "One of them was probably meant to differ.",
        key=ast.unparse(node.test)[:80],
        only_new=True,
    )


def _same_operands(module: PythonModule, node: ast.BoolOp) -> Iterator[Placed]:
    for index, value in enumerate(node.values):
        if not calls_something(value) and any(same(value, other) for other in node.values[:index]):
            word = "and" if isinstance(node.op, ast.And) else "or"
            yield module.placed(
                node,
                "repeated-operand",
                "warning",
                f"One side of `{word}` is tested twice and another may be missing",
                f"`{ast.unparse(value)[:80]}` stands on both sides.",
                key=ast.unparse(value)[:80],
            )
            return


def _same_sides(module: PythonModule, node: ast.AST, left: ast.expr, right: ast.expr) -> Iterator[Placed]:
    if isinstance(left, ast.Name | ast.Attribute | ast.Subscript) and same(left, right) and not calls_something(left):
        yield module.placed(
            node,
            "same-operands",
            "warning",
            "The result never varies: both sides are the same",
            f"`{ast.unparse(left)[:80]}` stands on both sides of the operator.",
            key=ast.unparse(node)[:80],
        )


def _beyond_the_end(module: PythonModule, node: ast.For) -> Iterator[Placed]:
    match node.target, node.iter:
        case ast.Name(id=index), ast.Call(
            func=ast.Name(id="range"),
            args=[
                *_,
                ast.BinOp(
                    left=ast.Call(func=ast.Name(id="len"), args=[ast.Name(id=name)]),
                    op=ast.Add(),
                    right=ast.Constant(value=1),
                ),
            ],
        ):
            for part in _without_guard(node.body):
                match part:
                    case ast.Subscript(value=ast.Name(id=found), slice=ast.Name(id=used), ctx=ast.Load()):
                        if found == name and used == index:
                            yield module.placed(
                                part, "index-beyond-end", "error",
                                f"IndexError in the last round: the range goes one beyond the end of `{name}`",
                                "range() stops before its end, so the length itself is the right end.", key=name,
                            )  # fmt: skip
                            return


def _without_guard(body: Sequence[ast.stmt]) -> Iterator[ast.AST]:
    """What runs in every round before a condition could keep it from running."""
    for statement in body:
        match statement:
            case ast.If(test=test) | ast.While(test=test):
                first = test.values[0] if isinstance(test, ast.BoolOp) else test
                yield from ast.walk(first)
                return
            case ast.Try() | ast.TryStar() | ast.Match() | ast.With():
                return
            case _:
                yield from (part for part in ast.walk(statement) if not isinstance(statement, ast.For))


def _promised_value(module: PythonModule, node: FunctionNode) -> Iterator[Placed]:
    promised = node.returns
    if promised is None or node.decorator_list or is_stub(node) or is_generator(node):
        return
    words = ast.unparse(promised)
    if any(word in words for word in ("None", "Optional", "Never", "NoReturn", "Any", "object", "Generator")):
        return
    if any(isinstance(part, ast.Return | ast.Raise) for part in own_nodes(node)) or module.source.path.endswith(".pyi"):
        return
    body = node.body[1:] if ast.get_docstring(node) is not None else node.body
    last = body[-1]
    if len(body) == 1 and isinstance(last, ast.Expr):
        return
    if isinstance(last, ast.While | ast.Assert | ast.With | ast.AsyncWith | ast.Match):
        return
    if isinstance(last, ast.Expr) and isinstance(last.value, ast.Call | ast.Await | ast.Constant):
        call = last.value.value if isinstance(last.value, ast.Await) else last.value
        name = ast.unparse(call.func).rsplit(".", 1)[-1] if isinstance(call, ast.Call) else ""
        if not isinstance(call, ast.Call) or name in _ENDS_THE_PROGRAM or "never" in name or "error" in name.lower():
            return
    yield module.placed(
        node,
        "missing-return",
        "error",
        f"Callers get None: `{node.name}` promises {words[:60]} and returns nothing",
        "The function has no `return` at all.",
        key=node.name,
    )
