"""File URIs and paths, and the spelling that a client gave to a URI.

Several spellings name one file (`%3A` and `:`, `%20`, letters that need no escape); inside there are only paths, and
what leaves is spelled as the client spelled it. Bytes that are not UTF-8 survive the way there and back.
"""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import quote_from_bytes, unquote_to_bytes, urlsplit

_SAFE = "/-._~!$&'()*+,;=:@"


def path_of(uri: str) -> Path | None:
    """The absolute path that a file URI names; `None` for another scheme, another host or a broken URI."""
    try:
        parts = urlsplit(uri)
    except ValueError:
        return None
    if parts.scheme.lower() != "file" or parts.netloc.lower() not in ("", "localhost") or parts.query or parts.fragment:
        return None
    data = unquote_to_bytes(parts.path)
    if not data.startswith(b"/") or b"\0" in data:
        return None
    # Only the text is tidied: links stay as the client named them.
    return Path(os.path.normpath(os.fsdecode(data)))


def uri_of(path: Path) -> str:
    """The file URI of an absolute path."""
    return "file://" + quote_from_bytes(os.fsencode(path), safe=_SAFE)


class UriSpellings:
    """How the client writes the folders and documents it named; anything else is written like its folder."""

    def __init__(self) -> None:
        self._documents: dict[Path, str] = {}
        self._folders: dict[Path, str] = {}

    def learn_folder(self, uri: str) -> Path | None:
        """Remember the spelling of a workspace folder."""
        path = path_of(uri)
        if path is not None:
            self._folders[path] = uri.rstrip("/")
        return path

    def forget_folder(self, path: Path) -> None:
        """Forget a workspace folder that was removed."""
        self._folders.pop(path, None)

    def learn(self, uri: str) -> Path | None:
        """Remember the spelling of a document; the latest one counts."""
        path = path_of(uri)
        if path is not None:
            self._documents[path] = uri
        return path

    def spell(self, path: Path) -> str:
        """The URI of a path as the client would write it."""
        known = self._documents.get(path) or self._folders.get(path)
        if known is not None:
            return known
        for parent in path.parents:
            folder = self._folders.get(parent)
            if folder is not None:
                rest = os.fsencode(path)[len(os.fsencode(parent).rstrip(b"/")) + 1 :]
                return f"{folder}/{quote_from_bytes(rest, safe=_SAFE)}"
        return uri_of(path)
