/** Every command of the server: what it takes and what it answers. */

import type { AgentEntry, ApplyResult, ChangedFile, Check, WorktreeEntry } from "./answers";
import type { Finding, FindingStatus, Range, Run, RunStatus, ScopeKind, ShowResult } from "./records";

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
