"""An agent that works on another machine: what a dispatch is given in the place of a built-in one.

It is used for one dispatch. The executor and the job's record come from whoever decides where runs are carried out;
`remote_turns.py` sends the job and carries its events on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from outpost_lsp.domain.job import Executor, JobRecord
from outpost_lsp.domain.usage import UsageLimits
from outpost_lsp.worktrees.snapshot import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteAgent:
    """A run for an executor. `job` says everything but what only the opened sandbox knows: brief and commits."""

    executor: Executor
    job: JobRecord
    model: str
    """The model that the agent starts with, by the name that its service knows."""
    packs: Path
    """A folder for the packs of bases, which are made once for each commit."""
    compared_with: str = ""
    """The commit that a review's brief compares with; it travels in the delta."""
    usage_limits: Mapping[str, UsageLimits] = field(default_factory=dict)
    """The ceilings of agents by their names: the agent's own and those of its subagents."""

    def record_on(self, snapshot: Snapshot, prompt: str) -> JobRecord:
        """The job's record for an opened snapshot; its `commits` are what the delta has to bring."""
        base = snapshot.parent or snapshot.commit
        brought = (commit for commit in (self.compared_with, snapshot.commit) if commit not in ("", base))
        return self.job.model_copy(
            update={
                "brief": prompt,
                "base": base,
                "snapshot": snapshot.commit,
                "tree": snapshot.tree,
                "commits": tuple(dict.fromkeys(brought)),
            }
        )
