"""Probes of an open sandbox: whether what agents and their tools need is there (DOC-01 to DOC-03).

No probe asks a model or a service for anything, none takes longer than its deadline, and one that raises is a failed
check, not an exception. Called by open sandboxes and by the doctor.
"""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, Literal

import anyio
from anyio import to_thread

from outpost_lsp.domain.markdown import one_line
from outpost_lsp.domain.sandbox import Command, CommandResult, Lease
from outpost_lsp.errors import OutpostError, configuration

ProbeStatus = Literal["pass", "warn", "fail", "skipped"]
LONGEST_S: Final = 60.0
_SENTINEL: Final = "printf 'to stdout'; printf 'to stderr' >&2; exit 7"
_HOME: Final = 'test -d "$HOME" && test -w "$HOME" && cd "$HOME" && pwd'


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """What one probe found. `remedy` says what helps where something is wrong, and is empty otherwise."""

    name: str
    status: ProbeStatus
    message: str
    remedy: str = ""


Probe = Callable[[], Awaitable[ProbeResult]]


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The results of all probes, in the order in which they ran."""

    checks: tuple[ProbeResult, ...]

    @property
    def has_failures(self) -> bool:
        """Whether a check failed; warnings and skipped checks are no failures."""
        return any(check.status == "fail" for check in self.checks)


async def diagnose_sandbox(
    lease: Lease,
    *,
    programs: Sequence[str] = ("git",),
    needed: Sequence[str] = (),
    transfers: bool = False,
    deadline_s: float = 10.0,
) -> Diagnosis:
    """Probe a sandbox. `programs` are asked for their version; those in `needed` are only looked up.

    With `transfers` a file makes the way in and out again. `configuration` for a deadline that is not above 0 and at
    most 60 seconds.
    """
    if isinstance(deadline_s, bool) or not isinstance(deadline_s, int | float) or not 0 < deadline_s <= LONGEST_S:
        raise configuration(f"diagnose: deadline_s: a number above 0 and at most {LONGEST_S:g} is expected")
    probes: list[tuple[str, Probe]] = [
        *((f"program {name}", partial(_version, lease, name, deadline_s)) for name in dict.fromkeys(programs)),
        *((f"program {name}", partial(_found, lease, name, deadline_s)) for name in dict.fromkeys(needed)),
        ("commands", partial(_commands, lease, deadline_s)),
        ("home", partial(_home, lease, deadline_s)),
        *([("transfers", partial(_transfers, lease))] if transfers else []),
    ]
    checks = [await _guarded(name, probe, deadline_s) for name, probe in probes]
    checks.append(ProbeResult("authentication", "skipped", "not verified: no request is made"))
    checks.append(ProbeResult("model access", "skipped", "not verified: no request is made"))
    return Diagnosis(tuple(checks))


async def _guarded(name: str, probe: Probe, deadline_s: float) -> ProbeResult:
    slow = ProbeResult(
        name, "fail", f"no answer within {deadline_s:g} s", "Look for what holds it up, or allow more time."
    )
    try:
        with anyio.fail_after(deadline_s):
            return await probe()
    except TimeoutError:
        return slow
    except OutpostError as error:
        return slow if error.code == "timeout" else ProbeResult(name, "fail", error.message, _remedy(name))
    except Exception as error:  # noqa: BLE001 - a probe that raises is a failed check (DOC-03)
        return ProbeResult(name, "fail", str(error) or type(error).__name__, _remedy(name))


def _remedy(name: str) -> str:
    kind, _, program = name.partition(" ")
    if kind == "program":
        return f"Install {program}, or put it on the PATH that commands get."
    return "Look at what the sandbox's provider says, and whether its folders are writable."


async def _version(lease: Lease, program: str, deadline_s: float) -> ProbeResult:
    name = f"program {program}"
    result = await _run(lease, deadline_s, program, "--version")
    words = (result.stdout.strip() or result.stderr.strip()).splitlines()
    if result.status != 0:
        return ProbeResult(name, "fail", f"{program} --version ended with status {result.status}", _remedy(name))
    if not words:
        return ProbeResult(name, "warn", f"{program} tells no version", "Ask its authors which version it is.")
    return ProbeResult(name, "pass", one_line(words[0], 200))


async def _found(lease: Lease, program: str, deadline_s: float) -> ProbeResult:
    name = f"program {program}"
    result = await _run(lease, deadline_s, "sh", "-c", 'command -v -- "$1"', "sh", program)
    if result.status != 0:
        return ProbeResult(name, "fail", f"{program} is not found in the sandbox", _remedy(name))
    return ProbeResult(name, "pass", one_line(result.stdout.strip(), 200))


async def _commands(lease: Lease, deadline_s: float) -> ProbeResult:
    result = await _run(lease, deadline_s, "sh", "-c", _SENTINEL)
    if (result.status, result.stdout, result.stderr) == (7, "to stdout", "to stderr"):
        return ProbeResult("commands", "pass", "output, error output and exit status arrive separately")
    found = f"status {result.status}, output {result.stdout[:80]!r}, error output {result.stderr[:80]!r}"
    return ProbeResult("commands", "fail", f"a known command gave {found}", _remedy("commands"))


async def _home(lease: Lease, deadline_s: float) -> ProbeResult:
    result = await _run(lease, deadline_s, "sh", "-c", _HOME)
    if result.status != 0:
        return ProbeResult("home", "fail", "the home folder is not there or not writable", _remedy("home"))
    return ProbeResult("home", "pass", one_line(result.stdout.strip(), 500))


async def _transfers(lease: Lease) -> ProbeResult:
    data, name = secrets.token_bytes(4_096), f".outpost-probe-{secrets.token_hex(8)}"
    with tempfile.TemporaryDirectory() as folder:
        sent, back = Path(folder) / "sent", Path(folder) / "back"
        await to_thread.run_sync(sent.write_bytes, data)
        await lease.upload(sent, name)
        try:
            await lease.download(name, back)
        finally:
            await lease.files.delete(name)
        arrived = await to_thread.run_sync(back.read_bytes)
    if arrived != data:
        return ProbeResult("transfers", "fail", "a file came back changed", _remedy("transfers"))
    return ProbeResult("transfers", "pass", "a file came back as it was sent")


async def _run(lease: Lease, deadline_s: float, executable: str, *arguments: str) -> CommandResult:
    return await lease.invoke(Command(executable=executable, arguments=arguments, deadline_s=deadline_s))
