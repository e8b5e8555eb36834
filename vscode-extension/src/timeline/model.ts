/**
 * A run from its first step to its last, as the timeline shows it: what `outpost.show` told, and what happened since.
 *
 * Events may arrive that the answer holds already; each is taken once, by the id of its step or call. When the run ends,
 * the answer is asked for again and is final.
 */

import type { AgentEvent, Route, Run, ShowResult, Step, Subagent, SubagentNews, ToolCall, Usage } from "../protocol";
import { added } from "../runs/store";

const NOTHING: Usage = { input: 0, cached: 0, output: 0, complete: true };

export interface ShownStep {
  readonly key: string;
  readonly step: Step;
  readonly who: string;
  readonly depth: number;
  readonly route?: Route;
}

export class TimelineModel {
  run: Run;
  /** Why there is no step, while there is none. */
  untold: string | undefined;
  private steps = new Map<string, Step>();
  private subagents = new Map<string, Subagent>();
  private routes = new Map<string, Route>();
  private current = new Map<string, string>();
  private changed = new Set<string>();

  constructor(told: ShowResult) {
    this.run = told.run;
    this.tell(told);
  }

  /** Take an answer of `outpost.show` for the whole truth. */
  tell(told: ShowResult): void {
    this.run = told.run;
    this.untold = told.untold;
    this.subagents = new Map(told.subagents.map((subagent) => [subagent.id, subagent]));
    this.routes = new Map(told.routes.map((route) => [stepKey(route.subagentId, route.step), route]));
    this.steps = new Map();
    this.current = new Map();
    for (const step of told.steps) {
      this.put(step);
      this.current.set(step.subagentId ?? "", keyOf(step));
    }
    this.changed = new Set(this.steps.keys());
  }

  /** Everything, in order. */
  all(): ShownStep[] {
    this.changed.clear();
    return [...this.steps.keys()].map((key) => this.shown(key));
  }

  /** The steps that changed since they were last taken. */
  takeChanged(): ShownStep[] {
    const keys = [...this.changed];
    this.changed.clear();
    return keys.map((key) => this.shown(key));
  }

  routed(route: Route): void {
    const key = stepKey(route.subagentId, route.step);
    this.routes.set(key, route);
    if (this.steps.has(key)) {
      this.changed.add(key);
    }
  }

  delegated(news: SubagentNews, at: string): void {
    const known = this.subagents.get(news.id);
    this.subagents.set(news.id, {
      id: news.id,
      name: news.name,
      ...(news.parentId === undefined ? {} : { parentId: news.parentId }),
      callId: news.callId,
      status: news.status,
      startedAt: known?.startedAt ?? at,
      ...(news.status === "started" ? {} : { finishedAt: at }),
    });
  }

  happened(event: AgentEvent): void {
    const owner = event.subagentId ?? "";
    if (event.kind === "step" && typeof event["index"] === "number") {
      const key = stepKey(event.subagentId, event["index"]);
      this.current.set(owner, key);
      if (!this.steps.has(key)) {
        this.put(newStep(event["index"], event.subagentId, event.at ?? ""));
      }
      return;
    }
    const step = this.steps.get(this.current.get(owner) ?? "");
    if (step === undefined) {
      return;
    }
    const after = withEvent(step, event);
    if (after !== step) {
      this.put(after);
    }
  }

  private put(step: Step): void {
    const key = keyOf(step);
    this.steps.set(key, step);
    this.changed.add(key);
  }

  private shown(key: string): ShownStep {
    const step = this.steps.get(key);
    if (step === undefined) {
      throw new Error(`there is no step ${key}`);
    }
    const subagent = step.subagentId === undefined ? undefined : this.subagents.get(step.subagentId);
    const route = this.routes.get(key);
    return {
      key,
      step,
      who: step.subagentId === undefined ? this.run.agent : (subagent?.name ?? step.subagentId),
      depth: step.subagentId === undefined ? 0 : this.depth(subagent),
      ...(route === undefined ? {} : { route }),
    };
  }

  private depth(subagent: Subagent | undefined): number {
    let depth = 1;
    let parent = subagent?.parentId;
    while (parent !== undefined && depth < 8) {
      depth += 1;
      parent = this.subagents.get(parent)?.parentId;
    }
    return depth;
  }
}

function keyOf(step: Step): string {
  return stepKey(step.subagentId, step.index);
}

function stepKey(subagentId: string | undefined, index: number): string {
  return `${subagentId ?? ""}#${String(index)}`;
}

function newStep(index: number, subagentId: string | undefined, at: string): Step {
  return {
    index,
    ...(subagentId === undefined ? {} : { subagentId }),
    at,
    texts: [],
    tools: [],
    notes: [],
    usage: NOTHING,
  };
}

/** A step with what an event adds to it; the very same step when it adds nothing. */
function withEvent(step: Step, event: AgentEvent): Step {
  switch (event.kind) {
    case "text": {
      const said = text(event["text"]);
      return step.texts.includes(said) ? step : { ...step, texts: [...step.texts, said] };
    }
    case "tool":
      return withCall(step, event, (known) => ({
        ...known,
        input: event["input"],
      }));
    case "tool-result":
      return withCall(step, event, (known) =>
        known.status === "denied"
          ? known
          : { ...known, status: event["isError"] === true ? "failed" : "ok", preview: text(event["preview"]) },
      );
    case "tool-denied":
      return withCall(step, event, (known) => ({ ...known, status: "denied", preview: text(event["reason"]) }));
    case "usage":
      return { ...step, usage: added(step.usage, usageOf(event["tokens"])) };
    default: {
      const note = noteOf(event);
      return note === undefined || step.notes.includes(note) ? step : { ...step, notes: [...step.notes, note] };
    }
  }
}

function withCall(step: Step, event: AgentEvent, change: (known: ToolCall) => ToolCall): Step {
  const callId = typeof event["callId"] === "string" ? event["callId"] : `call ${String(step.tools.length + 1)}`;
  const known = step.tools.find((call) => call.callId === callId);
  const after = change(known ?? { callId, name: text(event["name"]), at: event.at ?? step.at, status: "running" });
  const tools =
    known === undefined ? [...step.tools, after] : step.tools.map((call) => (call === known ? after : call));
  return { ...step, tools };
}

function text(value: unknown): string {
  return typeof value === "string" ? value : "";
}

/** The engine's own spelling of a usage: what is zero, or complete, may be left out. */
function usageOf(value: unknown): Usage {
  const told = typeof value === "object" && value !== null ? (value as Partial<Usage>) : {};
  return {
    input: told.input ?? 0,
    cached: told.cached ?? 0,
    output: told.output ?? 0,
    complete: told.complete !== false,
  };
}

function noteOf(event: AgentEvent): string | undefined {
  switch (event.kind) {
    case "finding":
      return typeof event["rejected"] === "string"
        ? `finding refused: ${event["rejected"]}`
        : findingNote(event["finding"]);
    case "steer":
      return `instruction ${String(event["mode"])}: ${text(event["text"])}`;
    case "compaction":
      return `history shortened by ${String(event["strategy"])}`;
    case "warning":
      return String(event["message"]);
    default:
      return undefined;
  }
}

function findingNote(finding: unknown): string | undefined {
  if (typeof finding !== "object" || finding === null) {
    return undefined;
  }
  const { path, severity, title, span } = finding as Record<string, unknown>;
  const line = (span as { startLine?: number } | undefined)?.startLine;
  return `finding ${String(path)}${line === undefined ? "" : `:${String(line + 1)}`}: ${String(severity)}: ${String(title)}`;
}
