"""How quickly findings follow edits and are published: `python -m tests.benchmarks.editor_findings [--edits N]`.

Two tables, from a real server over pipes: the first edit after a pause in a file with 1,000 findings, until its
diagnostics are republished; and 20,000 findings that are published at the start, with hovers meanwhile.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from outpost_lsp.domain.finding import Finding, Span, fingerprint
from outpost_lsp.storage.findings import FindingStore
from outpost_lsp.storage.layout import Layout
from tests.benchmarks.editor_client import EditorClient, percentile

SERVER = [sys.executable, "-m", "outpost_lsp", "serve"]
PAUSE_S = 0.35


def seeded(folder: Path, files: int, findings: int) -> tuple[Path, dict[str, str]]:
    """A repository whose files have stored findings, and the environment in which a server knows them."""
    top = folder / "repository"
    top.mkdir(parents=True)
    subprocess.run(["git", "init", "-q"], cwd=top, check=True)
    layout = Layout(folder / "state", folder / "cache")
    store = FindingStore(layout.for_repository(top / ".git").findings_of(top))
    for file in range(files):
        path = f"module_{file}.py"
        lines = [f"value_{number} = compute_{file}({number}) / count" for number in range(findings)]
        (top / path).write_text("\n".join(lines) + "\n")
        store.put(
            Finding(
                id=f"20260101-000000-000000-aaaaaa-{file}-{number}",
                run_id="20260101-000000-000000-aaaaaa",
                agent="reviewer",
                path=path,
                span=Span(start_line=number, start_character=0, end_line=number, end_character=len(line)),
                severity="warning",
                code="division",
                title=f"count may be zero when value {number} is computed",
                detail="Nothing before this line makes sure that it is not; the division raises then.",
                quote=line,
                fingerprint=fingerprint(path, "division", line, 0),
            )
            for number, line in enumerate(lines)
        )
    store.save()
    return top, {"OUTPOST_STATE_DIR": str(layout.state), "OUTPOST_CACHE_DIR": str(layout.cache)}


def edits(folder: Path, count: int) -> None:
    top, environment = seeded(folder, 1, 1_000)
    client = EditorClient(SERVER, environment)
    client.initialize(top)
    uri = (top / "module_0.py").as_uri()
    text = (top / "module_0.py").read_text()
    document = {"uri": uri, "languageId": "python", "version": 1, "text": text}
    client.send("textDocument/didOpen", {"textDocument": document})
    client.until(b'"version":1')
    chooser = random.Random(7)
    took, before = [], client.cpu_ms()
    for version in range(2, count + 2):
        time.sleep(PAUSE_S)
        client.read_waiting()
        line = chooser.randrange(1_000)
        # A person types inside a line, or begins a new one.
        place = {"line": line, "character": 0 if version % 2 else 8}
        change = {"range": {"start": place, "end": place}, "text": "x = 1\n" if version % 2 else "y"}
        began = time.perf_counter()
        client.send(
            "textDocument/didChange",
            {"textDocument": {"uri": uri, "version": version}, "contentChanges": [change]},
        )
        client.until(b'"version":%d}' % version)
        took.append(1000 * (time.perf_counter() - began))
    # What is sent after the pause (the findings in full) is counted with it.
    time.sleep(PAUSE_S)
    cpu = (client.cpu_ms() - before) / count
    client.close()
    print(
        f"first edit after a pause, 1,000 findings: p50 {percentile(took, 0.5):.1f} ms, "
        f"p95 {percentile(took, 0.95):.1f} ms, processor {cpu:.1f} ms an edit, load {os.getloadavg()[0]:.1f}"
    )


def publishing(folder: Path, files: int, findings: int) -> None:
    top, environment = seeded(folder, files, findings)
    client = EditorClient(SERVER, environment)
    client.initialize(top)
    began = time.perf_counter()
    document = {"uri": (top / "other.py").as_uri(), "languageId": "python", "version": 1, "text": "x = 1\n"}
    client.send("textDocument/didOpen", {"textDocument": document})
    hover = {"textDocument": {"uri": document["uri"]}, "position": {"line": 0, "character": 0}}
    published, asked, waits, number = 0, time.perf_counter(), [], 1000
    client.send("textDocument/hover", hover, number)
    while published < files:
        body = client.read()
        if b"textDocument/publishDiagnostics" in body:
            published += 1
        elif b'"id":%d,' % number in body:
            waits.append(1000 * (time.perf_counter() - asked))
            asked, number = time.perf_counter(), number + 1
            client.send("textDocument/hover", hover, number)
    took, cpu = time.perf_counter() - began, client.cpu_ms()
    client.close()
    print(
        f"{files * findings:,} findings in {files} files at the start: {took:.2f} s (processor {cpu / 1000:.2f} s since "
        f"the process began); {len(waits)} hovers meanwhile, p50 {percentile(waits, 0.5):.1f} ms, "
        f"longest after the first {max(waits[1:] or waits):.0f} ms"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--edits", type=int, default=60)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="outpost-benchmark-") as folder:
        edits(Path(folder) / "edits", asked.edits)
        publishing(Path(folder) / "many", 200, 100)
        publishing(Path(folder) / "few", 20, 1_000)


if __name__ == "__main__":
    main()
