"""A second look at what ruff says: where a rule is known to speak of code that is meant, it is kept for comparisons.

A finding that fails the second look is not dropped. It becomes one that only a comparison with a base may bring up
(`only_new`): what stood there before is meant, what a change brings is worth a word; a few are information where they
stand, too. What another tool's suppression comment answers on the line is dropped.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from outpost_lsp.domain.finding import Severity
from outpost_lsp.reviews.rules.placed import Placed
from outpost_lsp.reviews.rules.table import CONFIDENCE

_SUPPRESSED: Final = re.compile(
    r"#\s*(?:pylint:\s*disable|noinspection|pragma: no outpost|flake8:\s*noqa)", re.IGNORECASE
)
_TYPES_SUPPRESSED: Final = re.compile(r"#\s*(?:type:\s*ignore|pyright:\s*ignore|ty:\s*ignore)")
_BANDIT_SUPPRESSED: Final = re.compile(r"#\s*nosec\b")
_NAMES_MADE_AT_RUN_TIME: Final = re.compile(
    r"\bglobals\(\)\s*(?:\.update\(|\[)|\._convert_\(|\bexec\(|\bsys\.modules\["
)
_OLD_BUILTINS: Final = frozenset(
    ("unicode", "basestring", "raw_input", "xrange", "long", "unichr", "reduce", "cmp", "execfile", "file", "buffer")
)
_ADDED_BY_TOOLS: Final = frozenset(("get_ipython", "display", "dbutils", "spark", "_", "profile", "reveal_type"))
_REMOVES: Final = re.compile(r"\.(?:remove|pop|popitem|clear|discard|insert)\(|^\s*del\s")
_CONSTANT_ADDRESS: Final = re.compile(r"\b(?:urlopen|urlretrieve|Request)\(\s*[A-Z_][A-Z0-9_]+\s*[,)]")
_BARE_READ: Final = re.compile(r"^\s*(?:await\s+)?[A-Za-z_][\w.]*(?:\[[^\]]*\])?\s*(?:#.*)?$")

_WAITING: Final = ("ASYNC210", "ASYNC212", "ASYNC220", "ASYNC221", "ASYNC222", "ASYNC250", "ASYNC251")
_TEST: Final = re.compile(r"(?:^|/)(?:tests?|testing)/|(?:^|/)(?:test_[^/]*|[^/]*_test|conftest)\.py\Z")
_STARTS_PROGRAMS: Final = re.compile(
    r"\w*(?:run|call|popen|exec|command|spawn|process|system|output|shell)\w*\([^()]*\bshell\s*=", re.IGNORECASE
)
_ONLY_NEW: Final = frozenset(
    ("N804", "N805", "B004", "B020", "B023", "B026", "LOG014", "PLE0605", "PLE0604", "RUF027", "PLW1508", "ASYNC220")
)
"""Rules whose findings in settled code are mostly meant (measured on the standard library and installed packages)."""


@dataclass(frozen=True, slots=True)
class _Case:
    item: Placed
    path: str
    text: str
    lines: Sequence[str]

    @property
    def is_test(self) -> bool:
        return _TEST.search(self.path) is not None

    @property
    def line(self) -> str:
        return self.lines[self.item.start[0] - 1]


_IN_DOUBT: Final[Mapping[str, Severity]] = {
    "B006": "warning",
    "B909": "warning",
    "B018": "warning",
    "S604": "information",
    **dict.fromkeys(_WAITING, "warning"),
}
"""What a finding in doubt counts as, where that is less than it is otherwise."""
_TOLD_WHERE_IT_STANDS: Final = frozenset(("B006",))
"""In doubt, but one line away from a fault: a habit, which is information in code that stands."""
_ANOTHER_FIRST: Final = frozenset(("cls", "mcs", "mcls", "metacls", "klass", "_self", "_cls", "__self__", "this"))


def second_look(placed: Sequence[Placed], path: str, text: str, lines: Sequence[str]) -> list[Placed]:
    """The findings that stay, some of them for comparisons only."""
    kept = []
    for item in placed:
        line = lines[item.start[0] - 1] if item.start[0] <= len(lines) else ""
        if _is_suppressed(item.finding.rule, line) or _is_meant(_Case(item, path, text, lines)):
            continue
        doubt = _DOUBTS.get(item.finding.rule)
        if item.finding.rule in _ONLY_NEW or (doubt is not None and doubt(_Case(item, path, text, lines))):
            severity = _IN_DOUBT.get(item.finding.rule, item.finding.severity)
            finding = replace(
                item.finding,
                only_new=True,
                is_habit=item.finding.rule in _TOLD_WHERE_IT_STANDS,
                severity=severity,
                confidence=CONFIDENCE[severity],
            )
            item = Placed(finding, item.start, item.end)  # noqa: PLW2901
        kept.append(item)
    return kept


def _is_suppressed(rule: str, line: str) -> bool:
    if "#" not in line:
        return False
    if _SUPPRESSED.search(line):
        return True
    if rule.startswith("S") and rule[1:].isdigit():
        return _BANDIT_SUPPRESSED.search(line) is not None
    return rule in ("F821", "F811", "F823", "PLE1142") and _TYPES_SUPPRESSED.search(line) is not None


def _is_meant(case: _Case) -> bool:
    match case.item.finding.rule:
        case "N805" | "N804":
            # A first parameter of another name is a convention of its own, unless the body asks for the usual one.
            name = re.search(r"def\s+\w+\s*\(\s*(\w+)", "\n".join(case.lines[case.item.start[0] - 1 :][:3]))
            word = "self" if case.item.finding.rule == "N805" else "cls"
            body = "\n".join(_body(case.lines, case.item.start[0] - 1))
            known = name is not None and name[1] in _ANOTHER_FIRST
            return known or re.search(rf"\b{word}\b", body) is None
        case "B909":
            # Adding to a list that is iterated is how work lists are written.
            return ".append(" in case.line or ".extend(" in case.line
        case "RUF027":
            return ".format(" in case.text or ".format_map(" in case.text
        case _:
            return False


def _body(lines: Sequence[str], row: int) -> list[str]:
    """The lines after `row` (from 0) that are indented further than it."""
    margin = len(lines[row]) - len(lines[row].lstrip())
    found = []
    for line in lines[row + 1 :]:
        stripped = line.lstrip()
        if stripped and len(line) - len(stripped) <= margin and not stripped.startswith((")", "]", "}", "#")):
            break
        found.append(line)
    return found


def _name_made_elsewhere(case: _Case) -> bool:
    names = set(case.item.finding.key.split(","))
    return bool(names & (_OLD_BUILTINS | _ADDED_BY_TOOLS)) or _NAMES_MADE_AT_RUN_TIME.search(case.text) is not None


def _outside_a_function(case: _Case) -> bool:
    # `name = name` binds a name for importers at the top of a module, and in the namespace of a class.
    indentation = len(case.line) - len(case.line.lstrip())
    if not indentation:
        return True
    for above in reversed(case.lines[: case.item.start[0] - 1]):
        stripped = above.lstrip()
        if stripped and len(above) - len(stripped) < indentation and re.match(r"class\s|(async\s+)?def\s", stripped):
            return stripped.startswith("class")
    return True


def _default_never_changed(case: _Case) -> bool:
    """Whether no line of the function changes, returns or keeps the parameter with the mutable default."""
    row = case.item.start[0]
    name = re.match(r"\s*(\w+)", _last_parameter(case.lines[row - 1][: case.item.start[1] - 1]))
    if name is None:
        return True
    start = next(
        (index for index in range(row - 1, -1, -1) if re.match(r"\s*(async\s+)?def\s", case.lines[index])), None
    )
    if start is None:
        return True
    body = [*_body(case.lines, start)][max(0, row - start - 1) :]
    word = re.escape(name[1])
    changes = re.compile(
        rf"\b{word}\s*(?:\.(?:append|extend|insert|add|update|setdefault|pop|popitem|remove|discard|clear|sort|reverse)\("
        rf"|\[[^\]]*\]\s*(?:[+\-*/|&]?=)(?!=)|[+|&\-]=)|\bdel\s+{word}\[|\breturn\s+{word}\s*$|^\s*self\.\w+\s*=\s*{word}\s*$",
        re.MULTILINE,
    )
    return changes.search("\n".join(body)) is None


def _last_parameter(text: str) -> str:
    """The parameter that the text ends in: what follows the last comma or parenthesis outside its brackets."""
    depth = 0
    for index in range(len(text) - 1, -1, -1):
        if text[index] in ")]}":
            depth += 1
        elif text[index] in "([{" and depth:
            depth -= 1
        elif text[index] in ",(" and not depth:
            return text[index + 1 :]
    return text


def _adds_while_iterating(case: _Case) -> bool:
    return _REMOVES.search(case.line) is None


def _only_imports_a_debugger(case: _Case) -> bool:
    return case.item.finding.detail.startswith("Import")


def _tests_for_nan(case: _Case) -> bool:
    return "!=" in case.line


def _reads_for_an_effect(case: _Case) -> bool:
    # A name or an attribute on its own line asks whether it is there, or wakes a property.
    return _BARE_READ.match(case.line) is not None


def _address_is_constant(case: _Case) -> bool:
    return _CONSTANT_ADDRESS.search(case.line) is not None


def _waits_in_a_test(case: _Case) -> bool:
    # Nothing else runs beside most tests, so that blocking holds up nobody.
    return case.is_test


def _starts_no_program(case: _Case) -> bool:
    words = "\n".join(case.lines[case.item.start[0] - 1 : case.item.start[0] + 4])
    return _STARTS_PROGRAMS.search(words) is None


def _no_django(case: _Case) -> bool:
    return "django" not in case.text


_DOUBTS: Final[Mapping[str, Callable[[_Case], bool]]] = {
    "F821": _name_made_elsewhere,
    "PLW0127": _outside_a_function,
    "B006": _default_never_changed,
    "B909": _adds_while_iterating,
    "T100": _only_imports_a_debugger,
    "PLR0124": _tests_for_nan,
    "B018": _reads_for_an_effect,
    "S310": _address_is_constant,
    "S604": _starts_no_program,
    **dict.fromkeys(_WAITING, _waits_in_a_test),
    "S610": _no_django,
    "S611": _no_django,
}
