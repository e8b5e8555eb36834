/**
 * The runs that the server told of, each with its agents as a tree; kept up to date by notifications alone.
 *
 * Changes are collected and told at most ten times a second, whatever the number of events. A run of an earlier session
 * has no agents until its timeline was asked for.
 */

import { Coalescer } from "../coalesce";
import { Emitter, type News, type Subscription } from "../news";
import { isLive, type AgentEvent, type Route, type Run, type ShowResult, type Usage } from "../protocol";
import { day } from "../text";

export const UPDATE_MS = 100;

/** The most finished runs that are kept; the oldest go first. */
export const KEPT = 500;

export interface Agent {
  /** The run id of the child; absent for the main loop. */
  readonly id?: string;
  readonly name: string;
  readonly status: "started" | "finished" | "failed";
  readonly parentId?: string;
  readonly step: number;
  readonly activity: string;
  readonly route?: Route;
  readonly model?: string;
  readonly usage?: Usage;
}

export interface Entry {
  run: Run;
  /** The main loop under `""`, children under their ids, in the order in which they began. */
  readonly agents: Map<string, Agent>;
  /** Whether the agents are all there: seen from the start, or told by the timeline. */
  isTold: boolean;
}

export interface RunsChange {
  /** The runs that changed; empty when only the list did. */
  readonly ids: readonly string[];
  /** Whether runs came or went. */
  readonly list: boolean;
}

const LIST = Symbol("the list");

export class RunStore {
  private readonly entries = new Map<string, Entry>();
  private order: Entry[] | undefined;
  private readonly emitter = new Emitter<RunsChange>();
  private readonly coalescer: Coalescer<string | typeof LIST>;

  readonly onChange = this.emitter.on;

  constructor(intervalMs = UPDATE_MS) {
    this.coalescer = new Coalescer(intervalMs, (changed) => {
      const ids = changed.filter((one): one is string => typeof one === "string");
      this.emitter.emit({ ids, list: ids.length < changed.length });
    });
  }

  /** Follow the server's notifications. */
  listen(news: News): Subscription[] {
    return [
      news.on("$/outpost/run", ({ run }) => {
        this.upsert(run);
      }),
      news.on("$/outpost/subagent", ({ runId, id, name, status, parentId }) => {
        const known = this.entries.get(runId)?.agents.get(id);
        this.change(runId, id, {
          ...known,
          id,
          name,
          status,
          ...(parentId === undefined ? {} : { parentId }),
          ...(status === "started" ? {} : { activity: "" }),
        });
      }),
      news.on("$/outpost/route", (news) => {
        this.change(news.runId, news.subagentId, { name: news.agent, route: news, model: news.model, step: news.step });
      }),
      news.on("$/outpost/usage", (news) => {
        const known = this.entries.get(news.runId)?.agents.get(news.subagentId ?? "");
        this.change(news.runId, news.subagentId, {
          name: news.agent,
          usage: added(known?.usage, news.delta),
          ...(news.source === "model" ? { model: news.model } : {}),
        });
        const entry = this.entries.get(news.runId);
        if (entry !== undefined && isLive(entry.run)) {
          entry.run = { ...entry.run, usage: news.total, ...(news.cost === undefined ? {} : { cost: news.cost }) };
        }
      }),
      news.on("$/outpost/event", ({ runId, event }) => {
        const doing = activity(event);
        if (doing !== undefined) {
          this.change(runId, event.subagentId, doing);
        }
      }),
    ];
  }

  /** The list as the server answered it: what is not in it is gone. */
  replaceAll(runs: readonly Run[]): void {
    const told = new Set(runs.map((run) => run.id));
    for (const id of [...this.entries.keys()]) {
      if (!told.has(id)) {
        this.entries.delete(id);
      }
    }
    for (const run of runs) {
      this.upsert(run);
    }
    this.order = undefined;
    this.coalescer.add(LIST);
  }

  upsert(run: Run): void {
    const known = this.entries.get(run.id);
    if (known === undefined) {
      const main: Agent = { name: run.agent, status: "started", step: 0, activity: "" };
      this.entries.set(run.id, { run, agents: new Map([["", main]]), isTold: run.status === "queued" });
      this.order = undefined;
      this.forgetOldest();
      this.coalescer.add(LIST);
    } else {
      known.run = run;
    }
    if (!isLive(run)) {
      this.change(run.id, undefined, { status: run.status === "succeeded" ? "finished" : "failed", activity: "" });
    }
    this.coalescer.add(run.id);
  }

  /** The timeline of a run was read: take its agents from there. */
  told({ run, steps, subagents, routes }: ShowResult): void {
    this.upsert(run);
    const entry = this.entries.get(run.id);
    if (entry === undefined) {
      return;
    }
    entry.isTold = true;
    for (const { id, name, status, parentId } of subagents) {
      this.change(run.id, id, { id, name, status, ...(parentId === undefined ? {} : { parentId }) });
    }
    for (const step of steps) {
      this.change(run.id, step.subagentId, { step: step.index });
    }
    for (const route of routes) {
      this.change(run.id, route.subagentId, { route, model: route.model });
    }
    const used = new Map<string | undefined, Usage>();
    for (const step of steps) {
      used.set(step.subagentId, added(used.get(step.subagentId), step.usage));
    }
    for (const [id, usage] of used) {
      this.change(run.id, id, { usage });
    }
  }

  /** Wait until a run has ended, or is not known any more. */
  ended(id: string): Promise<void> {
    return new Promise((resolve) => {
      const look = (): void => {
        const run = this.entries.get(id)?.run;
        if (run === undefined || !isLive(run)) {
          subscription.dispose();
          resolve();
        }
      };
      const subscription = this.emitter.on(look);
      look();
    });
  }

  get(id: string): Entry | undefined {
    return this.entries.get(id);
  }

  /** Newest first. */
  list(): readonly Entry[] {
    this.order ??= [...this.entries.values()].sort(
      (left, right) => right.run.startedAt.localeCompare(left.run.startedAt) || right.run.id.localeCompare(left.run.id),
    );
    return this.order;
  }

  live(): Entry[] {
    return this.list().filter((entry) => isLive(entry.run));
  }

  /** What the runs that began on the day of `now` used; replays ask no model and are left out. */
  today(now: Date): { usage: Usage; costs: Map<string, { amount: number; complete: boolean }> } {
    let usage: Usage = { input: 0, cached: 0, output: 0, complete: true };
    let isWhole = true;
    const costs = new Map<string, { amount: number; complete: boolean }>();
    for (const { run } of this.entries.values()) {
      if (run.kind === "replay" || day(new Date(run.startedAt)) !== day(now)) {
        continue;
      }
      usage = added(usage, run.usage);
      if (run.cost !== undefined) {
        const known = costs.get(run.cost.currency) ?? { amount: 0, complete: true };
        costs.set(run.cost.currency, {
          amount: known.amount + run.cost.amount,
          complete: known.complete && run.cost.complete,
        });
      } else if (run.usage.input + run.usage.output > 0 || !run.usage.complete) {
        // What nobody knows the cost of is not free: the sums are the least that it was.
        isWhole = false;
      }
    }
    for (const [currency, { amount, complete }] of costs) {
      costs.set(currency, { amount, complete: complete && isWhole });
    }
    return { usage, costs };
  }

  flush(): void {
    this.coalescer.flush();
  }

  dispose(): void {
    this.coalescer.dispose();
  }

  private change(runId: string, agentId: string | undefined, changed: Partial<Agent>): void {
    const entry = this.entries.get(runId);
    if (entry === undefined) {
      return;
    }
    const key = agentId ?? "";
    const known = entry.agents.get(key) ?? {
      ...(agentId === undefined ? {} : { id: agentId }),
      name: agentId ?? entry.run.agent,
      status: "started" as const,
      step: 0,
      activity: "",
    };
    entry.agents.set(key, { ...known, ...changed });
    this.coalescer.add(runId);
  }

  private forgetOldest(): void {
    if (this.entries.size <= KEPT) {
      return;
    }
    const oldest = this.list().findLast((entry) => !isLive(entry.run));
    if (oldest !== undefined) {
      this.entries.delete(oldest.run.id);
      this.order = undefined;
    }
  }
}

/** The agents that a given one delegated to; those of the main loop for `undefined`. */
export function childrenOf(entry: Entry, parentId: string | undefined): Agent[] {
  return [...entry.agents.values()].filter((agent) => agent.id !== undefined && parentOf(entry, agent) === parentId);
}

/** A parent that is not known, or that would make a circle, counts as the main loop. */
function parentOf(entry: Entry, agent: Agent): string | undefined {
  const { parentId } = agent;
  if (parentId === undefined || parentId === agent.id || !entry.agents.has(parentId)) {
    return undefined;
  }
  const seen = new Set<string | undefined>([agent.id]);
  for (let above: string | undefined = parentId; above !== undefined; above = entry.agents.get(above)?.parentId) {
    if (seen.has(above)) {
      return undefined;
    }
    seen.add(above);
  }
  return parentId;
}

export function added(sum: Usage | undefined, usage: Usage): Usage {
  if (sum === undefined) {
    return usage;
  }
  const created = (sum.cacheCreated ?? 0) + (usage.cacheCreated ?? 0);
  return {
    input: sum.input + usage.input,
    cached: sum.cached + usage.cached,
    ...(created > 0 ? { cacheCreated: created } : {}),
    output: sum.output + usage.output,
    complete: sum.complete && usage.complete,
  };
}

function activity(event: AgentEvent): Partial<Agent> | undefined {
  switch (event.kind) {
    case "step":
      return typeof event["index"] === "number"
        ? { step: event["index"], activity: "asking the model" }
        : { activity: "asking the model" };
    case "tool":
      return { activity: String(event["name"]) };
    case "tool-result":
    case "tool-denied":
      return { activity: "" };
    case "model-retry":
      return { activity: "trying again" };
    case "quota":
      return { activity: "the service asked for patience" };
    case "compaction":
      return { activity: "shortening the history" };
    default:
      return undefined;
  }
}
