"""Lines of keys in TOML, for faults that point."""

from __future__ import annotations

import tomllib
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from outpost_lsp.config.toml_lines import toml_lines

# The machine may be busy: how long a case takes says nothing here.
UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

TEXT = """\
# a comment = "with [brackets]"
default_model = "small" # [not.a.table]

[models.small]
name = "a = b"
price = { input = 1, output = 2 }
[agents."odd name".limits]
max_steps = 3
usage.output = 4

[agents.reviewer]
instructions = \"\"\"
[models.fake]
name = "no" \\\\
""quotes"" inside\"\"\"\"
tools = [
  "files", # first
  "search",
]
literal = '''
x = 1
'''
'quoted.key' = 1
[[agents.reviewer.permissions.rules]]
effect = "deny"
[[agents.reviewer.permissions.rules]]

effect = "ask"
[agents.reviewer.permissions.rules.more]
deep = 1
"""


def test_each_key_is_on_its_line() -> None:
    tomllib.loads(TEXT)
    lines = toml_lines(TEXT)
    expected: dict[tuple[str | int, ...], int] = {
        ("default_model",): 2,
        ("models",): 4,
        ("models", "small"): 4,
        ("models", "small", "name"): 5,
        ("models", "small", "price"): 6,
        ("agents", "odd name", "limits"): 7,
        ("agents", "odd name", "limits", "max_steps"): 8,
        ("agents", "odd name", "limits", "usage"): 9,
        ("agents", "odd name", "limits", "usage", "output"): 9,
        ("agents", "reviewer"): 11,
        ("agents", "reviewer", "instructions"): 12,
        ("agents", "reviewer", "tools"): 16,
        ("agents", "reviewer", "tools", 0): 17,
        ("agents", "reviewer", "tools", 1): 18,
        ("agents", "reviewer", "literal"): 20,
        ("agents", "reviewer", "quoted.key"): 23,
        ("agents", "reviewer", "permissions", "rules", 0): 24,
        ("agents", "reviewer", "permissions", "rules", 0, "effect"): 25,
        ("agents", "reviewer", "permissions", "rules", 1): 26,
        ("agents", "reviewer", "permissions", "rules", 1, "effect"): 28,
        ("agents", "reviewer", "permissions", "rules", 1, "more", "deep"): 30,
    }
    assert {path: lines.get(path) for path in expected} == expected
    assert not any("fake" in path for path in lines)


KEYS = st.sampled_from(["a", "b_c", "D-1", '"odd . name"', "'lit'", "e.f", '"\\u00e9"'])
VALUES = st.sampled_from(
    [
        "1",
        '"x = 1"',
        "'[a]'",
        "true",
        "[]",
        "[1, 2]",
        "[\n  1,\n  # ] comment\n  2,\n]",
        "{ p = 1, q = [2] }",
        '"""\nz = 1\n"""',
        "'''\n[t]\n'''",
        "1979-05-27T07:32:00Z",
        '"\\" # no comment"',
        '["]", "\\\\"]',
    ]
)


@UNHURRIED
@given(st.lists(st.tuples(KEYS, VALUES, st.sampled_from(["", " # end", "\n", "\n# c [x]"])), max_size=8), st.booleans())
def test_random_texts_are_followed_to_their_end(parts: list[tuple[str, str, str]], in_table: bool) -> None:
    text, expected, seen, line = "", {}, set(), 1
    if in_table:
        text, line = "[table]\n", 2
    for key, value, end in parts:
        if key in seen:
            continue
        seen.add(key)
        table = tomllib.loads(f"{key} = 0")
        path = ("table",) if in_table else ()
        while isinstance(table, dict):
            [(name, below)] = table.items()
            path, table = (*path, name), below
        expected[path] = line
        piece = f"{key} = {value}{end}\n"
        text += piece
        line += piece.count("\n")
    tomllib.loads(text)
    lines: dict[Any, int] = dict(toml_lines(text))
    assert {path: lines.get(path) for path in expected} == expected


@UNHURRIED
@given(st.text(alphabet="ab.=[]{}\"'\n# ,\\1", max_size=40))
def test_no_text_whatsoever_breaks_the_scan(text: str) -> None:
    toml_lines(text)
