"""What a change took away from a Python file, seen by comparing both sides function by function.

A word that is gone leaves nothing on the new side that a rule could see: the function that returned, the call that was
awaited. Functions are paired by their qualified names, so that moved ones stay paired.
"""

from __future__ import annotations

import ast
import builtins
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from outpost_lsp.models.rule_based.analysis import RawFinding, SourceText
from outpost_lsp.reviews.rules.placed import Placed, merged
from outpost_lsp.reviews.rules.python_lost_names import (
    lost_imports,
    lost_prefix,
    lost_self,
    misspelt_attributes,
    misspelt_names,
)
from outpost_lsp.reviews.rules.python_module import (
    FunctionNode,
    PythonModule,
    at_severity,
    body_nodes,
    is_generator,
    is_stub,
    own_nodes,
    parsed,
)
from outpost_lsp.reviews.rules.ruff import is_python


@dataclass(frozen=True, slots=True)
class _Pair:
    """A function on both sides. `owner` is the class it belongs to on the new side."""

    name: str
    before: FunctionNode
    after: FunctionNode
    owner: ast.ClassDef | None


def lost_by_change(before: SourceText, after: SourceText) -> list[RawFinding]:
    """What the new side lacks and needs."""
    if not is_python(after) or before.text == after.text:
        return []
    old, new = parsed(before), parsed(after)
    if old is None or new is None:
        return []
    found: list[Placed] = list(lost_imports(old, new))
    if old.lines != new.lines:
        found.extend((*_lost_raise(new, old.tree, new.tree), *_lost_call(new, old.tree, new.tree)))
    known = _functions(old.tree)
    for name, (function, owner) in _functions(new.tree).items():
        if name not in known or _same_text(old, known[name][0], new, function):
            continue
        pair = _Pair(name, known[name][0], function, owner)
        for rule in (_lost_self_parameter, _lost_return, _lost_await, _lost_super, _lost_exit, _one_round):
            found.extend(rule(new, pair))
        found.extend(lost_prefix(new, pair.before, function))
        found.extend(_lost_raise(new, pair.before, function))
        found.extend(_lost_call(new, pair.before, function))
        found.extend(misspelt_attributes(old, new, pair.before, function))
        found.extend(misspelt_names(old, new, pair.before, function))
        found.extend(lost_self(old, new, pair.before, function))
    unsure = [item for item in found if item.finding.rule == "lost-await" and item.finding.severity == "warning"]
    if len(unsure) > 1:
        # Where several calls lose their `await` at once, the functions were changed on purpose.
        found = [at_severity(item, "information") if item in unsure else item for item in found]
    return merged(found)


def _functions(tree: ast.AST, prefix: str = "") -> dict[str, tuple[FunctionNode, ast.ClassDef | None]]:
    found: dict[str, tuple[FunctionNode, ast.ClassDef | None]] = {}
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, FunctionNode):
            name = prefix + node.name
            # Of several definitions of one name none can be paired.
            found[name if name not in found else f"{name} again"] = (
                node,
                tree if isinstance(tree, ast.ClassDef) else None,
            )
            found |= _functions(node, f"{name}.")
        elif isinstance(node, ast.ClassDef):
            found |= _functions(node, f"{prefix}{node.name}.")
        elif isinstance(node, ast.If | ast.Try | ast.With):
            found |= _functions(node, prefix)
    return found


def _same_text(old: PythonModule, one: FunctionNode, new: PythonModule, other: FunctionNode) -> bool:
    return old.lines[one.lineno - 1 : one.end_lineno] == new.lines[other.lineno - 1 : other.end_lineno]


def _lost_self_parameter(module: PythonModule, pair: _Pair) -> Iterator[Placed]:
    if pair.owner is None or pair.after.decorator_list or not pair.before.args.args:
        return
    first = pair.after.args.args[0].arg if pair.after.args.args else ""
    if pair.before.args.args[0].arg == "self" and first != "self" and not pair.after.args.vararg:
        yield module.placed(
            pair.after,
            "lost-self-parameter",
            "error",
            f"Calling `{pair.after.name}` fails or fills the wrong parameter: `self` is gone",
            "Before this change the first parameter was `self`, and the method is still an ordinary one.",
            key=pair.name,
        )


def _lost_return(module: PythonModule, pair: _Pair) -> Iterator[Placed]:
    if is_generator(pair.after) or is_generator(pair.before) or is_stub(pair.after) or is_stub(pair.before):
        return
    if _returns_value(pair.after) or not _returns_value(pair.before) or isinstance(pair.after.body[-1], ast.Raise):
        return
    if pair.after.returns is not None and ast.unparse(pair.after.returns) in ("None", "NoReturn", "Never"):
        return
    yield module.placed(
        pair.after,
        "lost-return",
        "error",
        f"Callers get None now: `{pair.after.name}` no longer returns a value",
        "Before this change it returned one; no `return` with a value is left.",
        key=pair.name,
    )


def _returns_value(function: FunctionNode) -> bool:
    return any(
        isinstance(node, ast.Return)
        and node.value is not None
        and not (isinstance(node.value, ast.Constant) and node.value.value is None)
        for node in own_nodes(function)
    )


def _lost_await(module: PythonModule, pair: _Pair) -> Iterator[Placed]:
    if not isinstance(pair.after, ast.AsyncFunctionDef):
        return
    awaited = Counter(
        ast.unparse(node.value.func)
        for node in own_nodes(pair.before)
        if isinstance(node, ast.Await) and isinstance(node.value, ast.Call)
    )
    plain_before = {ast.unparse(call.func) for call in _plain_calls(pair.before)}
    still = {
        ast.unparse(node.value.func).rsplit(".", 1)[-1]
        for node in module.nodes
        if isinstance(node, ast.Await) and isinstance(node.value, ast.Call)
    }
    for call in _plain_calls(pair.after):
        name = ast.unparse(call.func)
        function = module.functions.get(name)
        if name not in awaited or name in plain_before or isinstance(function, ast.FunctionDef):
            continue
        # A function of another file that nothing awaits any more may have become an ordinary one.
        sure = isinstance(function, ast.AsyncFunctionDef) or name.rsplit(".", 1)[-1] in still
        yield module.placed(
            call,
            "lost-await",
            "error" if sure else "warning",
            f"The result is a coroutine that never ran: `{name}()` is no longer awaited",
            "Before this change the call was awaited."
            + ("" if sure else " If the function was made an ordinary one in this change, all is well."),
            key=name,
        )


def _plain_calls(function: FunctionNode) -> Iterator[ast.Call]:
    """Calls whose value is used as it is: not awaited, and not handed on to something that may await it."""
    for node in own_nodes(function):
        match node:
            case ast.Expr(value=ast.Call() as call) | ast.Assign(value=ast.Call() as call):
                yield call
            case ast.Return(value=ast.Call() as call):
                yield call
            case ast.Attribute(value=ast.Call() as call) | ast.Subscript(value=ast.Call() as call):
                yield call
            case ast.For(iter=ast.Call() as call) | ast.If(test=ast.Call() as call):
                yield call
            case _:
                pass


def _lost_raise(module: PythonModule, before: ast.AST, after: ast.AST) -> Iterator[Placed]:
    raised = {
        ast.unparse(node.exc.func)
        for node in body_nodes(before)
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call)
    }
    for node in body_nodes(after) if raised else ():
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and ast.unparse(node.value.func) in raised:
            name = ast.unparse(node.value.func)
            yield module.placed(
                node,
                "lost-raise",
                "error",
                f"The error is made and thrown away: `{name}` is no longer raised",
                "Before this change the statement began with `raise`.",
                key=name,
            )


def _lost_call(module: PythonModule, before: ast.AST, after: ast.AST) -> Iterator[Placed]:
    called, still = _empty_calls(before), _empty_calls(after)
    # Classes are values in their own right.
    gone = {
        name
        for name, count in called.items()
        if still[name] < count and not _is_class(name) and _is_function(module, name)
    }
    if not gone:
        return
    read_before = Counter(ast.unparse(node) for node in _read(before))
    read_after = [(node, ast.unparse(node)) for node in _read(after)]
    counts = Counter(name for _, name in read_after)
    for node, name in read_after:
        if name in gone and counts[name] > read_before[name] and (not read_before[name] or _is_new(node, before)):
            yield module.placed(
                node,
                "lost-call",
                "error",
                f"The function itself is used in place of its result: `{name}` is no longer called",
                "Before this change there were parentheses behind it.",
                key=name,
            )


def _empty_calls(function: ast.AST) -> Counter[str]:
    return Counter(
        ast.unparse(node.func)
        for node in body_nodes(function)
        if isinstance(node, ast.Call) and not node.args and not node.keywords
    )


def _is_function(module: PythonModule, name: str) -> bool:
    """Whether it can be no property: a plain name, or a method of this file without decorators."""
    if "." not in name:
        return True
    methods = [method for facts in module.classes.values() for method in facts.methods.get(name[5:], ())]
    return name.startswith("self.") and bool(methods) and not any(method.decorator_list for method in methods)


def _is_class(name: str) -> bool:
    last = name.rsplit(".", 1)[-1].lstrip("_")
    return last[:1].isupper() or isinstance(getattr(builtins, name, None), type)


def _is_new(node: ast.expr, before: ast.AST) -> bool:
    """Whether the old side reads the same name in no line of the same column."""
    return all(part.col_offset != node.col_offset or ast.unparse(part) != ast.unparse(node) for part in _read(before))


def _read(function: ast.AST) -> Iterator[ast.expr]:
    """Names and attributes that are read, those that are called or looked into left out."""
    nodes = list(body_nodes(function))
    inner = {id(node.func) for node in nodes if isinstance(node, ast.Call)}
    inner |= {id(node.value) for node in nodes if isinstance(node, ast.Attribute)}
    # An exception may be raised without parentheses.
    inner |= {id(node.exc) for node in nodes if isinstance(node, ast.Raise)}
    for node in nodes:
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load) and id(node) not in inner:
            yield node


def _lost_super(module: PythonModule, pair: _Pair) -> Iterator[Placed]:
    if pair.after.name not in ("__init__", "setUp", "tearDown", "__enter__", "__exit__") or pair.owner is None:
        return
    if not pair.owner.bases or is_stub(pair.after) or not _calls_super(pair.before) or _calls_super(pair.after):
        return
    yield module.placed(
        pair.after,
        "lost-super-call",
        "warning",
        f"The base class is no longer set up: `{pair.after.name}` does not call it any more",
        f"Before this change `{pair.after.name}` called the method of its base class.",
        key=pair.name,
    )


def _calls_super(function: FunctionNode) -> bool:
    return any(
        isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == function.name
        for node in own_nodes(function)
    )


def _lost_exit(module: PythonModule, pair: _Pair) -> Iterator[Placed]:
    endless_before = {ast.unparse(loop.body[0]) for loop in _endless(pair.before)}
    loops_before = {ast.unparse(node.body[0]) for node in own_nodes(pair.before) if isinstance(node, ast.While)}
    for loop in _endless(pair.after):
        first = ast.unparse(loop.body[0])
        if first in loops_before and first not in endless_before:
            yield module.placed(
                loop,
                "lost-exit",
                "error",
                "The loop never ends: what left it is gone",
                "Before this change something in it left the loop.",
                key=first[:80],
            )


def _endless(function: FunctionNode) -> Iterator[ast.While]:
    leaves = ast.Break | ast.Return | ast.Raise | ast.Yield | ast.YieldFrom
    for node in own_nodes(function):
        if not isinstance(node, ast.While) or node.orelse:
            continue
        always = isinstance(node.test, ast.Constant) and bool(node.test.value)
        if always and not any(isinstance(part, leaves) for part in own_nodes(node)):
            yield node


def _one_round(module: PythonModule, pair: _Pair) -> Iterator[Placed]:
    before = {_head(loop): loop for loop in own_nodes(pair.before) if isinstance(loop, ast.For)}
    for loop in own_nodes(pair.after):
        if not isinstance(loop, ast.For) or not _ends_at_once(loop) or _head(loop) not in before:
            continue
        if not _ends_at_once(before[_head(loop)]):
            word = type(loop.body[-1]).__name__.lower()
            yield module.placed(
                loop.body[-1],
                "loop-ends-at-once",
                "error",
                f"Only the first element is looked at: this `{word}` ends the loop in its first round",
                "Before this change the loop went on to the next element.",
                key=_head(loop)[:80],
            )


def _head(loop: ast.For) -> str:
    return f"{ast.unparse(loop.target)} in {ast.unparse(loop.iter)}"


def _ends_at_once(loop: ast.For) -> bool:
    return isinstance(loop.body[-1], ast.Return | ast.Break) and not any(
        isinstance(part, ast.Continue | ast.Yield | ast.YieldFrom) for part in own_nodes(loop)
    )
