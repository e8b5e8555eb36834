/** The records of the protocol: runs with their timelines, findings, and what they are made of. */

export interface Position {
  readonly line: number;
  readonly character: number;
}

export interface Range {
  readonly start: Position;
  readonly end: Position;
}

export interface TextEdit {
  readonly range: Range;
  readonly newText: string;
}

/** Token counts; `complete` is false when some request did not report its usage. */
export interface Usage {
  readonly input: number;
  readonly cached: number;
  readonly cacheCreated?: number;
  readonly output: number;
  readonly complete: boolean;
}

export interface Cost {
  readonly amount: number;
  readonly currency: string;
  readonly complete: boolean;
}

export type ScopeKind =
  "uncommitted" | "staged" | "unstaged" | "branch" | "commit" | "file" | "selection" | "workspace";

export interface Scope {
  readonly scope: ScopeKind;
  readonly uri?: string;
  readonly range?: Range;
  readonly base?: string;
  readonly revision?: string;
  readonly paths?: readonly string[];
}

export type RunKind = "review" | "dispatch" | "fix" | "continue" | "replay";

export type RunStatus =
  "queued" | "preparing" | "running" | "waiting" | "succeeded" | "failed" | "cancelled" | "interrupted";

export type Disposition = "none" | "pending" | "applied" | "discarded";

export interface Changes {
  readonly files: number;
  readonly insertions: number;
  readonly deletions: number;
}

export interface RunError {
  readonly code: string;
  readonly message: string;
  readonly details?: Readonly<Record<string, unknown>>;
}

/** One agent, one brief, one snapshot, as people see it. */
export interface Run {
  readonly id: string;
  readonly kind: RunKind;
  readonly agent: string;
  readonly title: string;
  readonly status: RunStatus;
  readonly workspace: string;
  readonly startedAt: string;
  readonly finishedAt?: string;
  readonly base: string;
  readonly scope?: Scope;
  readonly conversation?: string;
  readonly text?: string;
  readonly error?: RunError;
  readonly usage: Usage;
  readonly cost?: Cost;
  readonly models: readonly string[];
  readonly findings: number;
  readonly rejected: number;
  readonly notes: readonly string[];
  readonly changes?: Changes;
  readonly disposition: Disposition;
}

export type Severity = "error" | "warning" | "information" | "hint";

export type FindingStatus = "open" | "stale" | "dismissed" | "fixed";

export interface Suggestion {
  readonly title: string;
  readonly edits: readonly TextEdit[];
}

export interface Dismissal {
  readonly reason?: string;
  readonly at: string;
  readonly until?: string;
}

/** A reviewer's remark, at its current place. */
export interface Finding {
  readonly id: string;
  readonly runId: string;
  readonly agent: string;
  readonly uri: string;
  readonly range: Range;
  readonly severity: Severity;
  readonly code: string;
  readonly title: string;
  readonly detail: string;
  readonly quote: string;
  readonly suggestion?: Suggestion;
  readonly inDiff?: boolean;
  readonly dismissal?: Dismissal;
  readonly confidence?: number;
  readonly status: FindingStatus;
  readonly fingerprint: string;
}

export type RouteReason = "selected" | "confidence" | "unavailable";

export interface ToolCall {
  readonly callId: string;
  readonly name: string;
  readonly input?: unknown;
  readonly at: string;
  readonly status: "running" | "ok" | "failed" | "denied";
  readonly preview?: string;
}

export interface Step {
  readonly index: number;
  readonly subagentId?: string;
  readonly at: string;
  readonly texts: readonly string[];
  readonly tools: readonly ToolCall[];
  readonly notes: readonly string[];
  readonly usage: Usage;
}

export interface Subagent {
  readonly id: string;
  readonly name: string;
  readonly parentId?: string;
  readonly callId: string;
  readonly status: "started" | "finished" | "failed";
  readonly conversation?: string;
  readonly startedAt: string;
  readonly finishedAt?: string;
}

export interface Route {
  readonly step: number;
  readonly subagentId?: string;
  readonly at?: string;
  readonly choice: string;
  readonly model: string;
  readonly reason: RouteReason;
  readonly confidence?: number;
  readonly reportedConfidence?: number;
  readonly rule?: string;
}

export interface ShowResult {
  readonly run: Run;
  readonly steps: readonly Step[];
  readonly subagents: readonly Subagent[];
  readonly routes: readonly Route[];
  readonly untold?: string;
}

const LIVE: ReadonlySet<RunStatus> = new Set(["queued", "preparing", "running", "waiting"]);

/** Whether a run has not ended yet. */
export function isLive(run: Run): boolean {
  return LIVE.has(run.status);
}
