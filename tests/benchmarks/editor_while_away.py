"""Keystrokes while the cluster is away: `python -m tests.benchmarks.editor_while_away [--keys 400]`.

An editor's server, whose runs go to a face: one that takes connections and never answers, one that nobody listens at.
While reviews are sent there again and again, a document is typed into and asked about after each key. Prints the times
of a key with its answer, in turn with those of a server that sends nothing, so that both meet an equally busy machine.
The goal is a key under 20 ms.
"""

from __future__ import annotations

import argparse
import os
import socket
import sys
import tempfile
import time
from pathlib import Path

from tests.benchmarks.editor_client import EditorClient, percentile
from tests.benchmarks.editor_under_load import repository


def opened(folder: Path, top: Path, url: str | None) -> EditorClient:
    client = EditorClient(
        [sys.executable, "-m", "outpost_lsp", "serve"],
        {
            "OUTPOST_STATE_DIR": str(folder / "state"),
            "OUTPOST_CACHE_DIR": str(folder / "cache"),
            "OUTPOST_RAY_TOKEN": "token-of-nobody-at-all",
            "OUTPOST_CONFIG": os.devnull,
        },
    )
    runs = {} if url is None else {"executor": "ray", "ray": {"url": url}}
    client.initialize(top, {"runs": runs})
    file = top / "f0.txt"
    document = {"uri": file.as_uri(), "languageId": "plaintext", "version": 1, "text": file.read_text()}
    client.send("textDocument/didOpen", {"textDocument": document})
    return client


def key_ms(client: EditorClient, uri: str, version: int) -> float:
    place = {"line": 0, "character": 0}
    began = time.perf_counter()
    change = {"range": {"start": place, "end": place}, "text": "x"}
    client.send(
        "textDocument/didChange", {"textDocument": {"uri": uri, "version": version}, "contentChanges": [change]}
    )
    client.request("textDocument/hover", {"textDocument": {"uri": uri}, "position": place})
    return 1000 * (time.perf_counter() - began)


def measure(folder: Path, url: str, keys: int) -> tuple[list[float], list[float], int]:
    """Times with a face that is away, times of a server that sends nothing, and how many runs ended meanwhile."""
    folder.mkdir()
    top = repository(folder)
    (top / "f1.txt").write_text("changed\n")
    uri = (top / "f0.txt").as_uri()
    with_face, alone = opened(folder / "one", top, url), opened(folder / "two", top, None)
    found: tuple[list[float], list[float]] = ([], [])
    for number in range(keys):
        if number % 40 == 0:
            with_face.command("outpost.review", {"scope": "uncommitted"})
        for client, times in ((with_face, found[0]), (alone, found[1])):
            times.append(key_ms(client, uri, number + 2))
        time.sleep(0.03)
    runs = with_face.command("outpost.runs", {})["runs"]
    for client in (with_face, alone):
        client.process.kill()
        client.process.wait()
    return *found, len([run for run in runs if run["status"] == "failed"])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--keys", type=int, default=400)
    keys = parser.parse_args().keys
    with tempfile.TemporaryDirectory(prefix="outpost-benchmark-") as folder, socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(64)
        faces = {"never answers": f"http://127.0.0.1:{silent.getsockname()[1]}", "is not there": "http://127.0.0.1:9"}
        for name, url in faces.items():
            mine, other, failed = measure(Path(folder) / name.replace(" ", "-"), url, keys)
            print(
                f"face {name}, {failed} runs failed: key p50 {percentile(mine, 0.5):.1f} ms, "
                f"p99 {percentile(mine, 0.99):.1f} ms, longest {max(mine):.0f} ms; without runs "
                f"p50 {percentile(other, 0.5):.1f} ms, p99 {percentile(other, 0.99):.1f} ms, longest {max(other):.0f} ms "
                f"(load {os.getloadavg()[0]:.1f})",
                flush=True,
            )


if __name__ == "__main__":
    main()
