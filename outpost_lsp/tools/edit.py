"""The toolset `edit`: writing, changing, deleting and moving files of the worktree (BTOOL-17 to -23).

An edit touches the text it names and nothing else: line ends, byte-order mark and mode of the file survive, and nothing
is written when the file changed since it was read.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Mapping
from typing import Any, Final

from outpost_lsp.domain.permission import Resources
from outpost_lsp.domain.tool import Tool, ToolContext, ToolOutput, Toolset
from outpost_lsp.errors import OutpostError
from outpost_lsp.tools.refusals import answering_refusals, failure
from outpost_lsp.tools.text_files import read_text

_LINE_END: Final = re.compile(r"\r?\n")
_PATH: Final = {"type": "string", "minLength": 1, "description": "The file, relative to the repository."}


def _schema(required: Mapping[str, Any], optional: Mapping[str, Any] | None = None) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {**required, **(optional or {})},
        "required": list(required),
        "additionalProperties": False,
    }


def edit_tools() -> Toolset:
    """`write_file`, `edit_file`, `delete_file` and `move_file`."""
    return Toolset(
        "edit",
        [
            Tool(
                "write_file",
                "Write a file whole, exactly as given; missing folders are made, an existing file is replaced.",
                _schema({"path": _PATH, "content": {"type": "string", "description": "The whole text."}}),
                answering_refusals(_write_file),
                resources=_own_path,
            ),
            Tool(
                "edit_file",
                "Replace exact text in a file. The old text must stand in it once, unless all occurrences are asked for. "
                "Line numbers are no part of the text.",
                _schema(
                    {
                        "path": _PATH,
                        "old_text": {"type": "string", "minLength": 1, "description": "The text as it stands."},
                        "new_text": {"type": "string", "description": "What takes its place, literally."},
                    },
                    {"replace_all": {"type": "boolean", "description": "Replace every occurrence."}},
                ),
                answering_refusals(_edit_file),
                resources=_own_path,
            ),
            Tool(
                "delete_file",
                "Delete one file, or a link itself; never a folder.",
                _schema({"path": _PATH}),
                answering_refusals(_delete_file),
                resources=_own_path,
            ),
            Tool(
                "move_file",
                "Rename one file; missing folders are made, nothing may stand at the new path.",
                _schema({"path": _PATH, "to": {**_PATH, "description": "The new path, relative to the repository."}}),
                answering_refusals(_move_file),
                resources=lambda value: Resources(paths=(value["path"], value["to"])),
            ),
        ],
    )


def _own_path(value: Mapping[str, Any]) -> Resources:
    return Resources(paths=(value["path"],))


async def _write_file(value: Mapping[str, Any], context: ToolContext) -> ToolOutput:
    files = context.sandbox.files
    try:
        data = value["content"].encode()
    except UnicodeEncodeError:
        return failure("content: it holds half a surrogate pair, which no file can")
    await files.write(value["path"], data)
    return ToolOutput(f"Wrote {len(data)} bytes to {files.normalise(value['path'])}.")


async def _edit_file(value: Mapping[str, Any], context: ToolContext) -> ToolOutput:
    file = await read_text(context.sandbox.files, value["path"])
    if not file.is_utf8:
        return failure(f"{file.path} is not valid UTF-8; it is not edited")
    text, count = replaced(file.text, value["old_text"], value["new_text"])
    if count == 0:
        return failure(f"{file.path}: old_text was not found; it must stand in the file exactly, white space included")
    if count > 1 and not value.get("replace_all", False):
        return failure(
            f"{file.path}: old_text was found {count} times; give more of the text around it, or set replace_all"
        )
    try:
        data = file.with_text(text)
    except UnicodeEncodeError:
        return failure("new_text: it holds half a surrogate pair, which no file can")
    try:
        await context.sandbox.files.write(value["path"], data, expected=file.data, create=False)
    except OutpostError as error:
        if error.details.get("reason") != "missing":
            raise
        # It was there a moment ago.
        return failure(f"{file.path} has changed meanwhile; nothing was written")
    return ToolOutput(f"Replaced {count} {'occurrence' if count == 1 else 'occurrences'} in {file.path}.")


async def _delete_file(value: Mapping[str, Any], context: ToolContext) -> ToolOutput:
    files = context.sandbox.files
    await files.delete(value["path"])
    return ToolOutput(f"Deleted {files.normalise(value['path'])}.")


async def _move_file(value: Mapping[str, Any], context: ToolContext) -> ToolOutput:
    files = context.sandbox.files
    await files.move(value["path"], value["to"])
    return ToolOutput(f"Moved {files.normalise(value['path'])} to {files.normalise(value['to'])}.")


def replaced(text: str, old: str, new: str) -> tuple[str, int]:
    """The text with every occurrence of `old` replaced, and how many there were, counted without overlap.

    A line end in `old` matches LF and CRLF alike; those of `new` become the ones of the text they replace.
    """
    flat = text.replace("\r\n", "\n")
    wanted = old.replace("\r\n", "\n")
    pieces = new.replace("\r\n", "\n").split("\n")
    # The flat text is shorter by one character for each CRLF before a place.
    returns = [match.start() - index for index, match in enumerate(re.finditer("\r\n", text))]
    result = []
    done, count = 0, 0
    found = flat.find(wanted)
    while found >= 0:
        start = found + bisect_left(returns, found)
        end = found + len(wanted) + bisect_left(returns, found + len(wanted))
        result += [text[done:start], _with_line_ends(pieces, text, start, end)]
        done, count = end, count + 1
        found = flat.find(wanted, found + len(wanted))
    result.append(text[done:])
    return "".join(result), count


def _with_line_ends(pieces: list[str], text: str, start: int, end: int) -> str:
    if len(pieces) == 1:
        return pieces[0]
    ends = _LINE_END.findall(text, start, end)
    if not ends:
        near = _LINE_END.search(text, end) or _LINE_END.search(text)
        ends = [near.group() if near else "\n"]
    ends += [ends[-1]] * (len(pieces) - 1 - len(ends))
    return "".join(piece + line_end for piece, line_end in zip(pieces[:-1], ends, strict=False)) + pieces[-1]
