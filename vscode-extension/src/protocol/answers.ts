/** What commands answer beside runs and findings: changes, agents, checks, worktrees. */

export interface Hunk {
  readonly id: string;
  readonly header: string;
}

/** A file that an agent changed; `before` and `after` are absent for binary files. */
export interface ChangedFile {
  readonly path: string;
  readonly uri: string;
  readonly status: "added" | "modified" | "deleted" | "renamed";
  readonly oldUri?: string;
  readonly before?: string;
  readonly after?: string;
  readonly hunks: readonly Hunk[];
}

export interface Conflict {
  readonly path: string;
  readonly reason: string;
}

export interface ApplyResult {
  readonly applied: boolean;
  readonly files: readonly string[];
  readonly conflicts: readonly Conflict[];
  readonly needsOwnAccept: readonly string[];
}

export interface AgentEntry {
  readonly name: string;
  readonly description: string;
  readonly model: string;
  readonly tools: readonly string[];
  readonly subagents: readonly string[];
  readonly limits: Readonly<Record<string, unknown>>;
  readonly routing?: string;
}

export interface Check {
  readonly name: string;
  readonly status: "ok" | "warn" | "fail";
  readonly detail: string;
}

export interface WorktreeEntry {
  readonly path: string;
  readonly runId: string;
  readonly size: number;
  readonly inUse: boolean;
  readonly changed: boolean;
}
