"""BTOOL-30 to -33: searching the worktree with the real git."""

from __future__ import annotations

import os
import sys

import pytest

from outpost_lsp.domain.permission import Resources
from outpost_lsp.tools.search import search_tools
from tests.tools.conftest import Workplace, by_name

TOOLS = search_tools()


async def found(workplace: Workplace, pattern: str, **fields) -> str:
    output = await workplace.call(TOOLS, "search", pattern=pattern, **fields)
    assert not output.is_error, output
    return output.content


@pytest.fixture
def files(workplace) -> Workplace:
    workplace.write(".gitignore", "ignored/\n")
    workplace.write("a.py", "value = 12\nother = value\n")
    workplace.write("lib/b.py", "VALUE = 3\r\n")
    workplace.repository.commit()
    workplace.write("lib/new.txt", "a new value: 7\n")
    workplace.write("ignored/c.py", "value = 1\n")
    workplace.write("image.bin", b"value\0\1")
    return workplace


async def test_BTOOL_30_tracked_and_new_text_files_are_searched(files):
    assert await found(files, "value") == "a.py:1:value = 12\na.py:2:other = value\nlib/new.txt:1:a new value: 7"
    assert (
        await found(files, "value", ignore_case=True, path="lib")
        == "lib/b.py:1:VALUE = 3\nlib/new.txt:1:a new value: 7"
    )


async def test_BTOOL_30_models_write_perl_expressions(files):
    assert await found(files, r"=\s\d{2}\b") == "a.py:1:value = 12"


@pytest.mark.parametrize(
    ("fields", "paths"),
    [
        ({"glob": "*.py"}, ["a.py", "lib/b.py"]),
        ({"glob": "*.py", "path": "lib"}, ["lib/b.py"]),
        ({"glob": "lib/*.py"}, ["lib/b.py"]),
        ({"glob": "lib/*.py", "path": "lib"}, ["lib/b.py"]),
        ({"glob": "**/*.txt"}, ["lib/new.txt"]),
        ({"path": "a.py"}, ["a.py"]),
        ({"path": "a.py", "glob": "*.py"}, ["a.py"]),
        ({"path": "./lib/"}, ["lib/b.py", "lib/new.txt"]),
    ],
)
async def test_BTOOL_31_globs_and_paths_limit_the_search(files, fields, paths):
    text = await found(files, "value", ignore_case=True, **fields)
    assert sorted({line.split(":")[0] for line in text.split("\n")}) == paths


async def test_BTOOL_31_a_path_is_a_name_and_no_pattern(workplace):
    workplace.write("[a]*/x.py", "value\n")
    workplace.write("ab/x.py", "value\n")
    assert await found(workplace, "value", path="[a]*") == "[a]*/x.py:1:value"
    assert await found(workplace, "value", path="[a]*", glob="*.py") == "[a]*/x.py:1:value"


async def test_BTOOL_32_no_match_is_a_plain_sentence(files):
    assert await found(files, "nowhere") == "No match."
    assert await found(files, "nowhere", path="lib") == "No match below lib."
    assert await found(files, "value", path="no/such") == "No match below no/such."


async def test_BTOOL_32_an_invalid_expression_is_a_tool_error_with_gits_words(files):
    output = await files.call(TOOLS, "search", pattern="(")
    assert output.is_error
    assert "missing" in output.content or "parenthes" in output.content


async def test_BTOOL_32_the_rest_is_counted(workplace):
    workplace.write("a.txt", "x\n" * 205)
    lines = (await found(workplace, "x")).split("\n")
    assert len(lines) == 201
    assert lines[-1] == "[5 more matches]"
    workplace.write("a.txt", "x\n" * 4)
    assert (await found(workplace, "x", max_results=3)).endswith("[1 more match]")
    assert (await found(workplace, "x", max_results=4)).endswith("a.txt:4:x")


async def test_BTOOL_33_counting_ends_and_says_at_least(workplace):
    workplace.write("a.txt", "x\n" * 30_000)
    lines = (await found(workplace, "x", max_results=1)).split("\n")
    assert lines == ["a.txt:1:x", "[at least 10000 more matches]"]


async def test_BTOOL_33_REL_16_a_long_line_is_cut(workplace):
    workplace.write("a.txt", "x" * 501 + "\n")
    assert await found(workplace, "x") == f"a.txt:1:{'x' * 500} [1 more characters]"
    workplace.write("a.txt", "x" * 5_000_000 + "\n")
    text = await found(workplace, "x")
    assert len(text) < 1_000
    assert text.startswith("a.txt:1:xxx")


async def test_a_pattern_that_looks_like_an_option_is_a_pattern(workplace):
    workplace.write("a.txt", "--output=x\n")
    assert await found(workplace, "--output=x") == "a.txt:1:--output=x"
    assert not (workplace.repository.top / "x").exists()


async def test_odd_names_are_shown_as_they_are(workplace):
    workplace.write("é :1: #.txt", "x\n")
    assert await found(workplace, "x") == "é :1: #.txt:1:x"
    workplace.write("line\nfeed.txt", "x\ny\nx\n")
    assert await found(workplace, "x", glob="*feed.txt") == "line\nfeed.txt:1:x\nline\nfeed.txt:3:x"
    assert await found(workplace, "x", glob="*feed.txt", max_results=1) == "line\nfeed.txt:1:x\n[1 more match]"


@pytest.mark.skipif(sys.platform == "darwin", reason="its file systems have no such names")
async def test_a_file_whose_name_is_no_text_is_counted_and_shown_under_no_other_name(workplace):
    workplace.write(os.fsdecode(b"raw\xffbyte.txt"), "x\nx\n")
    note = "[not shown: 2 in files whose names are no UTF-8]"
    assert await found(workplace, "x") == f"No match.\n{note}"
    workplace.write("a.txt", "x\n")
    assert await found(workplace, "x") == f"a.txt:1:x\n{note}"


async def test_a_path_outside_is_refused(workplace):
    output = await workplace.call(TOOLS, "search", pattern="x", path="../x")
    assert output.is_error
    assert "../x" in output.content


def test_the_tool_is_read_only_and_declares_its_path():
    tool = by_name(TOOLS, "search")
    assert tool.read_only
    assert tool.resources_of({"pattern": "x"}) == Resources((".",))
    assert tool.resources_of({"pattern": "x", "path": "lib"}) == Resources(("lib",))
    assert "Perl" in tool.description
