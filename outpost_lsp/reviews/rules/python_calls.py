"""Rules of our own about calls within one Python file: what is passed, what is awaited, what comes back."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from outpost_lsp.reviews.rules.placed import Placed
from outpost_lsp.reviews.rules.python_module import FunctionNode, PythonModule, is_generator, is_stub, own_nodes

_LIBRARY_COROUTINES: Final = frozenset(
    (
        "asyncio.sleep", "asyncio.wait_for", "asyncio.wait", "asyncio.to_thread", "asyncio.open_connection",
        "asyncio.create_subprocess_exec", "asyncio.create_subprocess_shell", "asyncio.start_server",
        "anyio.sleep", "anyio.to_thread.run_sync", "anyio.run_process", "trio.sleep",
    )
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Target:
    """A function of this file that a call certainly reaches. `bound` counts the parameters filled by the object."""

    function: FunctionNode
    name: str
    bound: int


def call_faults(module: PythonModule) -> Iterator[Placed]:
    """Everything this file says about calls."""
    for scope, class_name in _scopes(module):
        for node in own_nodes(scope):
            if isinstance(node, ast.Call) and (target := _target(module, node, class_name)) is not None:
                yield from _wrong_arguments(module, node, target)
            elif isinstance(node, ast.Expr):
                yield from _not_awaited(module, node, class_name)
            elif isinstance(node, ast.If | ast.While | ast.IfExp):
                yield from _function_as_condition(module, node.test, class_name)
            elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
                yield from _nothing_comes_back(module, node.value, class_name)


def _scopes(module: PythonModule) -> Iterator[tuple[ast.AST, str | None]]:
    yield module.tree, None
    owners: dict[int, str] = {}
    for name, facts in module.classes.items():
        for statement in facts.node.body:
            if isinstance(statement, FunctionNode):
                owners[id(statement)] = name
    for node in module.nodes:
        if isinstance(node, FunctionNode | ast.ClassDef | ast.Lambda):
            yield node, owners.get(id(node))


def _target(module: PythonModule, call: ast.Call, class_name: str | None) -> _Target | None:
    match call.func:
        case ast.Name(id=name) if name in module.functions:
            function = module.functions[name]
            return None if function.decorator_list else _Target(function, name, 0)
        case ast.Name(id=name) if name in module.classes:
            facts = module.classes[name]
            if not facts.is_plain or "__new__" in facts.methods or len(facts.methods.get("__init__", ())) != 1:
                return None
            function = facts.methods["__init__"][0]
            return None if function.decorator_list else _Target(function, name, 1)
        case ast.Attribute(value=ast.Name(id="self"), attr=name) if class_name is not None:
            method = _own_method(module, class_name, name)
            return None if method is None else _Target(method, f"self.{name}", 1)
    return None


def _own_method(module: PythonModule, class_name: str, name: str) -> FunctionNode | None:
    facts = module.classes[class_name]
    methods = facts.methods.get(name, ())
    if len(methods) != 1 or methods[0] not in facts.node.body or name in module.attributes_set:
        return None
    return None if methods[0].decorator_list else methods[0]


def _wrong_arguments(module: PythonModule, call: ast.Call, target: _Target) -> Iterator[Placed]:
    arguments = target.function.args
    if target.name.startswith("self.") and is_stub(target.function):
        return
    if any(isinstance(part, ast.Starred) for part in call.args) or any(part.arg is None for part in call.keywords):
        return
    positional = [part.arg for part in (*arguments.posonlyargs, *arguments.args)]
    if len(positional) < target.bound:
        return
    positional = positional[target.bound :]
    only_positional = {part.arg for part in arguments.posonlyargs}
    named = {part.arg for part in arguments.kwonlyargs} | {name for name in positional if name not in only_positional}
    given = {part.arg for part in call.keywords if part.arg is not None}
    words = ""
    if arguments.vararg is None and len(call.args) > len(positional):
        words = f"it takes {_count(len(positional), 'positional argument')} and gets {len(call.args)}"
    elif arguments.kwarg is None and (unknown := sorted(given - named)):
        words = f"it has no parameter `{unknown[0]}`"
    elif twice := [name for name in positional[: len(call.args)] if name in given]:
        words = f"`{twice[0]}` is given twice"
    else:
        optional = len(arguments.defaults)
        required = positional[: len(positional) - optional] if optional else positional
        missing = [name for name in required[len(call.args) :] if name not in given]
        missing += [
            part.arg
            for part, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
            if default is None and part.arg not in given
        ]
        if missing:
            words = f"`{missing[0]}` is missing"
    if words:
        yield module.placed(
            call,
            "wrong-arguments",
            "error",
            f"The call raises TypeError: {words}",
            f"`{target.name}` is defined in this file.",
            key=f"{target.name}:{words}",
        )


def _not_awaited(module: PythonModule, statement: ast.Expr, class_name: str | None) -> Iterator[Placed]:
    call = statement.value
    if not isinstance(call, ast.Call):
        return
    target = _target(module, call, class_name)
    name = ast.unparse(call.func) if isinstance(call.func, ast.Attribute) else ""
    is_own = target is not None and isinstance(target.function, ast.AsyncFunctionDef)
    is_own = is_own and target is not None and not is_generator(target.function) and "." not in target.name[5:]
    if isinstance(call.func, ast.Name) and call.func.id in module.classes:
        is_own = False
    if is_own or name in _LIBRARY_COROUTINES:
        shown = target.name if target is not None else name
        yield module.placed(
            statement,
            "not-awaited",
            "error",
            f"Nothing happens: the coroutine of `{shown}()` is never awaited",
            "The call only makes a coroutine; it is thrown away with this statement.",
            key=shown,
        )


def _function_as_condition(module: PythonModule, test: ast.expr, class_name: str | None) -> Iterator[Placed]:
    for part in _parts(test):
        name = ""
        if isinstance(part, ast.Name) and part.id in module.functions:
            name = part.id
        elif class_name is not None and module.classes[class_name].is_plain:
            match part:
                case ast.Attribute(value=ast.Name(id="self"), attr=attribute):
                    name = f"self.{attribute}" if _own_method(module, class_name, attribute) is not None else ""
        if name:
            yield module.placed(
                part,
                "function-as-condition",
                "error",
                f"The condition never varies: `{name}` is not called",
                "A function counts as true, whatever it would return.",
                key=name,
            )


def _parts(test: ast.expr) -> Iterator[ast.expr]:
    if isinstance(test, ast.BoolOp):
        for value in test.values:
            yield from _parts(value)
    elif isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        yield from _parts(test.operand)
    else:
        yield test


def _nothing_comes_back(module: PythonModule, call: ast.Call, class_name: str | None) -> Iterator[Placed]:
    target = _target(module, call, class_name)
    if target is None or (isinstance(call.func, ast.Name) and call.func.id in module.classes):
        return
    function = target.function
    if isinstance(function, ast.AsyncFunctionDef) or is_generator(function) or is_stub(function):
        return
    if class_name is not None and target.bound and class_name in module.base_names:
        return
    nodes = list(own_nodes(function))
    if any(isinstance(node, ast.Return) and node.value is not None for node in nodes) or not _ends(function):
        return
    yield module.placed(
        call,
        "no-return-value",
        "warning",
        f"The value is always None: `{target.name}` returns nothing",
        f"No `return` of `{target.name}` gives a value.",
        key=target.name,
        only_new=target.bound > 0,
    )


def _ends(function: FunctionNode) -> bool:
    last = function.body[-1]
    return not isinstance(last, ast.Raise | ast.While)


def _count(number: int, words: str) -> str:
    return f"{number} {words}" if number == 1 else f"{number} {words}s"
