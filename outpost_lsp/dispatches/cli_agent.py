"""An external coding agent as it is declared: a program that speaks the Agent Client Protocol over its pipes.

The invariant: a declaration holds no secret and starts nothing. `cli_turn.py` carries its turns; the package
`agent-client-protocol` is needed only then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePath
from types import MappingProxyType
from typing import Annotated, Final

from pydantic import Field, field_validator

from outpost_lsp.domain.model import ModelSpec
from outpost_lsp.domain.permission import PermissionRule, Permissions
from outpost_lsp.domain.record import Declaration
from outpost_lsp.errors import configuration

UNASKED: Final = Permissions(
    [
        PermissionRule("allow", tools=["read", "search", "edit", "delete", "move"], paths=["**"]),
        PermissionRule("allow", tools=["think"]),
    ],
    "ask",
)
"""What an agent without rules of its own may do: work on files of the worktree. A person is asked for all else."""


class CliAgent(Declaration):
    """An external agent. It brings its own model; `model` names it for prices, and is chosen where the agent lets one.

    Tools are known to `permissions` by the protocol's kinds: read, edit, delete, move, search, execute, think, fetch,
    switch_mode and other. `shell` lets it run commands through the product; what it does by itself is its own affair.
    `variables` names variables of the sandbox that the program gets.
    """

    command: Annotated[tuple[str, ...], Field(min_length=1)]
    model: ModelSpec | None = None
    environment: Mapping[str, str] = MappingProxyType({})
    variables: tuple[str, ...] = ()
    permissions: Permissions | None = None
    shell: bool = False
    startup_timeout_s: Annotated[float, Field(gt=0, allow_inf_nan=False, strict=True)] = 60

    def __init__(
        self,
        command: str | Sequence[str],
        model: str | ModelSpec | None = None,
        *,
        environment: Mapping[str, str] | None = None,
        variables: Sequence[str] = (),
        permissions: Permissions | None = None,
        shell: bool = False,
        startup_timeout_s: float = 60,
    ) -> None:
        if isinstance(variables, str):
            raise configuration("CliAgent: variables: a list is expected")
        super().__init__(
            command=(command,) if isinstance(command, str) else command,
            model=ModelSpec.of(model) if isinstance(model, str | ModelSpec) else model,
            environment=MappingProxyType(dict(environment or {})),
            variables=tuple(variables),
            permissions=permissions,
            shell=shell,
            startup_timeout_s=startup_timeout_s,
        )

    @field_validator("command", mode="before")
    @classmethod
    def _names_a_program(cls, value: object) -> object:
        if not isinstance(value, list | tuple) or not all(isinstance(part, str) for part in value):
            raise ValueError("a program and its arguments are expected, each a text of its own")
        if not value or not value[0].strip() or any("\0" in part for part in value):
            raise ValueError("the name of a program is expected first, and no text may hold a NUL")
        return tuple(value)

    @property
    def name(self) -> str:
        """What people know it by: its model, else its program."""
        return self.model.name if self.model is not None else PurePath(self.command[0]).name
