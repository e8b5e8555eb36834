"""Private index files are what git makes of the same entries."""

from __future__ import annotations

from pathlib import Path

import pytest

from outpost_lsp.worktrees.index_file import read_index, write_index
from outpost_lsp.worktrees.objects import Entry
from tests.support.repositories import RealRepository

NAMES = [*(b"n" * length for length in range(1, 10)), b'a/b c\n"d', b"\xff\xfe", b"long/" + b"x/" * 2_100 + b"end"]


@pytest.mark.parametrize(("form", "width"), [("sha1", 20), ("sha256", 32)])
def test_git_lists_what_was_written_and_what_git_wrote_is_read(tmp_path: Path, form: str, width: int) -> None:
    repository = RealRepository(tmp_path)
    repository.git("init", "-q", f"--object-format={form}")
    blob = repository.git("hash-object", "-w", "--stdin", stdin=b"text")
    modes = [b"100644", b"100755", b"120000", b"160000"]
    entries = {name: Entry(modes[number % 4], blob) for number, name in enumerate(NAMES)}
    write_index(tmp_path / ".git" / "index", entries)
    listed = repository.run("ls-files", "-z", "--stage").split(b"\0")
    assert listed[:-1] == [b"%s %s 0\t%s" % (one.mode, blob.encode(), name) for name, one in sorted(entries.items())]

    lines = b"".join(b"%s %s 0\t%s\0" % (one.mode, blob.encode(), name) for name, one in entries.items())
    (tmp_path / ".git" / "index").unlink()
    repository.git("update-index", "-z", "--index-info", stdin=lines)
    assert read_index(tmp_path / ".git" / "index", width) == entries


def test_an_index_of_another_kind_is_left_to_git_and_none_is_empty(tmp_path: Path) -> None:
    repository = RealRepository(tmp_path)
    repository.git("init", "-q")
    index = tmp_path / ".git" / "index"
    assert read_index(index, 20) == {}
    repository.write("a.txt", "a")
    repository.git("add", "-N", "a.txt")
    assert read_index(index, 20) is None
    repository.git("add", "a.txt")
    repository.git("update-index", "--index-version", "4")
    assert read_index(index, 20) is None


def test_unmerged_entries_are_not_read(tmp_path: Path) -> None:
    repository = RealRepository(tmp_path)
    repository.git("init", "-q")
    blob = repository.git("hash-object", "-w", "--stdin", stdin=b"text")
    stages = "".join(f"100644 {blob} {stage}\tboth\n" for stage in (1, 2, 3)) + f"100644 {blob} 0\tplain\n"
    repository.git("update-index", "--index-info", stdin=stages.encode())
    assert read_index(tmp_path / ".git" / "index", 20) == {b"plain": Entry(b"100644", blob)}
