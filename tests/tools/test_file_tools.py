"""BTOOL-01 to -16: reading and listing files of the worktree."""

from __future__ import annotations

import os
import sys

import pytest

from outpost_lsp.domain.permission import Resources
from outpost_lsp.domain.tool import InvalidInputError
from outpost_lsp.tools.files import file_tools
from tests.tools.conftest import Workplace, by_name

TOOLS = file_tools()


async def read(workplace: Workplace, path: str, **fields) -> str:
    output = await workplace.call(TOOLS, "read_file", path=path, **fields)
    assert not output.is_error, output
    return output.content


async def refused(workplace: Workplace, name: str, **fields) -> str:
    output = await workplace.call(TOOLS, name, **fields)
    assert output.is_error, output
    return output.content


async def test_BTOOL_10_lines_are_numbered_and_aligned(workplace):
    workplace.write("a.txt", "".join(f"line {number}\n" for number in range(1, 11)))
    text = await read(workplace, "a.txt")
    assert text.split("\n")[0] == " 1\tline 1"
    assert text.split("\n")[9] == "10\tline 10"
    assert len(text.split("\n")) == 10


async def test_BTOOL_10_the_width_is_that_of_the_last_shown_number(workplace):
    workplace.write("a.txt", "x\n" * 200)
    assert await read(workplace, "a.txt", offset=8, limit=2) == "8\tx\n9\tx\n[lines 8-9 of 200]"
    assert (await read(workplace, "a.txt", offset=9, limit=2)).startswith(" 9\tx\n10\tx\n")


async def test_BTOOL_10_carriage_returns_of_line_ends_are_not_shown(workplace):
    workplace.write("a.txt", "one\r\ntwo\r\n")
    assert await read(workplace, "a.txt") == "1\tone\n2\ttwo"


async def test_BTOOL_11_what_is_not_shown_is_counted(workplace):
    workplace.write("a.txt", "one\ntwo\nthree")
    assert await read(workplace, "a.txt", offset=2, limit=1) == "2\ttwo\n[lines 2-2 of 3]"
    assert await read(workplace, "a.txt", offset=2) == "2\ttwo\n3\tthree\n[lines 2-3 of 3]"
    assert await read(workplace, "a.txt", limit=3) == "1\tone\n2\ttwo\n3\tthree"


async def test_BTOOL_11_an_empty_file_says_so(workplace):
    workplace.write("a.txt", "")
    workplace.write("b.txt", "\ufeff")
    workplace.write("c.txt", "\n")
    assert await read(workplace, "a.txt") == "(empty file)"
    assert await read(workplace, "b.txt") == "(empty file)"
    assert await read(workplace, "c.txt") == "1\t"


async def test_BTOOL_12_an_offset_beyond_the_end_names_the_number_of_lines(workplace):
    workplace.write("a.txt", "one\ntwo\n")
    assert await refused(workplace, "read_file", path="a.txt", offset=3) == "a.txt has 2 lines; there is no line 3"


async def test_BTOOL_12_a_long_line_is_cut_with_a_mark(workplace):
    workplace.write("a.txt", "x" * 2_000 + "\n" + "y" * 2_001 + "\n")
    text = await read(workplace, "a.txt")
    assert text == f"1\t{'x' * 2_000}\n2\t{'y' * 2_000} [1 more characters]"


async def test_a_long_file_is_shown_as_far_as_it_fits_and_says_where_it_stopped(workplace):
    workplace.write("a.txt", ("x" * 1_000 + "\n") * 500)
    text = await read(workplace, "a.txt")
    assert len(text) < 100_000
    last = int(text.rsplit("lines 1-")[1].split(" ")[0])
    assert text.endswith(f"[lines 1-{last} of 500]")
    assert (await read(workplace, "a.txt", offset=last + 1)).lstrip().startswith(f"{last + 1}\t")


async def test_BTOOL_13_REL_16_a_large_file_names_size_and_limit(workplace):
    workplace.write("a.txt", b"x" * 4_194_305)
    text = await refused(workplace, "read_file", path="a.txt")
    assert "4194305" in text
    assert "4194304" in text
    workplace.write("b.txt", b"x" * 4_194_304)
    assert "more characters]" in await read(workplace, "b.txt")


async def test_BTOOL_13_a_binary_file_says_so(workplace):
    workplace.write("a.bin", b"x" * 7_999 + b"\0")
    assert "binary" in await refused(workplace, "read_file", path="a.bin")
    workplace.write("b.bin", b"x" * 8_000 + b"\0\n")
    assert not (await workplace.call(TOOLS, "read_file", path="b.bin")).is_error


async def test_what_is_not_utf8_is_read_all_the_same(workplace):
    workplace.write("a.txt", b"caf\xe9\n")
    assert await read(workplace, "a.txt") == "1\tcaf\ufffd"


@pytest.mark.parametrize(
    "path", ["../x", "/etc/passwd", "a/../../x", ".git/config", "C:\\x", "sub/.GIT/config", "a\0b"]
)
async def test_BTOOL_01_BTOOL_04_paths_outside_are_refused_by_name(workplace, path):
    text = await refused(workplace, "read_file", path=path)
    assert path in text or repr(path) in text
    assert (await workplace.call(TOOLS, "list_files", path=path)).is_error


async def test_BTOOL_01_spellings_of_one_path(workplace):
    file = workplace.write("sub/a.txt", "x\n")
    for path in ("sub/a.txt", "./sub//a.txt", "sub\\a.txt", "other/../sub/a.txt", str(file)):
        assert await read(workplace, path) == "1\tx"


async def test_BTOOL_02_a_folder_and_a_missing_file_are_tool_errors(workplace):
    workplace.write("sub/a.txt", "x\n")
    assert "sub" in await refused(workplace, "read_file", path="sub")
    assert "no/such" in await refused(workplace, "read_file", path="no/such")


async def test_BTOOL_03_links_are_read_inside_and_refused_outside(workplace, tmp_path):
    (tmp_path / "secret.txt").write_text("secret\n")
    workplace.write("real/a.txt", "x\n")
    top = workplace.repository.top
    (top / "inside").symlink_to("real/a.txt")
    (top / "folder").symlink_to("real")
    (top / "outside").symlink_to(tmp_path / "secret.txt")
    (top / "away").symlink_to(tmp_path)
    assert await read(workplace, "inside") == "1\tx"
    assert await read(workplace, "folder/a.txt") == "1\tx"
    for path in ("outside", "away/secret.txt"):
        assert "secret\n" not in await refused(workplace, "read_file", path=path)


async def test_BTOOL_14_tracked_and_new_files_are_listed_and_ignored_ones_are_not(workplace):
    workplace.write(".gitignore", "*.log\n")
    workplace.write("b.py", "")
    workplace.write("a/c.py", "")
    workplace.repository.commit()
    workplace.write("a/new.txt", "")
    workplace.write("a/x.log", "")
    assert (await workplace.call(TOOLS, "list_files")).content == ".gitignore\na/c.py\na/new.txt\nb.py"
    assert (await workplace.call(TOOLS, "list_files", path="a")).content == "a/c.py\na/new.txt"
    assert (await workplace.call(TOOLS, "list_files", path="b.py")).content == "b.py"


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("*.py", "a/b/c.py\na/d.py\ne.py"),
        ("a/*.py", "a/d.py"),
        ("a/**", "a/b/c.py\na/d.py"),
        ("**/*.py", "a/b/c.py\na/d.py\ne.py"),
        ("?.py", "a/b/c.py\na/d.py\ne.py"),
        ("D.py", "No files match D.py."),
        ("*.{py,txt}", "No files match *.{py,txt}."),
    ],
)
async def test_BTOOL_14_a_pattern_is_matched_with_the_whole_path_or_without_a_slash_with_the_name(
    workplace, pattern, found
):
    for path in ("a/b/c.py", "a/d.py", "e.py", "f.txt"):
        workplace.write(path, "")
    assert (await workplace.call(TOOLS, "list_files", pattern=pattern)).content == found


async def test_BTOOL_15_more_than_a_thousand_are_counted(workplace):
    for number in range(1_003):
        workplace.write(f"many/{number:05}", "")
    lines = (await workplace.call(TOOLS, "list_files", path="many")).content.split("\n")
    assert lines[999:] == ["many/00999", "[3 more files]"]


async def test_BTOOL_15_nothing_is_a_plain_sentence(workplace):
    assert (await workplace.call(TOOLS, "list_files")).content == "No files."
    missing = await workplace.call(TOOLS, "list_files", path="no/such", pattern="*.py")
    assert missing.content == "No files below no/such match *.py."
    assert not missing.is_error


async def test_BTOOL_16_deleted_files_are_left_out(workplace):
    workplace.write("a", "")
    workplace.write("b", "")
    workplace.repository.commit()
    (workplace.repository.top / "a").unlink()
    assert (await workplace.call(TOOLS, "list_files")).content == "b"


@pytest.mark.skipif(sys.platform == "darwin", reason="its file systems have no such names")
async def test_BTOOL_14_files_whose_names_are_no_text_are_counted_and_the_reason_is_told(workplace):
    async def listed(**fields) -> str:
        output = await workplace.call(TOOLS, "list_files", **fields)
        assert not output.is_error
        return output.content

    workplace.write(os.fsdecode(b"old\xff.py"), "x\n")
    workplace.repository.commit()
    one = "[not shown: 1 file with a name that is no UTF-8]"
    assert await listed() == f"No files.\n{one}"
    workplace.write("a.py", "")
    workplace.write(os.fsdecode(b"sub/\xe9/new.txt"), "x\n")
    assert await listed() == "a.py\n[not shown: 2 files with a name that is no UTF-8]"
    assert await listed(pattern="*.py") == f"a.py\n{one}"
    assert await listed(path="sub") == f"No files below sub.\n{one}"
    assert await listed(path="a.py") == "a.py"


def test_the_tools_are_read_only_and_declare_their_paths():
    assert all(tool.read_only for tool in TOOLS.tools)
    assert by_name(TOOLS, "read_file").resources_of({"path": "a"}) == Resources(("a",))
    assert by_name(TOOLS, "list_files").resources_of({}) == Resources((".",))
    assert by_name(TOOLS, "list_files").resources_of({"path": "a"}) == Resources(("a",))


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"path": ""},
        {"path": "a", "offset": 0},
        {"path": "a", "limit": 2_001},
        {"path": "a", "limit": True},
        {"path": "a", "x": 1},
    ],
)
def test_the_input_of_read_file_is_checked(fields):
    with pytest.raises(InvalidInputError):
        by_name(TOOLS, "read_file").validated(fields)
