"""A run's sandbox in a large repository (REL-15): `python -m tests.benchmarks.large_repository [--files N] [--mib N]`.

Prints JSON: seconds until the sandbox can be worked in, and until a command has run in it (which needs every file); the
peak memory of the process; the longest time the event loop was kept from others, in processor time and by the clock; and
how much disk was used, in sizes of the repository's tree. The figures of the rule are for 100,000 files and 1,000 MiB.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import tempfile
import time
from pathlib import Path

from outpost_lsp import Command, Layout, WorktreeSandboxProvider, open_sandbox

_LARGE = 10 * 1024 * 1024


def build(folder: Path, files: int, mib: int) -> None:
    """A repository whose checkout is clean: many small files, and large ones that make up the size."""
    large = mib * 1024 * 1024 // _LARGE
    folder.mkdir()
    for number in range(files - large):
        place = folder / f"part{number // 1_000}"
        if number % 1_000 == 0:
            place.mkdir()
        (place / f"file{number}.py").write_bytes(b"value = %d\n" % number)
    (folder / "large").mkdir()
    for number in range(large):
        with (folder / "large" / f"file{number}.bin").open("wb") as file:
            file.write(b"%d" % number)
            file.truncate(_LARGE)
    for arguments in (
        ("init", "-q", "-b", "main"),
        ("-c", "core.compression=0", "-c", "core.bigFileThreshold=1m", "add", "-A"),
        ("-c", "user.name=T", "-c", "user.email=t@localhost", "commit", "-q", "-m", "first"),
    ):
        subprocess.run(["git", "-c", "gc.auto=0", *arguments], cwd=folder, check=True)


def peak_mib() -> float:
    """The most memory of this program; what `getrusage` tells includes that of whoever started it."""
    status = Path("/proc/self/status").read_text("ascii", "replace")
    line = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) / 1024


class Watch:
    """The longest time between two turns of the event loop that somebody else had asked for."""

    def __init__(self) -> None:
        self.processor_s = self.clock_s = 0.0

    async def run(self) -> None:
        while True:
            clock, processor = time.perf_counter(), time.thread_time()
            await asyncio.sleep(0.005)
            self.clock_s = max(self.clock_s, time.perf_counter() - clock - 0.005)
            self.processor_s = max(self.processor_s, time.thread_time() - processor)


def used(folder: Path) -> int:
    """Bytes of the files below a folder."""
    return sum(path.lstat().st_size for path in folder.rglob("*") if not path.is_dir())


async def measure(repository: Path, scratch: Path) -> dict[str, float]:
    """One sandbox: opened, looked into, edited, and a command run."""
    tree, objects = used(repository) - used(repository / ".git"), used(repository / ".git")
    provider = WorktreeSandboxProvider(layout=Layout(scratch / "state", scratch / "cache"), lazy=True)
    watch = Watch()
    watching = asyncio.ensure_future(watch.run())
    start = time.perf_counter()
    async with open_sandbox(repository, sandbox_provider=provider) as sandbox:
        lease = sandbox._opened.lease
        await lease.files.read("part0/file7.py", limit=100)
        await lease.files.write("part0/file7.py", b"value = 8\n")
        ready_s = time.perf_counter() - start
        watching.cancel()
        before = used(sandbox.root)
        watching = asyncio.ensure_future(watch.run())
        start = time.perf_counter()
        result = await sandbox.command(Command(executable="git", arguments=("status", "--porcelain")))
        assert result.stdout == " M part0/file7.py\n", result
        full_s = ready_s + time.perf_counter() - start
        watching.cancel()
        copies = (used(sandbox.root) + used(repository / ".git") - objects) / tree
    return {
        "ready_s": round(ready_s, 2),
        "full_s": round(full_s, 2),
        "peak_mib": peak_mib(),
        "loop_processor_ms": round(watch.processor_s * 1000, 1),
        "loop_clock_ms": round(watch.clock_s * 1000, 1),
        "copies_when_ready": round(before / tree, 3),
        "copies": round(copies, 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--mib", type=int, default=1_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        build(Path(folder) / "repository", options.files, options.mib)
        print(json.dumps(asyncio.run(measure(Path(folder) / "repository", Path(folder)))))


if __name__ == "__main__":
    main()
