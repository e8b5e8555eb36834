"""Real git repositories for tests: made, changed, looked at and compared with what they were."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CASES = Path(__file__).parent.parent / "cases" / "repos"

_IDENTITY = {
    f"GIT_{role}_{name}": value
    for role in ("AUTHOR", "COMMITTER")
    for name, value in (("NAME", "A Person"), ("EMAIL", "person@example.invalid"), ("DATE", "2024-05-06T07:08:09Z"))
}


@dataclass(frozen=True)
class RealRepository:
    """A checkout on disk and the git program to work on it as its owner would."""

    path: Path

    def git(self, *arguments: str, stdin: bytes | None = None) -> str:
        """Run git as the user would; its output without the last line end."""
        return self.run(*arguments, stdin=stdin).decode("utf-8", "surrogateescape").rstrip("\n")

    def run(self, *arguments: str, stdin: bytes | None = None) -> bytes:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        environment |= _IDENTITY | {"LC_ALL": "C", "GIT_CONFIG_NOSYSTEM": "1", "GIT_OPTIONAL_LOCKS": "0"}
        done = subprocess.run(
            ["git", "-C", str(self.path), *arguments], input=stdin, capture_output=True, env=environment, check=False
        )
        if done.returncode != 0:
            raise AssertionError(f"git {' '.join(arguments)}: {done.stderr.decode(errors='replace')}")
        return done.stdout

    def write(self, name: str, content: str | bytes, *, mode: int | None = None) -> Path:
        """Put a file into the checkout, parents included."""
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        if mode is not None:
            path.chmod(mode)
        return path

    def commit_all(self, message: str = "work") -> str:
        """Commit everything; the commit's name."""
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", message)
        return self.head

    @property
    def head(self) -> str:
        return self.git("rev-parse", "HEAD")

    @property
    def git_dir(self) -> Path:
        return Path(self.git("rev-parse", "--absolute-git-dir"))

    def tree(self, commit: str) -> dict[str, bytes]:
        """The files of a commit, links as their targets."""
        names = [name for name in self.run("ls-tree", "-r", "-z", "--name-only", commit).split(b"\0") if name]
        return {os.fsdecode(name): self.run("cat-file", "blob", f"{commit}:{os.fsdecode(name)}") for name in names}

    def state(self) -> dict[str, str]:
        """What must not change: every file of the checkout and of the git directory but for objects and worktrees.

        Names to digests of kind, mode, size, time and content, so that a rewritten file shows even when it holds the same.
        """
        git_dir = self.git_dir
        found = {}
        for path in sorted(self.path.rglob("*")):
            relative = path.relative_to(git_dir).parts if path.is_relative_to(git_dir) else ()
            if relative[:1] not in {("objects",), ("worktrees",)}:
                found[str(path.relative_to(self.path))] = _digest(path)
        return found


@dataclass(frozen=True)
class Case(RealRepository):
    """A prepared repository, what its builder says about it and what must hold."""

    facts: Mapping[str, Any]
    expected: Mapping[str, Any]

    def fact_bytes(self, name: str) -> list[bytes]:
        """The values of a fact that is kept as base64."""
        value = self.facts[f"{name}:b64"]
        return [base64.b64decode(each) for each in (value if isinstance(value, list) else [value])]


def make_repository(
    path: Path, files: Mapping[str, str | bytes] | None = None, *, commit: bool = True, object_format: str = "sha1"
) -> RealRepository:
    """A new repository on branch `main`, with its files committed unless told otherwise."""
    path.mkdir(parents=True)
    repository = RealRepository(path)
    repository.git("init", "-q", "-b", "main", f"--object-format={object_format}")
    for name, content in (files or {}).items():
        repository.write(name, content)
    if commit:
        repository.commit_all("first")
    return repository


def build_case(name: str, destination: Path) -> Case:
    """Run the builder of a prepared repository."""
    script = next(CASES.glob(f"{name}*.sh"))
    subprocess.run(["bash", str(script), str(destination)], check=True, capture_output=True)
    facts = json.loads((destination / "facts.json").read_text())
    expected = json.loads(script.with_suffix(".expected.json").read_text())
    return Case(destination / "repo", facts, expected)


def _digest(path: Path) -> str:
    status = path.lstat()
    if path.is_symlink():
        return f"link {path.readlink()}"
    if not path.is_file():
        return f"{status.st_mode:o}"
    content = hashlib.sha256(path.read_bytes()).hexdigest()
    return f"{status.st_mode:o} {status.st_mtime_ns} {content}"
