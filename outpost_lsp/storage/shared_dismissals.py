"""Dismissals that a team shares: `.outpost/dismissals.json` in the repository, meant to be committed.

One object: `version` 1 and `dismissals`, a list of the records of `DismissedFinding`, sorted so that two people's
changes merge. The file is written by whoever wrote the repository: it is read within a bound, and neither it nor its
folder may be a link. What cannot be read says its name, why, and what helps. The caller knows whether the folder is
trusted.
"""

from __future__ import annotations

import errno
import json
import os
import re
import secrets
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from outpost_lsp.errors import OutpostError
from outpost_lsp.storage.dismissed import DismissedFinding
from outpost_lsp.storage.json_lines import tolerant
from outpost_lsp.storage.private_files import storage_fault, write_all

SHARED_FOLDER: Final = ".outpost"
SHARED_NAME: Final = "dismissals.json"
SHARED_PATH: Final = f"{SHARED_FOLDER}/{SHARED_NAME}"
"""Where the file is, relative to the repository's top."""

_LIMIT_BYTES: Final = 16 * 1024 * 1024
_CONFLICT: Final = re.compile(rb"^(<{7}|={7}|>{7})( |\r?$)", re.MULTILINE)
_MEND: Final = "mend it, or take back an earlier version with git"


@dataclass(frozen=True, slots=True)
class SharedDismissals:
    """What the file holds, and what in it could not be understood; `is_known` is false when that was all of it."""

    records: tuple[DismissedFinding, ...] = ()
    faults: tuple[str, ...] = ()
    is_known: bool = True


def read_shared_dismissals(top: Path) -> SharedDismissals:
    """The shared dismissals of the repository at `top`; empty when there is no file."""
    value, faults = _read(top)
    if faults:
        return SharedDismissals(faults=tuple(faults), is_known=False)
    records = []
    for number, entry in enumerate(value.get("dismissals", ()), 1):
        try:
            records.append(tolerant(DismissedFinding, entry))
        except ValueError:
            faults.append(f"{SHARED_PATH}: entry {number} is no dismissal and was passed over")
    return SharedDismissals(tuple(records), tuple(faults))


def update_shared_dismissals(
    top: Path, *, add: Iterable[DismissedFinding] = (), restore: Iterable[str] = ()
) -> SharedDismissals:
    """Add and take back dismissals (by fingerprint); entries and fields of newer versions stay as they are.

    A file that is no JSON object is not overwritten: `workspace`.
    """
    value, faults = _read(top)
    if faults:
        raise OutpostError("workspace", f"{faults[0]}; it was left as it is", {"path": SHARED_PATH})
    added = {record.fingerprint: record.to_json() for record in add}
    gone = added.keys() | set(restore)
    kept = [entry for entry in value.get("dismissals", ()) if _fingerprint(entry) not in gone]
    value = {"version": 1, **value, "dismissals": sorted([*kept, *added.values()], key=_order)}
    _write(top, json.dumps(value, indent=2, ensure_ascii=False, sort_keys=True).encode("utf-8", "surrogatepass"))
    return read_shared_dismissals(top)


def _read(top: Path) -> tuple[dict[str, Any], list[str]]:
    try:
        folder = _open_folder(top)
    except FileNotFoundError:
        return {}, []
    except OSError as error:
        return {}, [f"{SHARED_FOLDER}: {_why(error)}"]
    try:
        descriptor = os.open(SHARED_NAME, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, dir_fd=folder)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return {}, [f"{SHARED_PATH}: it is no regular file; {_MEND}"]
            content = file.read(_LIMIT_BYTES + 1)
    except FileNotFoundError:
        return {}, []
    except OSError as error:
        return {}, [f"{SHARED_PATH}: {_why(error)}"]
    finally:
        os.close(folder)
    if len(content) > _LIMIT_BYTES:
        return {}, [
            f"{SHARED_PATH}: it is larger than {_LIMIT_BYTES >> 20} MiB; take dismissals out that are not needed"
        ]
    try:
        return _parsed(content), []
    except ValueError as error:
        return {}, [f"{SHARED_PATH}: {error}; {_MEND}"]


def _parsed(content: bytes) -> dict[str, Any]:
    """The object that the file holds; a `ValueError` that says what is wrong."""
    if conflict := _CONFLICT.search(content):
        before = content.count(b"\n", 0, conflict.start())
        raise ValueError(f"line {before + 1}: a merge conflict is not settled")
    try:
        value = json.loads(content.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise ValueError("it is not UTF-8") from error
    except json.JSONDecodeError as error:
        raise ValueError(f"line {error.lineno}: it is not JSON ({error.msg})") from error
    except RecursionError as error:
        raise ValueError("it is not JSON (nested too deeply)") from error
    if not isinstance(value, dict) or not isinstance(value.get("dismissals", []), list):
        raise ValueError("an object with a list 'dismissals' was expected")
    return value


def _why(error: OSError) -> str:
    """Why the file or its folder cannot be opened, and what helps."""
    if error.errno == errno.ELOOP:
        return "it is a link, which is not followed; put the file itself there"
    if error.errno == errno.ENOTDIR:
        return f"it is a link or no folder ({error.strerror}); put a folder there"
    return f"it cannot be read ({error.strerror}); check its permissions"


def _write(top: Path, content: bytes) -> None:
    aside = f".{SHARED_NAME}.{secrets.token_hex(4)}"
    try:
        (top / SHARED_FOLDER).mkdir(exist_ok=True)
        folder = _open_folder(top)
        try:
            # The file belongs to the team's repository: its mode is the user's own choice, by umask.
            descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666, dir_fd=folder)
            try:
                write_all(descriptor, content + b"\n")
            finally:
                os.close(descriptor)
            os.rename(aside, SHARED_NAME, src_dir_fd=folder, dst_dir_fd=folder)
        except OSError:
            _remove(aside, folder)
            raise
        finally:
            os.close(folder)
    except OSError as error:
        raise storage_fault(error, top / SHARED_FOLDER) from error


def _open_folder(top: Path) -> int:
    return os.open(top / SHARED_FOLDER, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)


def _remove(name: str, folder: int) -> None:
    try:
        os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        return


def _fingerprint(entry: Any) -> Any:
    return entry.get("fingerprint") if isinstance(entry, dict) else None


def _order(entry: Any) -> tuple[str, str]:
    record = entry if isinstance(entry, dict) else {}
    return str(record.get("path", "")), str(record.get("fingerprint", ""))
