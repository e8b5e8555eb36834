"""BTOOL-17 to -23 and U-41: edits touch what they name and nothing else."""

from __future__ import annotations

import os
import stat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outpost_lsp.domain.permission import Resources
from outpost_lsp.sandbox.files import WorktreeFilesOnDisk
from outpost_lsp.sandbox.lease import HostLease
from outpost_lsp.tools.edit import edit_tools, replaced
from tests.tools.conftest import Workplace, by_name

TOOLS = edit_tools()


async def done(workplace: Workplace, name: str, **fields) -> str:
    output = await workplace.call(TOOLS, name, **fields)
    assert not output.is_error, output
    return output.content


async def refused(workplace: Workplace, name: str, **fields) -> str:
    output = await workplace.call(TOOLS, name, **fields)
    assert output.is_error, output
    return output.content


async def test_BTOOL_17_a_file_is_written_exactly_as_given(workplace):
    assert await done(workplace, "write_file", path="./new/é.txt", content="é\r\nx\n") == "Wrote 6 bytes to new/é.txt."
    assert workplace.read("new/é.txt") == "é\r\nx\n".encode()
    await done(workplace, "write_file", path="new/é.txt", content="")
    assert workplace.read("new/é.txt") == b""


async def test_BTOOL_18_a_link_is_neither_followed_nor_replaced(workplace, tmp_path):
    outside = tmp_path / "outside"
    outside.write_text("x")
    workplace.write("real", "x")
    for name, target in (("out", outside), ("in", "real")):
        link = workplace.repository.top / name
        link.symlink_to(target)
        await refused(workplace, "write_file", path=name, content="y")
        await refused(workplace, "edit_file", path=name, old_text="x", new_text="y")
        assert link.is_symlink()
    assert outside.read_text() == "x"
    assert workplace.read("real") == b"x"


async def test_BTOOL_18_BTOOL_22_the_mode_survives(workplace):
    script = workplace.write("run.sh", "#!/bin/sh\necho a\n")
    script.chmod(0o755)
    await done(workplace, "edit_file", path="run.sh", old_text="echo a", new_text="echo b")
    assert stat.S_IMODE(script.stat().st_mode) == 0o755
    await done(workplace, "write_file", path="run.sh", content="x")
    assert stat.S_IMODE(script.stat().st_mode) == 0o755


async def test_BTOOL_19_exact_text_is_replaced_literally(workplace):
    workplace.write("a.txt", "one two\n")
    assert await done(workplace, "edit_file", path="a.txt", old_text="two", new_text="$& \\1 $1") == (
        "Replaced 1 occurrence in a.txt."
    )
    assert workplace.read("a.txt") == b"one $& \\1 $1\n"


async def test_BTOOL_19_absent_and_repeated_text_are_tool_errors(workplace):
    workplace.write("a.txt", "aa aa\n")
    assert "not found" in await refused(workplace, "edit_file", path="a.txt", old_text="b", new_text="")
    assert "found 2 times" in await refused(workplace, "edit_file", path="a.txt", old_text="aa", new_text="")
    assert workplace.read("a.txt") == b"aa aa\n"


async def test_BTOOL_20_occurrences_are_counted_without_overlap(workplace):
    workplace.write("a.txt", "aaaaa\n")
    text = await done(workplace, "edit_file", path="a.txt", old_text="aa", new_text="b", replace_all=True)
    assert text == "Replaced 2 occurrences in a.txt."
    assert workplace.read("a.txt") == b"bba\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"a\r\nb\r\nc\r\n", b"a\r\nX\r\nY\r\nc\r\n"),
        (b"a\nb\nc\n", b"a\nX\nY\nc\n"),
        (b"a\nb\r\nc\n", b"a\nX\r\nY\r\nc\n"),
        (b"\xef\xbb\xbfa\r\nb", b"\xef\xbb\xbfa\r\nX\r\nY"),
        (b"b", b"X\nY"),
    ],
)
async def test_U_41_BTOOL_22_line_ends_and_byte_order_marks_survive(workplace, before, after):
    workplace.write("a.txt", before)
    await done(workplace, "edit_file", path="a.txt", old_text="b", new_text="X\nY")
    assert workplace.read("a.txt") == after


async def test_BTOOL_19_a_line_end_in_the_old_text_matches_both_kinds(workplace):
    workplace.write("a.txt", b"one\r\ntwo\nthree\r\n")
    await done(workplace, "edit_file", path="a.txt", old_text="one\ntwo\nthree", new_text="1\n2\n3")
    assert workplace.read("a.txt") == b"1\r\n2\n3\r\n"
    await done(workplace, "edit_file", path="a.txt", old_text="2\r\n3\n", new_text="")
    assert workplace.read("a.txt") == b"1\r\n"


async def test_BTOOL_22_a_file_that_is_not_utf8_is_refused(workplace):
    workplace.write("a.txt", b"caf\xe9\n")
    assert "UTF-8" in await refused(workplace, "edit_file", path="a.txt", old_text="caf", new_text="x")
    assert workplace.read("a.txt") == b"caf\xe9\n"


class Meddled(WorktreeFilesOnDisk):
    """Files that somebody else writes to as soon as they were read."""

    meanwhile = b""

    async def read(self, path: str, *, limit: int) -> bytes:
        data = await super().read(path, limit=limit)
        (self._root / path).write_bytes(self.meanwhile)
        return data


@pytest.mark.parametrize("meanwhile", [b"other\n", b"two\n", b"", b"one\n\n"])
async def test_BTOOL_21_a_change_meanwhile_is_a_tool_error_and_nothing_is_written(workplace, meanwhile):
    workplace.write("a.txt", "one\n")
    files = Meddled(workplace.lease.root, workplace.lease.git)
    files.meanwhile = meanwhile
    workplace.lease = HostLease(workplace.lease.root, workplace.lease.home, workplace.lease.git, {}, files=files)
    assert "changed" in await refused(workplace, "edit_file", path="a.txt", old_text="one", new_text="two")
    assert workplace.read("a.txt") == meanwhile


async def test_BTOOL_23_delete_removes_one_file_or_link(workplace, tmp_path):
    workplace.write("a/b.txt", "x")
    outside = tmp_path / "outside"
    outside.write_text("x")
    (workplace.repository.top / "link").symlink_to(outside)
    assert await done(workplace, "delete_file", path="a/b.txt") == "Deleted a/b.txt."
    await done(workplace, "delete_file", path="link")
    assert outside.exists()
    assert not os.path.lexists(workplace.repository.top / "link")
    assert "a" in await refused(workplace, "delete_file", path="a")
    assert "b.txt" in await refused(workplace, "delete_file", path="a/b.txt")


async def test_BTOOL_23_move_renames_and_refuses_what_is_there(workplace):
    workplace.write("a.txt", "a")
    workplace.write("b.txt", "b")
    assert await done(workplace, "move_file", path="a.txt", to="new/c.txt") == "Moved a.txt to new/c.txt."
    assert workplace.read("new/c.txt") == b"a"
    assert "b.txt" in await refused(workplace, "move_file", path="new/c.txt", to="b.txt")
    assert "new" in await refused(workplace, "move_file", path="b.txt", to="new")
    assert workplace.read("b.txt") == b"b"


@pytest.mark.parametrize("path", ["../x", "/tmp/x", ".git/hooks/post-checkout", ".git", "a/.git/config", "GIT~1/x", ""])
async def test_SEC_07_SEC_08_nothing_is_written_outside(workplace, path):
    workplace.write("a.txt", "x")
    if path:
        await refused(workplace, "write_file", path=path, content="x")
        await refused(workplace, "delete_file", path=path)
        await refused(workplace, "move_file", path="a.txt", to=path)
    assert workplace.read("a.txt") == b"x"


async def test_half_a_surrogate_pair_is_refused(workplace):
    workplace.write("a.txt", "x")
    await refused(workplace, "write_file", path="a.txt", content="\ud800")
    await refused(workplace, "edit_file", path="a.txt", old_text="x", new_text="\ud800")
    assert workplace.read("a.txt") == b"x"


def test_the_tools_change_files_and_declare_their_paths():
    assert not any(tool.read_only for tool in TOOLS.tools)
    assert by_name(TOOLS, "move_file").resources_of({"path": "a", "to": "b"}) == Resources(("a", "b"))
    for name in ("write_file", "edit_file", "delete_file"):
        assert by_name(TOOLS, name).resources_of({"path": "a"}) == Resources(("a",))


PIECES = st.sampled_from(["a", "b", "\n", "\r\n", "é"])


@given(st.lists(PIECES, max_size=30), st.lists(PIECES, min_size=1, max_size=4), st.lists(PIECES, max_size=4))
def test_U_41_every_byte_outside_the_replaced_text_stays(text, old, new):
    text, old, new = "".join(text), "".join(old), "".join(new)
    changed, count = replaced(text, old, new)
    flat, wanted = text.replace("\r\n", "\n"), old.replace("\r\n", "\n")
    assert count == flat.count(wanted)
    if count == 0:
        assert changed == text
    flat_new = new.replace("\r\n", "\n")
    assert changed.replace("\r\n", "\n") == flat.replace(wanted, flat_new)
    for line_end in ("\n", "\r\n"):
        if line_end.join(flat.split("\n")) == text and "\n" in text:
            # A file with one kind of line end keeps that kind throughout.
            assert changed == flat.replace(wanted, flat_new).replace("\n", line_end)
