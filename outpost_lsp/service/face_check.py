"""Whether runs can go elsewhere: the doctor's look at the face that `[runs.ray]` names.

Nothing is sent but the question how the face is; the token is looked up and never shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from outpost_lsp.config.schema import RunSettings
from outpost_lsp.errors import OutpostError
from outpost_lsp.service.executors import face_executor

NAME = "face"


async def face_check(
    runs: RunSettings, environment: Mapping[str, str]
) -> tuple[str, Literal["ok", "warn", "fail"], str]:
    """The check's name, how it went, and what was found or helps.

    A face that cannot be used is a failure only where runs need it.
    """
    is_needed = runs.executor == "ray" and runs.ray.when_away == "fail"
    executor = face_executor(runs.ray, environment)
    try:
        told = await executor.check()
    except OutpostError as error:
        return NAME, "fail" if is_needed else "warn", error.message
    finally:
        await executor.aclose()
    slots, free = told.get("slots"), told.get("free")
    if type(slots) is not int or type(free) is not int:
        return NAME, "fail" if is_needed else "warn", f"{executor.name} does not say how many places for runs it has"
    way = "over TLS" if runs.ray.url.startswith("https://") else "on this machine"
    answered = f"{executor.name} answers {way} and takes the token"
    used = "" if runs.executor == "ray" else '; runs.executor is "local", so runs are carried out here'
    if slots == 0:
        helps = "start one with outpost-lsp worker --ray ADDRESS"
        return NAME, "fail" if is_needed else "warn", f"{answered}, but no worker has joined its cluster; {helps}"
    if free == 0:
        return NAME, "warn", f"{answered}; all of its {slots} places are taken, so runs wait{used}"
    return NAME, "ok", f"{answered}; {free} of {slots} places are free{used}"
