"""The environment of a command: an allow-list, and what the user added to it by name.

The invariant: no variable of the server reaches a command unless it is listed here or was asked for by the user's own
configuration, and none that holds a key ever does (SEC-13, ENV-01, LOCAL-02). Pure; called by leases and by those who
make them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

from outpost_lsp.errors import configuration

ALLOWED: Final = frozenset(
    (
        "PATH",
        "LANG",
        "LANGUAGE",
        "TERM",
        "TZ",
        "TMPDIR",
        "VIRTUAL_ENV",
        "CONDA_PREFIX",
        "SystemRoot",
        "ComSpec",
        "PATHEXT",
    )
)
"""Besides these every `LC_*` variable passes. `HOME` is a folder of the sandbox's own."""

_ASSIGNMENT: Final = re.compile(r"(?:export\s+)?(?P<name>[A-Za-z_][A-Za-z0-9_]*)\s*=\s*(?P<value>.*)")
_QUOTED: Final = re.compile(r"""(?:'(?P<single>[^']*)'|"(?P<double>(?:[^"\\]|\\.)*)")\s*(?:#.*)?""")
_ESCAPE: Final = re.compile(r"\\(.)")
_ESCAPES: Final[Mapping[str, str]] = {"n": "\n", "r": "\r", "t": "\t", '"': '"', "\\": "\\"}
_DEFAULT_PATH: Final = "/usr/local/bin:/usr/bin:/bin"


def allowed_environment(
    host: Mapping[str, str], *, names: Collection[str] = (), secret: Collection[str] = ()
) -> dict[str, str]:
    """The part of the host's environment that commands may see.

    `names` are added by the user's own configuration; `secret` names the variables that hold keys, which never pass.
    """
    wanted = ALLOWED | set(names)
    return {
        name: value
        for name, value in host.items()
        if (name in wanted or name.startswith("LC_")) and name not in secret and name != "HOME"
    }


def merged_variables(provider: Mapping[str, str], agent: Mapping[str, str]) -> dict[str, str]:
    """The variables of the provider and of the agent, which may not name the same one (ENV-04)."""
    both = sorted(provider.keys() & agent.keys())
    if both:
        raise configuration(f"variables: both the sandbox and the agent set {', '.join(both)}", keys=both)
    return {**provider, **agent}


def command_environment(base: Mapping[str, str], home: Path, variables: Mapping[str, str] | None) -> dict[str, str]:
    """The whole environment of one command."""
    return {"PATH": _DEFAULT_PATH, **base, "HOME": str(home), **(variables or {})}


def parse_variables(text: str, host: Mapping[str, str]) -> dict[str, str]:
    r"""The variables of a file of ``KEY=VALUE`` lines; an empty value takes the host's of the same name (ENV-03, ENV-05).

    `export` may stand before the key. Double quotes know ``\n \r \t \" \\``, single ones nothing, and an unquoted value
    ends at `` #``. Lines of any other form are passed over.
    """
    found: dict[str, str] = {}
    for line in text.splitlines():
        match = _ASSIGNMENT.fullmatch(line.strip())
        if match is None:
            continue
        name, value = match["name"], _unquoted(match["value"])
        if value is None:
            continue
        if value:
            found[name] = value
        elif name in host:
            found[name] = host[name]
    return found


def _unquoted(value: str) -> str | None:
    quoted = _QUOTED.fullmatch(value)
    if quoted is not None and quoted["single"] is not None:
        return quoted["single"]
    if quoted is not None:
        return _ESCAPE.sub(lambda escape: _ESCAPES.get(escape[1], escape[0]), quoted["double"])
    if value.startswith(("'", '"')):
        return None
    return re.split(r"(?:^|\s)#", value, maxsplit=1)[0].strip()
