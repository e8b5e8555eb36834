/**
 * What the timeline's page is sent and what it sends back. Shared by both sides; texts only, no markup.
 */

export interface CallView {
  readonly id: string;
  readonly name: string;
  readonly status: "running" | "ok" | "failed" | "denied";
  readonly input: string;
  readonly preview: string;
}

export interface StepView {
  readonly key: string;
  readonly title: string;
  readonly depth: number;
  readonly badge?: { readonly text: string; readonly reason: string; readonly isFallback: boolean };
  readonly facts: string;
  readonly texts: readonly string[];
  readonly calls: readonly CallView[];
  readonly notes: readonly string[];
}

export interface HeadView {
  readonly title: string;
  readonly status: string;
  readonly isLive: boolean;
  readonly facts: readonly string[];
  readonly error: string;
  readonly notes: readonly string[];
  readonly answer: string;
  readonly usage: readonly (readonly [agent: string, tokens: string])[];
  readonly actions: readonly { readonly id: ActionId; readonly title: string }[];
}

export const ACTIONS = ["cancel", "steer", "continue", "showChanges", "apply", "discard", "reopen"] as const;

export type ActionId = (typeof ACTIONS)[number];

export type ToPage =
  | { readonly kind: "all"; readonly runId: string; readonly head: HeadView; readonly steps: readonly StepView[] }
  | { readonly kind: "some"; readonly head: HeadView; readonly steps: readonly StepView[] };

export type FromPage = { readonly kind: "ready" } | { readonly kind: "action"; readonly id: string };
