"""Slips to seed: each takes a correct text and gives the same text with one ordinary mistake, or nothing.

A slip keeps the rest of the file as it is, so that the pair (correct, slipped) is a change with one fault in it. Slips of
logic (a condition turned round, a bound off by one) are among them although no rule can tell them: they keep the share
that is caught honest.
"""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Callable, Mapping

Slip = Callable[[str, random.Random], str | None]


def _lines(text: str) -> list[str]:
    return text.split("\n")


def _swap(
    text: str, pattern: str, replacement: str | Callable[[re.Match[str]], str], chance: random.Random
) -> str | None:
    """Replace one random match of a pattern, found line by line."""
    found = list(re.finditer(pattern, text, re.MULTILINE))
    tree = _code(text) if found else ""
    for match in chance.sample(found, min(len(found), 6)):
        new = replacement(match) if callable(replacement) else match.expand(replacement)
        changed = text[: match.start()] + new + text[match.end() :]
        # A match in a comment or a docstring is no slip.
        if (code := _code(changed)) != tree and (not code or _docstrings(changed) == _docstrings(text)):
            return changed
    return None


def _code(text: str) -> str:
    try:
        return ast.dump(ast.parse(text))
    except SyntaxError:
        return ""


def _docstrings(text: str) -> list[str] | None:
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return None
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return [
        found for node in ast.walk(tree) if isinstance(node, kinds) and (found := ast.get_docstring(node, clean=False))
    ]


def _nodes(text: str, kind: type | tuple[type, ...]) -> list[ast.AST]:
    return [node for node in ast.walk(ast.parse(text)) if isinstance(node, kind)]


def _without(text: str, start: int, end: int) -> str:
    lines = _lines(text)
    return "\n".join([*lines[: start - 1], *lines[end:]])


def removed_import(text: str, chance: random.Random) -> str | None:
    tree = ast.parse(text)
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    found = [
        node
        for node in tree.body
        if isinstance(node, ast.Import)
        and len(node.names) == 1
        and (node.names[0].asname or node.names[0].name) in used
    ]
    if not found:
        return None
    node = chance.choice(found)
    return _without(text, node.lineno, node.end_lineno or node.lineno)


def misspelt_name(text: str, chance: random.Random) -> str | None:
    found = []
    for function in _nodes(text, ast.FunctionDef):
        stored = {
            node.id for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        }
        found += [
            node
            for node in ast.walk(function)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in stored and len(node.id) > 4
        ]
    return _at_node(text, chance, found, lambda word: word[:-2] + word[-1] + word[-2] if word[-1] != word[-2] else None)


def misspelt_attribute(text: str, chance: random.Random) -> str | None:
    found = [
        node
        for node in _nodes(text, ast.Attribute)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
        and isinstance(node.ctx, ast.Load)
        and len(node.attr) > 5
    ]
    return _at_node(text, chance, found, lambda word: word[:-2] + word[-1] + word[-2] if word[-1] != word[-2] else None)


def _at_node(text: str, chance: random.Random, found: list[ast.AST], change: Callable[[str], str | None]) -> str | None:
    lines = _lines(text)
    for node in chance.sample(found, len(found)):
        row, end = node.lineno - 1, node.end_col_offset  # type: ignore[attr-defined]
        if node.end_lineno != node.lineno or not lines[row].isascii():  # type: ignore[attr-defined]
            continue
        word = re.search(r"\w+$", lines[row][:end])
        if word is None or (new := change(word[0])) is None:
            continue
        lines[row] = lines[row][: word.start()] + new + lines[row][end:]
        return "\n".join(lines)
    return None


def removed_self_parameter(text: str, chance: random.Random) -> str | None:
    return _swap(text, r"^(    def [a-z]\w+\()self, ", r"\1", chance)


def removed_self_prefix(text: str, chance: random.Random) -> str | None:
    return _swap(text, r"(?<=[=(] )self\.(?=[a-z]\w+\b)", "", chance)


def mutable_default(text: str, chance: random.Random) -> str | None:
    return _swap(text, r"^(\s*def \w+\(.*\w)=None([,)].*:)$", r"\1=[]\2", chance)


def identity_with_literal(text: str, chance: random.Random) -> str | None:
    return _swap(text, r"(?<=\w) == (?=(?:'[^']+'|\d+):?$)", " is ", chance) or _swap(
        text, r"(if \w+) == (['\"])", r"\1 is \2", chance
    )


def removed_f_prefix(text: str, chance: random.Random) -> str | None:
    return _swap(text, r"(?<=[(\s,=])f(?=['\"][^'\"\n]*\{\w+\})", "", chance)


def removed_raise(text: str, chance: random.Random) -> str | None:
    return _swap(text, r"^(\s+)raise (?=[A-Z]\w*Error\()", r"\1", chance)


def removed_return(text: str, chance: random.Random) -> str | None:
    return _swap(text, r"^(        )return (?=\w+\(|self\.\w+\()", r"\1", chance)


def removed_await(text: str, chance: random.Random) -> str | None:
    return _swap(text, r"(?<=[\s(])await (?=\w)", "", chance)


def removed_parentheses(text: str, chance: random.Random) -> str | None:
    return _swap(text, r"(?<== )((?:self\.)?[a-z]\w+)\(\)$", r"\1", chance)


def repeated_key(text: str, chance: random.Random) -> str | None:
    found = [
        node
        for node in _nodes(text, ast.Dict)
        if isinstance(node, ast.Dict)
        and len(node.keys) > 2
        and all(isinstance(key, ast.Constant) and isinstance(key.value, str) for key in node.keys)
        and node.end_lineno != node.lineno
    ]
    for node in chance.sample(found, len(found)):
        first, second = node.keys[0], node.keys[1]
        if first is None or second is None or first.lineno == second.lineno:
            continue
        lines = _lines(text)
        row = second.lineno - 1
        lines[row] = (
            lines[row][: second.col_offset] + ast.get_source_segment(text, first) + lines[row][second.end_col_offset :]  # type: ignore[operator]
        )
        return "\n".join(lines)
    return None


def broad_handler_first(text: str, chance: random.Random) -> str | None:
    return _swap(
        text,
        r"^( +)except (KeyError|ValueError|TypeError|OSError|AttributeError|IndexError)( as \w+)?:$",
        r"\1except Exception:\n\1    pass\n\1except \2\3:",
        chance,
    )


def bare_handler(text: str, chance: random.Random) -> str | None:
    return _swap(text, r"^( +)except (?:Exception|OSError|ValueError|KeyError):$", r"\1except:", chance)


def lost_format_argument(text: str, chance: random.Random) -> str | None:
    return _swap(text, r"(['\"] % \(\w[\w.]*), \w[\w.]*\)", r"\1,)", chance)


def lost_colon(text: str, chance: random.Random) -> str | None:
    return _swap(text, r"^(\s+(?:if|for|while|elif) .*[\w)]):$", r"\1", chance)


def lost_parenthesis(text: str, chance: random.Random) -> str | None:
    return _swap(text, r"^(\s+\w+ = \w+\(.*)\)$", r"\1", chance)


def wrong_indentation(text: str, chance: random.Random) -> str | None:
    return _swap(text, r"^        (?=[a-z]\w+ = \w+)", "      ", chance)


def debugger_left(text: str, chance: random.Random) -> str | None:
    return _swap(text, r"^(        )(?=return \w)", r"\1breakpoint()\n\1", chance)


def trace_left(text: str, chance: random.Random) -> str | None:
    return _swap(text, r"^(        )(?=return \w)", r"\1import pdb; pdb.set_trace()\n\1", chance)


def unresolved_merge(text: str, chance: random.Random) -> str | None:
    return _swap(
        text,
        r"^(    \w+ = .*)$",
        lambda match: f"<<<<<<< HEAD\n{match[1]}\n=======\n{match[1]}  # changed\n>>>>>>> feature",
        chance,
    )


def secret_left(text: str, chance: random.Random) -> str | None:
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
    token = "".join(chance.choice(alphabet) for _ in range(36))
    return _swap(text, r"^(import \w+)$", lambda match: f'{match[1]}\n\nTOKEN = "gh' + f'p_{token}"', chance)


def early_return(text: str, chance: random.Random) -> str | None:
    return _swap(text, r"^(        )(?=\w+ = .*\n        \w+)", r"\1return\n\1", chance)


def wrong_argument_count(text: str, chance: random.Random) -> str | None:
    names = [
        node.name
        for node in ast.parse(text).body
        if isinstance(node, ast.FunctionDef)
        and not node.decorator_list
        and not node.args.vararg
        and not node.args.defaults
    ]
    if not names:
        return None
    return _swap(text, rf"(?<!def )\b((?:{'|'.join(names)})\()(?=\w+\))", r"\1None, ", chance)


def assertion_of_a_tuple(text: str, chance: random.Random) -> str | None:
    return _swap(text, r"^(\s+)assert ([\w.() ]+), (['\"].*['\"])$", r"\1assert (\2, \3)", chance)


def comparison_for_assignment(text: str, chance: random.Random) -> str | None:
    return _swap(text, r"^(        self\.\w+) = (\w+)$", r"\1 == \2", chance)


def assignment_for_comparison(text: str, chance: random.Random) -> str | None:
    return _swap(text, r"^(\s+if \w+) == ", r"\1 = ", chance)


def lost_comma(text: str, chance: random.Random) -> str | None:
    return _swap(text, r"^(\s+['\"][\w.-]+['\"]),(?=\n\s+['\"][\w.-]+['\"],?$)", r"\1", chance)


def return_in_finally(text: str, chance: random.Random) -> str | None:
    return _swap(text, r"^( +)finally:\n", r"\1finally:\n\1    return None\n", chance)


def compared_with_itself(text: str, chance: random.Random) -> str | None:
    return _swap(text, r"(?<=if )(\w+) == (\w+)(?=:$)", r"\1 == \1", chance)


def beyond_the_end(text: str, chance: random.Random) -> str | None:
    return _swap(text, r"(for \w+ in range\(len\(\w+\))\):", r"\1 + 1):", chance)


def shell_true(text: str, chance: random.Random) -> str | None:
    return _swap(text, r"(subprocess\.\w+\(\w+)(?=[,)](?!.*shell))(?!.*\n.*shell)", r"\1, shell=True", chance)


def lost_break(text: str, chance: random.Random) -> str | None:
    found = [
        node
        for node in _nodes(text, ast.While)
        if isinstance(node, ast.While)
        and isinstance(node.test, ast.Constant)
        and sum(isinstance(part, ast.Break) for part in ast.walk(node)) == 1
        and not any(isinstance(part, ast.Return | ast.Raise | ast.Yield) for part in ast.walk(node))
    ]
    if not found:
        return None
    loop = chance.choice(found)
    leave = next(part for part in ast.walk(loop) if isinstance(part, ast.Break))
    lines = _lines(text)
    lines[leave.lineno - 1] = lines[leave.lineno - 1].replace("break", "pass")
    return "\n".join(lines)


def lost_logging_argument(text: str, chance: random.Random) -> str | None:
    if "import logging" not in text:
        return None
    return _swap(text, r"(log(?:ger)?\.\w+\(['\"][^'\"\n]*%[sdr][^'\"\n%]*['\"]), \w[\w.]*\)$", r"\1, 1, 2)", chance)


def result_thrown_away(text: str, chance: random.Random) -> str | None:
    return _swap(text, r"^(\s+)(\w+) = (\2\.(?:strip|rstrip|lower|upper|lstrip)\(.*\))$", r"\1\3", chance)


def repeated_definition(text: str, chance: random.Random) -> str | None:
    found = [
        (one, other)
        for node in _nodes(text, ast.ClassDef)
        if isinstance(node, ast.ClassDef)
        for one, other in zip(node.body, node.body[1:], strict=False)
        if isinstance(one, ast.FunctionDef) and isinstance(other, ast.FunctionDef) and not one.decorator_list
        and not other.decorator_list
    ]  # fmt: skip
    if not found:
        return None
    one, other = chance.choice(found)
    lines = _lines(text)
    lines[other.lineno - 1] = lines[other.lineno - 1].replace(f"def {other.name}(", f"def {one.name}(")
    return "\n".join(lines)


def joined_exceptions(text: str, chance: random.Random) -> str | None:
    return _swap(text, r"except \((\w+), (\w+)\)", r"except (\1 or \2)", chance)


def super_not_called(text: str, chance: random.Random) -> str | None:
    return _swap(text, r"super\(\)\.", "super.", chance)


def misspelt_library_name(text: str, chance: random.Random) -> str | None:
    return _swap(text, r"\bos\.path\.(?:exists|isdir|basename|dirname)\b", lambda match: match[0][:-1], chance)


def sorted_in_place(text: str, chance: random.Random) -> str | None:
    return _swap(text, r"^(\s+)(\w+)\.sort\(\)$", r"\1\2 = \2.sort()", chance)


def changed_while_iterated(text: str, chance: random.Random) -> str | None:
    return _swap(text, r"^( +)(for (\w+) in (\w+):)\n", r"\1\2\n\1    \4.remove(\3)\n", chance)


def self_assignment(text: str, chance: random.Random) -> str | None:
    return _swap(text, r"^(        self\.)(\w+) = \2$", r"\g<1>\2 = self.\2", chance)


def unused_value(text: str, chance: random.Random) -> str | None:
    return _swap(text, r"^(        )self\.(\w+ = \w+\(.*\))$", r"\1\2", chance)


def turned_condition(text: str, chance: random.Random) -> str | None:
    return _swap(text, r"(?<=if )not (?=\w+:$)", "", chance)


def off_by_one(text: str, chance: random.Random) -> str | None:
    return _swap(text, r"(?<=\w) < (?=\w)", " <= ", chance)


def wrong_operator(text: str, chance: random.Random) -> str | None:
    return _swap(text, r"(?<=\w) and (?=\w)", " or ", chance)


PYTHON: Mapping[str, Slip] = {
    function.__name__: function
    for function in (
        removed_import, misspelt_name, misspelt_attribute, removed_self_parameter, removed_self_prefix, mutable_default,
        identity_with_literal, removed_f_prefix, removed_raise, removed_return, removed_await, removed_parentheses,
        repeated_key, broad_handler_first, bare_handler, lost_format_argument, lost_colon, lost_parenthesis,
        wrong_indentation, debugger_left, trace_left, unresolved_merge, secret_left, early_return, wrong_argument_count,
        assertion_of_a_tuple, comparison_for_assignment, assignment_for_comparison, lost_comma, return_in_finally,
        compared_with_itself, beyond_the_end, shell_true, lost_break, lost_logging_argument, result_thrown_away,
        repeated_definition, joined_exceptions, super_not_called, misspelt_library_name, sorted_in_place,
        changed_while_iterated, self_assignment, unused_value, turned_condition, off_by_one, wrong_operator,
    )
}  # fmt: skip
