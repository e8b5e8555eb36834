/** What the server tells without being asked. */

import type { Cost, Finding, Route, Run, Usage } from "./records";

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
