"""Many reviews by one server, with memory and handles watched: `python -m tests.benchmarks.soak [--reviews 1000]`.

The offline reviewer reviews a small repository again and again while its one open document is edited; each tenth review
is cancelled. Memory, open descriptors, threads and child processes of the server are told along the way. The first
few hundred reviews fill what the server keeps on purpose (the latest runs); after them nothing may grow.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks.editor_client import EditorClient


@dataclass(frozen=True)
class Holdings:
    """What a process holds on to."""

    memory_mib: float
    descriptors: int
    threads: int
    children: int

    @classmethod
    def of(cls, process_id: int) -> Holdings:
        folder = Path(f"/proc/{process_id}")
        fields = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines())
        threads = [one.name for one in (folder / "task").iterdir()]
        children = sum(_children(folder / "task" / one) for one in threads)
        memory = int(fields["VmRSS"].split()[0]) / 1024
        return cls(memory, len(list((folder / "fd").iterdir())), len(threads), children)

    @classmethod
    def at_rest(cls, process_id: int) -> Holdings:
        """What it holds once the work of runs that were cancelled has ended: nothing changed for a second."""
        held, since, deadline = cls.of(process_id), time.monotonic(), time.monotonic() + 60
        while time.monotonic() < min(since + 1.0, deadline):
            time.sleep(0.05)
            now = cls.of(process_id)
            if now.children or now.descriptors != held.descriptors:
                since = time.monotonic()
            held = now
        return held


def _children(thread: Path) -> int:
    try:
        return len((thread / "children").read_text().split())
    except OSError:
        # The thread ended while it was looked at.
        return 0


def project(folder: Path) -> Path:
    """A repository with a slip that is not committed."""
    top = folder / "repository"
    top.mkdir(parents=True)
    (top / "main.py").write_text("import os\n\n\ndef area(width, height):\n    return width * height\n")
    who = ["-c", "user.name=b", "-c", "user.email=b@localhost"]
    for arguments in (["init", "-q"], ["add", "-A"], [*who, "commit", "-q", "-m", "first"]):
        subprocess.run(["git", *arguments], cwd=top, check=True)
    (top / "main.py").write_text("import os\n\n\ndef area(width, height):\n    return widht * height\n")
    return top


def review_again_and_again(client: EditorClient, top: Path, first: int, count: int) -> None:
    """Reviews number `first` and the next ones, `count` in all, each of another text of the open document."""
    uri = (top / "main.py").as_uri()
    for number in range(first, first + count):
        place = {"line": 2, "character": 0}
        change = {"range": {"start": place, "end": place}, "text": "#" if number % 2 else ""}
        document = {"uri": uri, "version": number + 2}
        client.send("textDocument/didChange", {"textDocument": document, "contentChanges": [change]})
        if number % 10 == 9:
            run = client.command("outpost.review", {"scope": "workspace"})["run"]
            client.command("outpost.cancel", {"runId": run["id"]})
            continue
        run = client.command("outpost.review", {"wait": True})["run"]
        if run["status"] != "succeeded" or run["findings"] != 1:
            raise SystemExit(
                f"review {number} ended {run['status']} with {run['findings']} findings: {run.get('error')}"
            )


def opened(folder: Path) -> tuple[EditorClient, Path]:
    """A server with the project's document open."""
    top = project(folder)
    state = {"OUTPOST_STATE_DIR": str(folder / "state"), "OUTPOST_CACHE_DIR": str(folder / "cache")}
    client = EditorClient([sys.executable, "-m", "outpost_lsp", "serve"], state)
    client.initialize(top)
    text = (top / "main.py").read_text()
    document = {"uri": (top / "main.py").as_uri(), "languageId": "python", "version": 1, "text": text}
    client.send("textDocument/didOpen", {"textDocument": document})
    return client, top


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--reviews", type=int, default=1000)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="outpost-soak-") as folder:
        client, top = opened(Path(folder))
        began, step = time.monotonic(), max(1, asked.reviews // 10)
        for first in range(0, asked.reviews, step):
            review_again_and_again(client, top, first, step)
            held = Holdings.at_rest(client.process.pid)
            print(
                f"{first + step:5} reviews, {time.monotonic() - began:5.0f} s: {held.memory_mib:.1f} MiB, "
                f"{held.descriptors} descriptors, {held.threads} threads, {held.children} children",
                flush=True,
            )
        client.close()


if __name__ == "__main__":
    main()
