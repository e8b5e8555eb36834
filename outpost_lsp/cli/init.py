"""The command `init`: what can be used here is found, the user's own file says so, and one review shows that it works.

Keys are looked for by the names of their variables and never shown; local servers are asked for their models on their
usual ports. Nothing that the file holds is changed. A service that costs money reviews only after a yes.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from outpost_lsp.cli.folders import workspace_folder
from outpost_lsp.cli.session import run_async
from outpost_lsp.cli.status import DONE
from outpost_lsp.cli.terminal import is_interactive
from outpost_lsp.config.environment import user_file_path
from outpost_lsp.config.files import read_user_file
from outpost_lsp.config.first_settings import (
    HEAD,
    STARTER,
    FoundService,
    found_services,
    not_named_yet,
    with_services,
)
from outpost_lsp.config.sources import check_file
from outpost_lsp.domain.markdown import one_line
from outpost_lsp.errors import OutpostError, configuration
from outpost_lsp.models.local_servers import USUAL_PLACES, LocalPlace, find_local_servers
from outpost_lsp.worktrees.repository import discover


def init(options: argparse.Namespace, places: Sequence[LocalPlace] = USUAL_PLACES) -> int:
    """Find, write, review; the exit status is that of the review, whatever it finds."""
    path = user_file_path(os.environ)
    if str(path) == os.devnull:
        raise configuration("OUTPOST_CONFIG names no file, so there is none to write; unset it or name one")
    found = found_services(os.environ, run_async(lambda: find_local_servers(places)))
    for service in found:
        print(f"found {service.title}: {one_line(service.model, 80)}")
    if not found:
        print("found no key in OPENAI_API_KEY or ANTHROPIC_API_KEY, and no model server on this machine")
    old, new, added = _texts(path, found)
    if options.dry_run:
        print(f"would write {path}:\n\n{new}" if new != old else f"{path} has it all; nothing would be written")
        return DONE
    if new == old:
        print(f"{path} is as it should be and was left alone")
    elif not _agreed(options, f"Write {'the new file' if old is None else 'what is missing to'} {path}?"):
        print("nothing was written")
        return DONE
    else:
        _write(path, new)
        print(f"wrote {path}" if old is None else f"added to {path}: {', '.join(one.title for one in added)}")
    return DONE if options.no_review else _review(options, added)


def _texts(path: Path, found: Sequence[FoundService]) -> tuple[str | None, str, list[FoundService]]:
    """The file as it is (`None` when there is none) and as it should be, and what is new in it."""
    file = read_user_file(path)
    if file.fault is not None or file.tree is None:
        raise configuration(f"nothing was written, because your file is wrong: {file.fault}")
    try:
        # Bytes: line ends stay as they are.
        old: str | None = path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        old = None
    added = not_named_yet(file.tree, found)
    if old is None:
        return None, HEAD + with_services("", {}, added) if added else STARTER, added
    return old, with_services(old, file.tree, added), added


def _write(path: Path, text: str) -> None:
    """Put the text in place in one step, through links, once it is known to be good."""
    target = Path(os.path.realpath(path))
    aside = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        mode = target.stat().st_mode & 0o777 if target.exists() else 0o600
        try:
            with os.fdopen(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as stream:
                stream.write(text.encode("utf-8"))
            written = read_user_file(aside, must_exist=True)
            faults = [written.fault] if written.fault is not None else check_file(written)
            if faults:
                raise configuration(f"nothing was written: with what was found your file would be wrong: {faults[0]}")
            aside.chmod(mode)
            aside.replace(target)
        finally:
            aside.unlink(missing_ok=True)
    except OSError as error:
        raise configuration(f"{path} cannot be written: {error.strerror or error}") from error


def _review(options: argparse.Namespace, added: Sequence[FoundService]) -> int:
    from outpost_lsp.cli.arguments import parse
    from outpost_lsp.cli.demo import demo
    from outpost_lsp.cli.review import review

    folder = workspace_folder(Path(options.folder))
    try:
        discover(folder, {})
    except OutpostError:
        print("\nthere is no repository here, so this is the demo:\n", flush=True)
        return demo(parse(["demo", "--fail-on", "never"]))
    arguments = ["review", "-C", str(folder), "--fail-on", "never"]
    if added and not added[0].is_local:
        question = f"Review the uncommitted work with {added[0].model} now? It is sent to {added[0].base_url}."
        if not _agreed(options, question, otherwise=False):
            print("the built-in rules review; outpost-lsp review asks the service")
            arguments.append("--offline")
    print(f"\nreviewing the uncommitted work of {folder}\n", flush=True)
    return review(parse(arguments))


def _agreed(options: argparse.Namespace, question: str, *, otherwise: bool = True) -> bool:
    """A yes of the person at the terminal; where there is none, `otherwise`."""
    if options.yes:
        return True
    if sys.stdin is None or not sys.stdin.isatty() or not is_interactive(sys.stdout):
        return otherwise
    print(f"{question} [{'Y/n' if otherwise else 'y/N'}] ", end="", flush=True)
    answer = sys.stdin.readline().strip().lower()
    return answer in ("y", "yes") or (otherwise and answer == "" and not sys.stdin.closed)
