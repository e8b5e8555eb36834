"""The team's dismissals in the repository: hostile and half-known content, links, merges (U-09, SEC-07, SEC-09)."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from outpost_lsp.domain.finding import Dismissal
from outpost_lsp.errors import OutpostError
from outpost_lsp.storage.dismissed import DismissedFinding, DismissedFindings
from outpost_lsp.storage.shared_dismissals import (
    SHARED_PATH,
    SharedDismissals,
    read_shared_dismissals,
    update_shared_dismissals,
)
from tests.storage.test_findings import a_finding


def a_record(number: int, reason: str = "agreed") -> DismissedFinding:
    return DismissedFinding.of(a_finding(number), Dismissal(reason=reason, at="2026-01-01T00:00:00.000Z"))


def test_without_a_file_nothing_is_shared(tmp_path: Path) -> None:
    assert read_shared_dismissals(tmp_path) == SharedDismissals()


def test_what_is_shared_comes_back_sorted_and_covers_findings(tmp_path: Path) -> None:
    update_shared_dismissals(tmp_path, add=[a_record(3), a_record(1)])
    shared = update_shared_dismissals(tmp_path, add=[a_record(2), a_record(1, "again")])
    assert [record.path for record in shared.records] == ["src/file1.py", "src/file2.py", "src/file3.py"]
    dismissal = DismissedFindings(shared.records).covering(a_finding(1))
    assert dismissal is not None
    assert dismissal.reason == "again"
    text = (tmp_path / SHARED_PATH).read_text()
    assert text.endswith("}\n")
    assert json.loads(text)["version"] == 1
    restored = update_shared_dismissals(tmp_path, restore=[a_finding(1).fingerprint])
    assert len(restored.records) == 2


def test_entries_and_fields_of_newer_versions_survive_a_rewrite(tmp_path: Path) -> None:
    update_shared_dismissals(tmp_path, add=[a_record(1)])
    path = tmp_path / SHARED_PATH
    value = json.loads(path.read_text())
    value["version"] = 2
    value["owners"] = ["a"]
    value["dismissals"][0]["later"] = True
    value["dismissals"].append({"pattern": "**/*.md"})
    path.write_text(json.dumps(value))
    shared = update_shared_dismissals(tmp_path, add=[a_record(2)])
    assert len(shared.records) == 2
    assert shared.faults == (f"{SHARED_PATH}: entry 1 is no dismissal and was passed over",)
    written = json.loads(path.read_text())
    assert (written["version"], written["owners"]) == (2, ["a"])
    assert {"pattern": "**/*.md"} in written["dismissals"]
    assert any(entry.get("later") for entry in written["dismissals"])


@pytest.mark.parametrize("content", [b"", b"[]", b"nonsense", b'{"dismissals":{}}', b"\xff\xfe", b"[" * 100_000])
def test_a_file_that_is_no_list_is_a_fault_and_is_not_overwritten(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / SHARED_PATH
    path.parent.mkdir()
    path.write_bytes(content)
    shared = read_shared_dismissals(tmp_path)
    assert shared.records == ()
    assert SHARED_PATH in shared.faults[0]
    with pytest.raises(OutpostError, match="left as it is"):
        update_shared_dismissals(tmp_path, add=[a_record(1)])
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b'{"dismissals": [\n{},\n', f"{SHARED_PATH}: line 3: it is not JSON (Expecting value); mend it"),
        (
            b"{\n<<<<<<< ours\n=======\n>>>>>>> theirs\n}",
            f"{SHARED_PATH}: line 2: a merge conflict is not settled; mend",
        ),
        (b"{}\xff", f"{SHARED_PATH}: it is not UTF-8; mend it, or take back an earlier version with git"),
        (b"[]", f"{SHARED_PATH}: an object with a list 'dismissals' was expected; mend it"),
    ],
)
def test_a_mangled_file_says_its_name_where_it_is_wrong_and_what_helps(
    tmp_path: Path, content: bytes, told: str
) -> None:
    path = tmp_path / SHARED_PATH
    path.parent.mkdir()
    path.write_bytes(content)
    shared = read_shared_dismissals(tmp_path)
    assert not shared.is_known
    assert shared.faults[0].startswith(told)
    with pytest.raises(OutpostError) as fault:
        update_shared_dismissals(tmp_path, add=[a_record(1)])
    assert fault.value.message.startswith(told)


def test_SEC_07_a_linked_folder_or_file_is_neither_read_nor_written(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    update_shared_dismissals(outside_top(outside), add=[a_record(1)])
    target = outside / SHARED_PATH
    before = target.read_bytes()

    linked_folder = tmp_path / "one"
    linked_folder.mkdir()
    (linked_folder / ".outpost").symlink_to(outside / ".outpost")
    linked_file = tmp_path / "two"
    (linked_file / ".outpost").mkdir(parents=True)
    (linked_file / SHARED_PATH).symlink_to(target)
    for top in (linked_folder, linked_file):
        assert read_shared_dismissals(top).records == ()
        assert read_shared_dismissals(top).faults
        with pytest.raises(OutpostError):
            update_shared_dismissals(top, add=[a_record(2)])
    assert target.read_bytes() == before


def outside_top(path: Path) -> Path:
    path.mkdir()
    return path


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / ".outpost").write_text("a file")
    assert "Not a directory" in read_shared_dismissals(tmp_path).faults[0]
    with pytest.raises(OutpostError):
        update_shared_dismissals(tmp_path, add=[a_record(1)])


def test_only_a_regular_file_of_bounded_size_is_read(tmp_path: Path) -> None:
    path = tmp_path / SHARED_PATH
    path.parent.mkdir()
    os.mkfifo(path)
    assert "no regular file" in read_shared_dismissals(tmp_path).faults[0]
    path.unlink()
    with path.open("wb") as file:
        file.truncate(16 * 1024 * 1024 + 1)
    assert "larger than 16 MiB" in read_shared_dismissals(tmp_path).faults[0]
