"""From starting a language server to its answer to `initialize`, beside others: `python -m tests.benchmarks.server_start`.

`--jedi PYTHON` names a Python with jedi-language-server. Rounds are interleaved; medians and ratios are printed, with
the memory of each server once it idles.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent


def message(body: dict[str, object]) -> bytes:
    data = json.dumps(body).encode()
    return b"Content-Length: %d\r\n\r\n%b" % (len(data), data)


def answer(process: subprocess.Popen[bytes], wanted: int) -> None:
    assert process.stdout is not None
    while True:
        length = 0
        while (line := process.stdout.readline()) not in (b"\r\n", b""):
            if line.lower().startswith(b"content-length:"):
                length = int(line.split(b":")[1])
        if length == 0:
            raise SystemExit("the server ended")
        if json.loads(process.stdout.read(length)).get("id") == wanted:
            return


def start(command: list[str], folder: Path) -> tuple[float, float]:
    began = time.perf_counter()
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdin is not None
    uri = folder.as_uri()
    parameters = {
        "processId": os.getpid(),
        "rootUri": uri,
        "workspaceFolders": [{"uri": uri, "name": "folder"}],
        "capabilities": {},
    }
    process.stdin.write(message({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": parameters}))
    process.stdin.flush()
    answer(process, 1)
    took_ms = 1000 * (time.perf_counter() - began)
    process.stdin.write(message({"jsonrpc": "2.0", "method": "initialized", "params": {}}))
    process.stdin.flush()
    time.sleep(2.0)
    status = Path(f"/proc/{process.pid}/status").read_text()
    memory_mib = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")) / 1024
    process.stdin.write(message({"jsonrpc": "2.0", "id": 2, "method": "shutdown"}))
    process.stdin.write(message({"jsonrpc": "2.0", "method": "exit"}))
    process.stdin.flush()
    process.wait(20)
    return took_ms, memory_mib


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--jedi", help="the Python of an environment with jedi-language-server")
    parser.add_argument("--rounds", type=int, default=7)
    asked = parser.parse_args()
    commands = {
        "bare pygls": [sys.executable, str(HERE / "contestants" / "bare_pygls.py")],
        "outpost": [sys.executable, "-m", "outpost_lsp", "serve"],
    }
    if asked.jedi:
        commands["jedi-language-server"] = [str(Path(asked.jedi).with_name("jedi-language-server"))]
    rounds = [{name: start(command, HERE) for name, command in commands.items()} for _ in range(asked.rounds)]
    for base in (name for name in commands if name != "outpost"):
        ratio = statistics.median(one["outpost"][0] / one[base][0] for one in rounds)
        print(f"outpost / {base}: {ratio:.2f}")
    for name in commands:
        took = statistics.median(one[name][0] for one in rounds)
        memory = statistics.median(one[name][1] for one in rounds)
        print(f"{name}: {took:.0f} ms to the answer of initialize, {memory:.0f} MiB idle")


if __name__ == "__main__":
    main()
