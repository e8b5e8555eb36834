"""The rules of the offline review, run for real: ruff as a process, and rules of our own for any language."""

from __future__ import annotations

import json
import os
import string
from collections.abc import Sequence
from pathlib import Path

import pytest

from outpost_lsp.errors import OutpostError
from outpost_lsp.models.rule_based.analysis import (
    RawFinding,
    SourceText,
    brought_by_change,
    changed_lines,
)
from outpost_lsp.reviews.rules import RuleAnalyser, ruff
from outpost_lsp.reviews.rules.python_compare import lost_by_change
from outpost_lsp.reviews.rules.table import CONFIDENCE, RULES

TOKEN = "gh" + "p_" + "x7Kq2Lw9Zr4Tn8Vb3Yc6Hd1Js5Fg0Pm4Qe7R"
ANALYSE = RuleAnalyser()


async def said(text: str, path: str = "a.py", *, doubtful: bool = False) -> list[RawFinding]:
    [found] = await ANALYSE([SourceText(path, text)])
    assert all(finding.quote in text for finding in found), "no quote that is not there"
    return [finding for finding in found if doubtful or not finding.only_new]


async def codes(text: str, path: str = "a.py", *, doubtful: bool = False) -> list[str]:
    return [finding.code for finding in await said(text, path, doubtful=doubtful)]


async def brought(before: str, after: str, path: str = "a.py") -> list[RawFinding]:
    old, new = await ANALYSE([SourceText(path, before), SourceText(path, after)])
    found, _ = brought_by_change(new, old, changed_lines(before, after))
    return [*found, *lost_by_change(SourceText(path, before), SourceText(path, after))]


async def news(before: str, after: str, path: str = "a.py") -> list[str]:
    return [finding.code for finding in await brought(before, after, path)]


async def test_every_rule_of_the_table_is_known_to_ruff() -> None:
    assert set(RULES) <= await ruff._known_rules()


async def test_a_rule_that_ruff_dropped_does_not_fail_the_review() -> None:
    analyser = ruff.Ruff()
    analyser.selected = ("F821", "S320")
    [found] = await analyser.findings([SourceText("a.py", "print(nowhere)\n")])
    assert [item.finding.rule for item in found] == ["F821"]
    assert analyser.selected == ("F821",)


async def test_a_finding_says_the_consequence_and_quotes_whole_lines() -> None:
    [found] = await said("def f(x):\n    return x + undefined_thing\n")
    assert found.title == "`undefined_thing` is not defined here: the line raises NameError when it runs"
    assert (found.code, found.rule, found.severity, found.line) == ("undefined-name", "F821", "error", 2)
    assert found.quote == "    return x + undefined_thing"
    assert "F821" in found.detail
    assert found.confidence == CONFIDENCE["error"] == 0.9


@pytest.mark.parametrize(("severity", "confidence"), [("error", 0.9), ("warning", 0.7), ("information", 0.5)])
async def test_confidence_is_fixed_per_severity(severity: str, confidence: float) -> None:
    texts = {
        "error": "def f():\n    assert (1, 'never')\n",
        "warning": "def f(x):\n    return eval(x)\n",
        "information": "def f(x):\n    exec(x)\n",
    }
    [found] = await said(texts[severity])
    assert (found.severity, found.confidence) == (severity, confidence)


async def test_a_safe_fix_of_ruff_becomes_the_replacement_of_the_quote() -> None:
    [found] = await said("def f(x):\n    x('😀é'); return x is 'é'  # keep\n")
    assert found.code == "is-literal"
    assert found.replacement == "    x('😀é'); return x == 'é'  # keep"


async def test_a_mutable_default_that_is_never_changed_is_in_doubt() -> None:
    text = "def f(a: dict[str, int], into: list[tuple[str, int]] = []) -> object:\n    {0}\n    return into\n"
    [changed] = await said(text.format("into.extend(a.items())"))
    assert (changed.code, changed.severity) == ("mutable-argument-default", "error")
    doubtful = text.format("print(into)").replace("return into", "return 1")
    assert await said(doubtful) == []
    [found] = await said(doubtful, doubtful=True)
    assert found.severity == "warning"


async def test_an_unsafe_fix_is_not_offered() -> None:
    found = await said("def f(x, items=[]):\n    items.append(x)\n    return items\n")
    assert [(finding.code, finding.replacement) for finding in found] == [("mutable-argument-default", None)]


async def test_the_configuration_of_a_repository_has_no_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ruff.toml").write_text('exclude = ["**"]\nlint.ignore = ["ALL"]\n')
    (tmp_path / "pyproject.toml").write_text('[tool.ruff]\nextend = "/nowhere.toml"\n')
    (tmp_path / ".gitignore").write_text("*\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RUFF_CONFIG", str(tmp_path / "ruff.toml"))
    monkeypatch.setenv("RUFF_OUTPUT_FILE", str(tmp_path / "stolen.json"))
    assert await codes("print(undefined_thing)\n") == ["undefined-name"]
    assert not (tmp_path / "stolen.json").exists()


async def test_a_suppression_comment_on_the_line_is_honoured() -> None:
    assert await codes("def f(x):\n    return x is 'a'  # noqa: F632\n") == []
    assert await codes("def f(x):\n    return eval(x)  # nosec\n") == []
    assert await codes("def f(x):\n    return xyzzy  # pylint: disable=undefined-variable\n") == []
    assert await codes("# ruff: noqa\ndef f(x):\n    return xyzzy\n") == []


async def test_names_of_files_cannot_lead_out_of_the_private_folder(tmp_path: Path) -> None:
    sources = [SourceText(path, "print(undefined_thing)\n") for path in ("../../x.py", "/etc/y.py", "a\nb.py", "-c.py")]
    found = await ANALYSE(sources)
    assert [[finding.code for finding in findings] for findings in found] == [["undefined-name"]] * 4


async def test_nothing_is_left_in_the_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert await codes("print(undefined_thing)\n") == ["undefined-name"]
    assert list(tmp_path.iterdir()) == []


async def test_a_ruff_that_cannot_run_is_a_fault(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = tmp_path / "ruff"
    broken.write_text("#!/bin/sh\necho no such luck >&2\nexit 7\n")
    broken.chmod(0o755)
    monkeypatch.setattr(ruff, "_binary", lambda: str(broken))
    with pytest.raises(OutpostError, match="no such luck") as caught:
        await RuleAnalyser()([SourceText("a.py", "x = 1\n")])
    assert caught.value.code == "process"


async def test_an_answer_in_another_form_is_a_fault(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    other = tmp_path / "ruff"
    listing = json.dumps([{"code": "F821", "status": "Stable"}])
    other.write_text(f"#!/bin/sh\ncase $1 in rule) echo '{listing}';; *) echo '[{{\"odd\": 1}}]';; esac\n")
    other.chmod(0o755)
    monkeypatch.setattr(ruff, "_binary", lambda: str(other))
    with pytest.raises(OutpostError, match="another form"):
        await RuleAnalyser()([SourceText("a.py", "x = 1\n")])


async def test_one_undefined_name_in_many_lines_is_one_finding() -> None:
    [found] = await said("def f(p):\n    a = os.stat(p)\n    b = os.stat(p)\n    return a, b, os.sep\n")
    assert found.line == 2
    assert "The same in lines 3, 4." in found.detail


async def test_rules_that_meet_on_one_place_are_one_finding() -> None:
    [found] = await said("def f(x):\n    try:\n        x()\n    except:\n        pass\n")
    assert found.code == "bare-except"
    assert "swallowed" in found.described


async def test_a_lesser_rule_that_was_merged_away_is_still_known_to_have_been_there() -> None:
    before = "def f(x):\n    try:\n        x()\n    except:\n        pass\n"
    assert await news(before, before.replace("except:", "except Exception:")) == []


async def test_a_new_fault_beside_an_old_one_on_the_same_line_is_news() -> None:
    before = "def f(x):\n    return x + old_thing\n"
    [found] = await brought(before, before.replace("old_thing", "old_thing + new_thing"))
    assert found.title.startswith("`new_thing` is not defined")
    assert "old_thing" not in found.described
    [both] = await said(before.replace("old_thing", "old_thing + new_thing"))
    assert "also here: `new_thing`" in both.described.lower()


async def test_two_faults_on_one_line_at_different_places_stay_two() -> None:
    assert await codes("def f(x):\n    return x is 'a', undefined_thing\n") == ["is-literal", "undefined-name"]


async def test_a_file_that_does_not_parse_is_one_finding() -> None:
    [found] = await said("def f(:\n    return undefined_thing\nclass\n")
    assert (found.code, found.line) == ("does-not-parse", 1)


async def test_carriage_returns_and_form_feeds_do_not_move_the_quote() -> None:
    text = "x = 1\ry = 2\n\x0c\ndef f():\n    return undefined_thing\n"
    [found] = await said(text)
    assert found.quote == "    return undefined_thing"


async def test_a_script_without_suffix_is_read_as_what_its_first_line_says() -> None:
    assert await codes("#!/usr/bin/env python3\nprint(undefined_thing)\n", "bin/tool") == ["undefined-name"]
    assert await codes("#!/bin/sh\nprint undefined_thing\n", "bin/tool") == []


BASE = "import os\n\n\ndef size(path):\n    return os.stat(path).st_size\n\n\ndef name(path):\n    return os.path.basename(path)\n"


async def test_a_removed_import_is_found_in_the_lines_it_breaks() -> None:
    [found] = await brought(BASE, BASE.removeprefix("import os\n"))
    assert (found.code, found.line) == ("undefined-name", 4)


async def test_a_removed_import_is_found_beside_a_star_import() -> None:
    before = f"from m import *\n{BASE}"
    assert await news(before, before.replace("import os\n", "")) == ["undefined-name"]


async def test_what_the_base_has_too_is_not_news_wherever_it_moved() -> None:
    before = "def f(x):\n    return x is 'a'\n\n\ndef g():\n    return 1\n"
    after = "def g():\n    return 1\n\n\nclass C:\n    def f(self, x):\n        return x is 'a'\n"
    assert await news(before, after) == []


async def test_a_second_copy_of_an_old_fault_is_news() -> None:
    before = "def f(x):\n    return x is 'a'\n"
    after = before + "\n\ndef g(x):\n    return x is 'a'\n"
    [found] = await brought(before, after)
    assert found.line == 6


async def test_an_old_fault_on_an_edited_line_stays_old() -> None:
    assert await news("def f(x):\n    return x is 'a'\n", "def f(x):\n    return (x is 'a')  # really\n") == []


async def test_mending_a_file_that_did_not_parse_brings_nothing_up() -> None:
    before = "def f(x)\n    return x\n\n\ndef g(x):\n    return x is 'a'\n"
    assert await news(before, before.replace("f(x)\n", "f(x):\n")) == []


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("def f(a, b):\n    return a\n\n\nf(1)\n", "wrong-arguments"),
        ("def f(a, b=1):\n    return a\n\n\nf(1, c=2)\n", "wrong-arguments"),
        ("class C:\n    def __init__(self, a):\n        self.a = a\n\n\nC()\n", "wrong-arguments"),
        ("class C:\n    def f(self, a):\n        return a\n\n    def g(self):\n        return self.f()\n", "wrong-arguments"),
        ("import asyncio\n\n\nasync def f():\n    asyncio.sleep(1)\n", "not-awaited"),
        ("async def f():\n    return 1\n\n\nasync def g():\n    f()\n", "not-awaited"),
        ("def ready():\n    return 1\n\n\nif ready:\n    print(1)\n", "function-as-condition"),
        ("def f():\n    print(1)\n\n\nx = f()\n", "no-return-value"),
        ("def f(x):\n    return x\n    x = 2\n    print(x)\n", "unreachable-code"),
        ("try:\n    pass\nexcept Exception:\n    x = 1\nexcept ValueError:\n    x = 2\n", "unreachable-handler"),
        ("def f(x):\n    if x == 1:\n        return 1\n    elif x == 1:\n        return 2\n", "repeated-condition"),
        ("def f(a, b):\n    return a and a\n", "repeated-operand"),
        ("def f(a, b):\n    return a - a\n", "same-operands"),
        ("def f(x):\n    return x[len(x)]\n", "index-beyond-end"),
        ("def f(x):\n    for i in range(len(x) + 1):\n        print(x[i])\n", "index-beyond-end"),
        ("def f(x) -> int:\n    y = x + 1\n    print(y)\n    x.y = y\n", "missing-return"),
        ("class C:\n    def __init__(self):\n        self.count = 1\n\n    def f(self):\n        return self.cuont\n", "unset-attribute"),
        ("x = [2, 1]\nx = x.sort()\n", "none-of-a-change"),
        ("def f(x):\n    sorted(x)\n    return x\n", "result-thrown-away"),
        ("class C:\n    def f(self):\n        return 1\n\n    def f(self):\n        return 2\n", "repeated-method"),
    ],
)  # fmt: skip
async def test_rules_of_our_own_for_python_find_their_fault(text: str, code: str) -> None:
    assert code in await codes(text)


@pytest.mark.parametrize(
    "text",
    [
        "def f(*a, **k):\n    return a, k\n\n\nf(1, 2, c=3)\n",
        "def f(a):\n    return a\n\n\ndef g(f):\n    return f(1, 2)\n",
        "import functools\n\n\n@functools.cache\ndef f(a):\n    return a\n\n\nf(1, 2)\n",
        "class B:\n    pass\n\n\nclass C(B):\n    def f(self):\n        return self.cuont\n\n    def count(self):\n        return 1\n",
        "class C:\n    def __getattr__(self, name):\n        return name\n\n    def count(self):\n        return self.cuont\n",
        "def f():\n    raise NotImplementedError\n\n\nx = f()\n",
        "def f():\n    return\n    yield\n",
        "def f(x):\n    for i in range(len(x) + 1):\n        if i < len(x) and x[i]:\n            print(i)\n",
        "from typing import Protocol\n\n\nclass P(Protocol):\n    def f(self) -> int: ...\n",
        "class P:\n    @property\n    def f(self):\n        return 1\n\n    @f.setter\n    def f(self, value):\n        self.v = value\n",
        "async def f():\n    return 1\n\n\nasync def g():\n    x = f()\n    await x\n",
    ],
)  # fmt: skip
async def test_rules_of_our_own_for_python_are_silent_on_what_is_meant(text: str) -> None:
    assert await codes(text) == []


@pytest.mark.parametrize(
    ("before", "after", "code"),
    [
        ("def f(x):\n    return g(x)\n", "def f(x):\n    g(x)\n", "lost-return"),
        ("async def f(x):\n    return await x.g()\n", "async def f(x):\n    return x.g()\n", "lost-await"),
        ("def f(x):\n    raise Odd(x)\n", "def f(x):\n    Odd(x)\n", "lost-raise"),
        ("def f(g):\n    x = g()\n    return x\n", "def f(g):\n    x = g\n    return x\n", "lost-call"),
        (
            "class C(B):\n    def __init__(self):\n        super().__init__()\n        self.x = 1\n",
            "class C(B):\n    def __init__(self):\n        self.x = 1\n",
            "lost-super-call",
        ),
        (
            "def f(x):\n    while True:\n        y = x.next()\n        if y:\n            break\n",
            "def f(x):\n    while True:\n        y = x.next()\n        if y:\n            pass\n",
            "lost-exit",
        ),
        (
            "def f(x):\n    for y in x:\n        z = y\n        if z:\n            return z\n    return 0\n",
            "def f(x):\n    for y in x:\n        z = y\n        return z\n    return 0\n",
            "loop-ends-at-once",
        ),
        (
            "class C(B):\n    def f(self):\n        return self.reader\n\n    def g(self):\n        return self.reader\n",
            "class C(B):\n    def f(self):\n        return self.raeder\n\n    def g(self):\n        return self.reader\n",
            "misspelt-attribute",
        ),
        (
            "class C:\n    def f(self, x):\n        self.total = x\n",
            "class C:\n    def f(self, x):\n        total = x\n",
            "lost-self",
        ),
        (
            "class C:\n    def f(self, x):\n        return x\n",
            "class C:\n    def f(x):\n        return x\n",
            "lost-self-parameter",
        ),
        ("def f(x):\n    return f'{x} items'\n", "def f(x):\n    return '{x} items'\n", "missing-f-string-syntax"),
        ("import os\n\nx = os.path.exists('a')\n", "import os\n\nx = os.path.exist('a')\n", "no-such-name"),
        ("X = [\n    'a',\n    'b',\n    'c',\n    'd',\n]\n", "X = [\n    'a',\n    'b'\n    'c',\n    'd',\n]\n", "lost-comma"),
        ("def f(x):\n    for y in x:\n        print(y)\n", "def f(x):\n    for x in x:\n        print(x)\n", "loop-variable-overrides-iterator"),
    ],
)  # fmt: skip
async def test_what_a_change_took_away_is_found_and_putting_it_back_is_not_news(
    before: str, after: str, code: str
) -> None:
    fillers = (
        "\n\ndef reader():\n    return Odd, g\n\n\nclass Odd:\n    pass\n\n\ndef g(x):\n    return x\n\n\nB = object\n"
    )
    found = await brought(before + fillers, after + fillers)
    assert code in {finding.code for finding in found}
    assert len({(finding.line, finding.quote) for finding in found}) >= 1
    assert await news(after + fillers, before + fillers) == []


@pytest.mark.parametrize("outside", ["def half(x):\n    return x / 2\n", "from sums import half\n", "half = abs\n"])
async def test_a_method_that_was_put_outside_of_its_class_has_lost_no_self(outside: str) -> None:
    before = "class C:\n    def f(self, x):\n        return self.half(x)\n"
    method = "\n    @staticmethod\n    def half(x):\n        return x / 2\n"
    after = f"{outside}\n\nclass C:\n    def f(self, x):\n        return half(x)\n"
    assert await news(before + method, after) == []
    assert "lost-self" in await news(f"{outside}\n\n{before}{method}", after + method)


async def test_a_function_made_synchronous_with_its_call_is_no_lost_await() -> None:
    before = "async def g():\n    return 1\n\n\nasync def f():\n    return await g()\n"
    after = "def g():\n    return 1\n\n\nasync def f():\n    return g()\n"
    assert await news(before, after) == []


async def test_several_calls_that_lose_their_await_at_once_are_taken_for_a_change_of_mind() -> None:
    before = "async def f(x, y):\n    a = await x.g()\n    b = await y.h()\n    return a, b\n"
    [one] = await brought(before, before.replace("await x.g()", "x.g()"))
    assert (one.code, one.severity) == ("lost-await", "warning")
    both = await brought(before, before.replace("await ", ""))
    assert {(found.code, found.severity) for found in both} == {("lost-await", "information")}


async def test_unresolved_merges_are_found_once_for_each_place() -> None:
    text = "a = 1\n<<<<<<< HEAD\nb = 1\n=======\nb = 2\n>>>>>>> feature\n"
    for path in ("a.py", "a.go", "a.unknown", "package-lock.json"):
        assert await codes(text, path) == ["merge-conflict-marker"], path
    assert await codes(text + text, "a.go") == ["merge-conflict-marker"] * 2


async def test_underlined_titles_are_no_merges() -> None:
    assert await codes("Title\n=======\n\ntext\n", "a.md") == []
    assert await codes("Title\n=======\n", "a.rst") == []
    assert await codes("```\n<<<<<<< HEAD\na\n=======\nb\n>>>>>>> x\n```\n", "a.md") == []
    assert await codes("<<<<<<< HEAD\na\n=======\nb\n>>>>>>> x\n", "a.md") == ["merge-conflict-marker"]


async def test_a_token_is_found_and_not_copied_into_the_finding() -> None:
    [found] = await said(f'KEY = "{TOKEN}"\n', "a.go")
    assert found.code == "secret-in-code"
    assert found.quote == 'KEY = "ghp_'
    assert TOKEN not in repr(found)


@pytest.mark.parametrize(
    "line",
    [
        "aws = AKIA" + "QYLPMN5HFIQR7XYZ",
        "url = postgres://app:" + "s3cr3tPasw0rd@db.internal.company.net/x",
        "xoxb-" + "318052749612-904417263385-Wq8LtZ2xKp9RbN4vYs7GhJ3m",
        'client_secret = "' + "kJ8s7Df6gH5jK4l3Zx2C" + '"',
        "sk-ant-api03-" + "".join(f"{letter}{index % 10}Z" for index, letter in enumerate(string.ascii_lowercase * 2))[:93],
    ],
)  # fmt: skip
async def test_well_known_forms_of_credentials_are_found(line: str) -> None:
    assert await codes(f"{line}\n", "settings.yaml") == ["secret-in-code"]


async def test_private_keys_are_found_and_their_words_alone_are_not() -> None:
    body = "\n".join("MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQ" + "DkX7f" * 2 for _ in range(3))
    begin, end = "-----BEGIN " + "PRIVATE KEY-----", "-----END " + "PRIVATE KEY-----"
    assert await codes(f"{begin}\n{body}\n{end}\n", "k.pem") == ["secret-in-code"]
    assert await codes(f"looks for '{begin}' in files\n", "k.txt") == []


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("poetry.lock", f'token = "{TOKEN}"'),
        (".env.example", f'token = "{TOKEN}"'),
        ("a.py", 'aws = "AKIAIOSFODNN7EXAMPLE"'),
        ("a.py", f'token = "gh{"p_"}{"x" * 36}"'),
        ("a.py", 'password = "correct horse battery"'),
        ("a.py", 'api_key = "settings.production.apikey"'),
        ("a.yaml", "url: postgres://user:password@localhost/db"),
        ("a.yaml", "url: postgres://user:${PASSWORD}@db.example.com/db"),
    ],
)
async def test_what_only_looks_like_a_credential_is_not_one(path: str, line: str) -> None:
    assert "secret-in-code" not in await codes(f"{line}\n", path, doubtful=True)


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("a.js", "  debugger;"),
        ("a.ts", "debugger"),
        ("a.rb", "    binding.pry"),
        ("a.py", "breakpoint()"),
        ("a.py", "import pdb; pdb.set_trace()"),
        ("a.php", "  xdebug_break();"),
        ("a.rs", "    dbg!(x);"),
        ("a.exs", "  IEx.pry"),
        ("a.cs", "  Debugger.Break();"),
        ("a.go", "\truntime.Breakpoint()"),
        ("src/a.test.ts", "  it.only('works', () => {})"),
    ],
)
async def test_debugger_statements_are_found_in_many_languages(path: str, line: str) -> None:
    [found] = await said(f"{line}\n", path)
    assert found.severity == "error"


async def test_the_word_debugger_elsewhere_is_no_statement() -> None:
    assert await codes("const debugger_enabled = true; // debugger;\nlog('debugger;')\n", "a.js") == []


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("a.json", '{"a": 1,\n "b": }\n'),
        ("a.json", '{"a": 1\n'),
        ("a.toml", "a = \n"),
        ("a.toml", "[x]\n[x]\n"),
    ],
)
async def test_data_that_does_not_parse_is_found(path: str, text: str) -> None:
    assert await codes(text, path) == ["does-not-parse"]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("tsconfig.json", '{ // why\n "a": 1, }\n'),
        (".vscode/settings.json", '{ // why\n "a": 1, }\n'),
        ("a.json", '{"a": 1} \n{"b": 2}\n'),
        ("cookie/a.json", '{"a": {{ value }} }\n'),
        ("a.json", "\ufeff{}\n"),
        ("a.json", ""),
    ],
)
async def test_dialects_of_json_are_left_alone(path: str, text: str) -> None:
    assert await codes(text, path) == []


async def test_a_comment_that_is_new_in_plain_json_is_found_against_the_base() -> None:
    assert await news('{"a": 1}\n', '{"a": 1} // why\n', "a.json") == ["does-not-parse"]


async def test_a_comma_too_many_is_quoted_where_it_stands_and_can_be_fixed() -> None:
    [found] = await brought('{\n "a": 1\n}\n', '{\n "a": 1,\n}\n', "a.json")
    assert (found.quote, found.replacement) == (' "a": 1,', ' "a": 1')
    [missing] = await said('{\n "a": 1\n "b": 2\n}\n', "a.json")
    assert missing.quote == ' "a": 1'


async def test_a_key_that_stands_twice_in_json_is_found() -> None:
    assert await codes('{\n "a": 1,\n "a": 2\n}\n', "a.json") == ["repeated-key"]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("a.js", "function f(a) {\n  return `${a}` + '}' + /[}]/.source; // }\n}\n"),
        ("a.go", "func f() string {\n\treturn `}` + \"{\" + string('}')\n}\n"),
        ("a.rs", "fn f<'a>(x: &'a str) -> char {\n    '{'\n}\n"),
        ("a.java", "class A {\n  char c = '}'; /* } */\n}\n"),
        ("a.css", "a::after {\n  content: '}';\n}\n"),
        ("a.c", 'int main(void) {\n  puts("}");\n  return 0;\n}\n'),
    ],
)
async def test_a_lost_bracket_is_found_against_the_base(path: str, text: str) -> None:
    assert await codes(text, path, doubtful=True) == []
    assert await news(text, text.rstrip("}\n") + "\n", path) == ["does-not-parse"]


@pytest.mark.parametrize(
    ("path", "line", "code"),
    [
        ("a.js", "if (x = 5) {}", "assignment-as-condition"),
        ("a.c", "if (done = 1) { stop(); }", "assignment-as-condition"),
        ("a.java", "if (a.equals(b));", "empty-statement"),
        ("a.ts", "if (user.id === user.id) {}", "self-comparison"),
        ("a.js", "if (x === NaN) {}", "compare-with-nan"),
        ("a.js", "if (typeof x === 'strng') {}", "typeof-compared-wrongly"),
        ("a.js", "if (typeof x === undefined) {}", "typeof-compared-wrongly"),
        ("a.java", 'if (name == "x") {}', "text-compared-by-identity"),
        ("a.js", "total =+ 5;", "backwards-operator"),
        ("a.sh", 'rm -rf "$BUILD"/', "removes-from-the-top"),
    ],
)
async def test_slips_that_a_line_shows_are_found_in_other_languages(path: str, line: str, code: str) -> None:
    assert await codes(f"{line}\n", path) == [code]


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("a.c", "if ((p = next(q)) != NULL) {}"),
        ("a.js", "const f = (a) => a === a >>> 0;"),
        ("a.cpp", "if (ISD == ISD::UREM) {}"),
        ("a.js", "// if (x = 5)"),
        ("a.js", "log('if (x = 5)')"),
        ("a.js", "if (typeof x === 'undefined') {}"),
        ("a.js", "if (a.b === b) {}"),
        ("a.sh", 'rm -rf "${BUILD:?}"/'),
    ],
)
async def test_what_only_looks_like_such_a_slip_is_left_alone(path: str, line: str) -> None:
    assert await codes(f"{line}\n", path) == []


@pytest.mark.parametrize(
    "text",
    [
        "class C:\n    def analyse(text):\n        return text\n",
        "def f(x, cache={}):\n    return cache.get(x)\n",
        "for value in [1]:\n    for value in [value]:\n        print(value)\n",
        "fs = [lambda: i for i in range(3)]\n",
        "TimeoutError = TimeoutError\n",
        "def f(x):\n    return x != x\n",
        "def f(x):\n    x.loaded\n    return x\n",
    ],
)
async def test_what_is_mostly_meant_is_kept_for_comparisons(text: str) -> None:
    assert await codes(text) == []


async def test_blocking_calls_count_less_in_tests() -> None:
    text = "import time\n\n\nasync def f():\n    time.sleep(1)\n"
    assert await codes(text, "pkg/a.py") == ["blocking-sleep-in-async-function"]
    assert await codes(text, "tests/test_a.py") == []


async def test_a_shell_that_is_only_a_word_of_settings_is_none() -> None:
    assert await codes('def f(settings, a):\n    return settings(a, shell="confined")\n') == []
    assert await codes("def f(run_it, x):\n    return run_it(x, shell=True)\n") == ["call-with-shell-equals-true"]


async def test_a_work_list_may_grow_while_it_is_iterated() -> None:
    text = "def f(x):\n    for y in x:\n        if y:\n            x.{0}\n"
    assert await codes(text.format("append(1)"), doubtful=True) == []
    assert await codes(text.format("remove(y)")) == ["loop-iterator-mutation"]


async def test_many_texts_are_answered_in_their_order() -> None:
    sources: Sequence[SourceText] = [
        SourceText(f"d{number}/m.py", f"print(name_{number})\n" if number % 2 else "x = 1\n") for number in range(300)
    ]
    found = await ANALYSE(sources)
    assert [[finding.key for finding in findings] for findings in found] == [
        [f"name_{number}"] if number % 2 else [] for number in range(300)
    ]


async def test_the_analyser_survives_texts_that_break_parsers() -> None:
    deep = "(" * 5_000 + ")" * 5_000
    texts = [
        SourceText("a.py", f"x = {deep}\n"),
        SourceText("b.py", "x = '\0'\n"),
        SourceText("c.json", "[" * 100_000),
        SourceText("d.toml", "a = " + "[" * 5_000),
        SourceText("e.py", "\ud800 = 1\n"),
        SourceText("f.js", "`" * 10_001),
        SourceText("g.py", ""),
    ]
    assert len(await ANALYSE(texts)) == len(texts)
    assert os.getpid()
