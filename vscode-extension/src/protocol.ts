/**
 * The editor protocol, version 1, as types: records, commands and notifications of the server.
 *
 * Nothing here runs. The golden messages that the server's own tests use are compiled against these types, so that
 * neither side can change a name alone.
 */

export const PROTOCOL_VERSION = 1;

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
}

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

export interface RaisedLimits {
  readonly maxSteps?: number;
  readonly maxToolCalls?: number;
  readonly maxDelegationDepth?: number;
  readonly usage?: {
    readonly input?: number;
    readonly cached?: number;
    readonly cacheCreated?: number;
    readonly output?: number;
  };
}

interface Startable {
  readonly wait?: boolean;
}

export interface ReviewParams extends Startable {
  readonly scope?: ScopeKind;
  readonly uri?: string;
  readonly range?: Range;
  readonly base?: string;
  readonly revision?: string;
  readonly agent?: string;
  readonly brief?: string;
}

interface Started {
  readonly run: Run;
}

/** Every command that the server knows: what it takes and what it answers. */
export interface Commands {
  "outpost.review": { params: ReviewParams; result: Started };
  "outpost.coordinate": {
    params: Startable & { readonly brief: string; readonly uri?: string; readonly agent?: string };
    result: Started;
  };
  "outpost.dispatch": {
    params: Startable & { readonly agent: string; readonly brief: string; readonly uri?: string };
    result: Started;
  };
  "outpost.fix": { params: Startable & { readonly findingId: string; readonly agent?: string }; result: Started };
  "outpost.continue": {
    params: Startable & {
      readonly conversation: string;
      readonly brief: string;
      readonly agent?: string;
      readonly limits?: RaisedLimits;
      readonly fork?: boolean;
    };
    result: Started;
  };
  "outpost.cancel": { params: { readonly runId: string }; result: { readonly cancelled: boolean } };
  "outpost.steer": {
    params: { readonly runId: string; readonly text: string; readonly subagent?: string | null };
    result: { readonly delivery: "injected" | "resumed" };
  };
  "outpost.runs": {
    params: { readonly limit?: number; readonly status?: RunStatus };
    result: { readonly runs: readonly Run[] };
  };
  "outpost.show": { params: { readonly runId: string }; result: ShowResult };
  "outpost.transcript": {
    params: { readonly conversation: string };
    result: { readonly messages: readonly Readonly<Record<string, unknown>>[] };
  };
  "outpost.diff": {
    params: { readonly runId: string };
    result: { readonly files: readonly ChangedFile[]; readonly patch: string };
  };
  "outpost.apply": {
    params: { readonly runId: string; readonly paths?: readonly string[]; readonly hunks?: readonly string[] };
    result: ApplyResult;
  };
  "outpost.discard": { params: { readonly runId: string }; result: { readonly discarded: boolean } };
  "outpost.reopen": { params: { readonly runId: string }; result: Started };
  "outpost.trust": {
    params: { readonly uri?: string; readonly trusted: boolean };
    result: { readonly trusted: boolean };
  };
  "outpost.worktrees": {
    params: { readonly prune?: boolean };
    result: { readonly worktrees: readonly WorktreeEntry[] };
  };
  "outpost.findings": {
    params: { readonly uri?: string; readonly status?: FindingStatus };
    result: { readonly findings: readonly Finding[] };
  };
  "outpost.dismiss": {
    params: { readonly findingId: string; readonly reason?: string; readonly until?: string };
    result: { readonly finding: Finding };
  };
  "outpost.restore": { params: { readonly findingId: string }; result: { readonly finding: Finding } };
  "outpost.clear": { params: { readonly uri?: string }; result: { readonly cleared: number } };
  "outpost.replay": { params: Startable & { readonly runId: string }; result: Started };
  "outpost.agents": { params: Readonly<Record<string, never>>; result: { readonly agents: readonly AgentEntry[] } };
  "outpost.doctor": { params: Readonly<Record<string, never>>; result: { readonly checks: readonly Check[] } };
}

export type CommandName = keyof Commands;

export interface RouteNews extends Route {
  readonly runId: string;
  readonly agent: string;
}

export interface Budget {
  readonly agent: string;
  readonly limits: Readonly<Record<string, number>>;
  readonly used: Usage;
}

export interface UsageNews {
  readonly runId: string;
  readonly agent: string;
  readonly subagentId?: string;
  readonly step?: number;
  readonly source: "model" | "decision" | "summary";
  readonly model: string;
  readonly delta: Usage;
  readonly total: Usage;
  readonly budgets: readonly Budget[];
  readonly cost?: Cost;
}

export interface SubagentNews {
  readonly runId: string;
  readonly id: string;
  readonly name: string;
  readonly status: "started" | "finished" | "failed";
  readonly parentId?: string;
  readonly callId: string;
  readonly conversation?: string;
}

/** An event of an agent as the engine spells it; which other fields there are depends on `kind`. */
export interface AgentEvent {
  readonly kind: string;
  readonly subagentId?: string;
  readonly at?: string;
  readonly [field: string]: unknown;
}

/** Every notification of ours that the server sends. */
export interface Notifications {
  "$/outpost/run": { readonly run: Run };
  "$/outpost/route": RouteNews;
  "$/outpost/usage": UsageNews;
  "$/outpost/subagent": SubagentNews;
  "$/outpost/findings": { readonly uri: string; readonly findings: readonly Finding[] };
  "$/outpost/event": { readonly runId: string; readonly event: AgentEvent };
}

export type NotificationName = keyof Notifications;

export const NOTIFICATION_NAMES: readonly NotificationName[] = [
  "$/outpost/run",
  "$/outpost/route",
  "$/outpost/usage",
  "$/outpost/subagent",
  "$/outpost/findings",
  "$/outpost/event",
];

export const SECRET_REQUEST = "outpost/secret";

/** What the server puts into a failed request's `data`. */
export interface Failure {
  readonly code: string;
  readonly message: string;
  readonly details?: Readonly<Record<string, unknown>>;
  readonly runId?: string;
}

const LIVE: ReadonlySet<RunStatus> = new Set(["queued", "preparing", "running", "waiting"]);

/** Whether a run has not ended yet. */
export function isLive(run: Run): boolean {
  return LIVE.has(run.status);
}
