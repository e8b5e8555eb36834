"""Which rules no test names: `python tests/rules_without_a_test.py [AREA ...]` prints them, one a line.

A test names a rule by its id, in the test's name (`test_ROUTE_30_...`, several ids may follow each other:
`test_SUB_10_11_...`), in a docstring or in a comment. Exit status 1 when a rule is left.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

TESTS = Path(__file__).parent
_ID = re.compile(r"\b([A-Z]{2,6})[-_](\d{2})(?!\d)((?:_\d{2}(?!\d))*)")
_NAME = re.compile(r"(?<=_)([A-Z]{2,6})_(\d{2})(?!\d)((?:_\d{2}(?!\d))*)")
_SPAN = re.compile(r"\b([A-Z]{2,6})[-_](\d{2}) to [-_]?(\d{2})\b")


def named_rules() -> set[str]:
    """Every rule id that stands somewhere under `tests/`."""
    named: set[str] = set()
    for path in (*TESTS.rglob("*.py"), *TESTS.parent.glob("vscode-extension/test/*.ts")):
        if path == Path(__file__):
            continue
        text = path.read_text("utf-8")
        for pattern in (_ID, _NAME):
            for area, first, more in pattern.findall(text):
                named.add(f"{area}-{first}")
                named.update(f"{area}-{number}" for number in more.split("_") if number)
        for area, first, last in _SPAN.findall(text):
            named.update(f"{area}-{number:02}" for number in range(int(first), int(last) + 1))
    return named


def missing(areas: set[str]) -> list[str]:
    """The rules of these areas (all for none) without a test, in the order of the list."""
    known = (TESTS / "rules.txt").read_text("utf-8").split()
    named = named_rules()
    return [rule for rule in known if rule not in named and (not areas or rule.split("-")[0] in areas)]


if __name__ == "__main__":
    left = missing(set(sys.argv[1:]))
    print("\n".join(left))
    sys.exit(1 if left else 0)
