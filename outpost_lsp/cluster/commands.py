"""The commands of a cluster's operator: a node that works, and the face. Both stay in the foreground.

A worker becomes Ray's own program: joining, dying and restarting a node are Ray's business.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import threading
from pathlib import Path
from typing import Final, NoReturn

from outpost_lsp.cluster.resources import BASES_VARIABLE, FOLDER_VARIABLE, SHELL, SLOT, WARM
from outpost_lsp.cluster.tokens import token_digest
from outpost_lsp.errors import OutpostError, configuration

_MODE: Final = "RAY_AUTH_MODE"


def worker(options: argparse.Namespace) -> NoReturn:
    """Join this machine to a cluster, with so many places for runs; ends when the node does."""
    _check_token()
    program = shutil.which("ray", path=os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", ""))))
    if program is None:
        raise configuration("ray is not installed; install it with: pip install 'outpost-lsp[ray]'", extra="ray")
    resources = {SLOT: options.slots, **({SHELL: options.slots} if options.shell else {})}
    arguments = [
        program,
        "start",
        f"--address={options.ray}",
        f"--resources={json.dumps(resources)}",
        "--disable-usage-stats",
        "--block",
    ]
    if options.node_ip_address:
        arguments.append(f"--node-ip-address={options.node_ip_address}")
    environment = {
        **WARM,
        **os.environ,
        FOLDER_VARIABLE: str(_folder(options, "worker")),
        BASES_VARIABLE: str(options.bases << 30),
    }
    os.execve(program, arguments, environment)  # noqa: S606 - it is this process that becomes Ray's


def face(options: argparse.Namespace) -> int:
    """Serve a cluster's face until Ctrl-C or SIGTERM."""
    _check_token()
    tokens = _tokens(options)
    host, port = _listen(options.listen)
    if not _is_loopback(host) and options.certificate is None:
        raise configuration(f"--listen {options.listen}: a face for other machines needs --certificate and --key")
    if (options.certificate is None) != (options.key is None):
        raise configuration("--certificate and --key go together")
    try:
        from outpost_lsp.cluster.ray_face import start, stop
    except ImportError as error:
        raise OutpostError(
            "configuration", "ray is not installed; install it with: pip install 'outpost-lsp[ray]'", {"extra": "ray"}
        ) from error
    start(
        options.ray,
        tokens,
        host=host,
        port=port,
        certificate=None if options.certificate is None else Path(options.certificate),
        key=None if options.key is None else Path(options.key),
        replicas=options.replicas,
        folder=_folder(options, "face"),
    )
    scheme = "http" if options.certificate is None else "https"
    print(f"outpost-lsp: the face answers on {scheme}://{host}:{port}", flush=True)
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    ended.wait()
    stop()
    return 0


def _check_token() -> None:
    if os.environ.get(_MODE) != "token":
        raise configuration(
            f"a cluster without token is refused, because whoever reaches it can run code on it: set {_MODE}=token "
            "everywhere and make a token with `ray get-auth-token --generate`",
            variable=_MODE,
        )


def _tokens(options: argparse.Namespace) -> tuple[str, ...]:
    """The tokens that the face accepts: one a line of a file, or in a variable."""
    if options.token_file is not None:
        try:
            text = Path(options.token_file).read_text("utf-8")
        except OSError as error:
            raise configuration(f"--token-file {options.token_file}: {error.strerror}") from error
    else:
        text = os.environ.get(options.token_env, "")
    tokens = tuple(line.strip() for line in text.splitlines() if line.strip())
    if not tokens:
        raise configuration(f"the face has no token: set {options.token_env}, or name a file with --token-file")
    for token in tokens:
        token_digest(token)
    return tokens


def _listen(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or not 0 < int(port) < 65_536:
        raise configuration(f"--listen {text}: HOST:PORT is expected")
    return host.strip("[]") or "127.0.0.1", int(port)


def _is_loopback(host: str) -> bool:
    return host in ("127.0.0.1", "::1", "localhost")


def _folder(options: argparse.Namespace, name: str) -> Path:
    if options.directory:
        return Path(options.directory).absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "outpost" / name
