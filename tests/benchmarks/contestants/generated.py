"""A generated repository: small text files, 50 in a folder, one commit, packed."""

from __future__ import annotations

import os
import random
import subprocess
from pathlib import Path


def make_repository(top: Path, files: int) -> list[str]:
    """Make it; the paths of its files. The same number gives the same contents."""
    top.mkdir()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environment["GIT_CONFIG_GLOBAL"] = os.devnull
    paths = [f"p{n // 2000:03d}/m{n // 50 % 40:02d}/f{n % 50:02d}.py" for n in range(files)]
    chance = random.Random(7)
    stream = [b"commit refs/heads/main\ncommitter b <b@localhost> 1700000000 +0000\ndata 5\nfirst\n"]
    for path in paths:
        lines = (f"word_{chance.randrange(400)} = {chance.randrange(10**6)}\n" for _ in range(chance.randrange(9, 180)))
        data = "".join(lines).encode()
        stream.append(b"M 100644 inline %s\ndata %d\n%s\n" % (path.encode(), len(data), data))
    git = ["git", "-C", str(top)]
    subprocess.run([*git, "init", "-q", "-b", "main"], check=True, env=environment)
    for key, value in (("user.name", "b"), ("user.email", "b@localhost"), ("gc.auto", "0")):
        subprocess.run([*git, "config", key, value], check=True, env=environment)
    subprocess.run([*git, "fast-import", "--quiet"], input=b"".join(stream), check=True, env=environment)
    subprocess.run([*git, "reset", "-q", "--hard"], check=True, env=environment)
    return paths
