/**
 * Numbers, times and records as people read them. Pure; the same words everywhere.
 */

import { isLive, type Changes, type Cost, type Route, type Run, type RunStatus, type Usage } from "./protocol";

export function plural(count: number, thing: string): string {
  return `${count.toLocaleString("en")} ${thing}${count === 1 ? "" : "s"}`;
}

export function tokens(usage: Pick<Usage, "input" | "output" | "complete">): string {
  const total = usage.input + usage.output;
  return `${usage.complete ? "" : "at least "}${shortNumber(total)} token${total === 1 ? "" : "s"}`;
}

/** Whether there is anything to tell of a usage: the built-in reviewer, made of rules, has used nothing. */
export function isUsed({ input, output, complete }: Pick<Usage, "input" | "output" | "complete">): boolean {
  return input + output > 0 || !complete;
}

export function tokensInFull(usage: Usage): string {
  const cached = usage.cached > 0 ? ` (${usage.cached.toLocaleString("en")} cached)` : "";
  const partial = usage.complete ? "" : ", and some requests did not say";
  return `${usage.input.toLocaleString("en")} in${cached}, ${usage.output.toLocaleString("en")} out${partial}`;
}

function shortNumber(value: number): string {
  if (value < 1000) {
    return String(value);
  }
  if (value < 999_500) {
    const thousands = value / 1000;
    return `${thousands < 99.95 ? thousands.toFixed(1) : Math.round(thousands).toString()}k`;
  }
  return `${(value / 1_000_000).toFixed(2)}M`;
}

export function money(cost: Cost): string {
  const digits = cost.amount !== 0 && cost.amount < 0.1 ? 4 : 2;
  return `${cost.complete ? "" : "at least "}${cost.amount.toFixed(digits)} ${cost.currency}`;
}

export function duration(milliseconds: number): string {
  const seconds = Math.max(0, Math.floor(milliseconds / 1000));
  if (seconds < 60) {
    return `${String(seconds)}s`;
  }
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) {
    return `${String(minutes)}m ${String(seconds % 60)}s`;
  }
  return `${String(Math.floor(minutes / 60))}h ${String(minutes % 60)}m`;
}

export function elapsed(run: Run, now: number): string {
  const end = run.finishedAt === undefined ? (isLive(run) ? now : Number.NaN) : Date.parse(run.finishedAt);
  const milliseconds = end - Date.parse(run.startedAt);
  return Number.isNaN(milliseconds) ? "" : duration(milliseconds);
}

export function changes(changed: Changes): string {
  return `${plural(changed.files, "file")} +${String(changed.insertions)} −${String(changed.deletions)}`;
}

const STATUS: Readonly<Record<RunStatus, string>> = {
  queued: "waiting for its turn",
  preparing: "preparing",
  running: "running",
  waiting: "the service asked for patience",
  succeeded: "done",
  failed: "failed",
  cancelled: "cancelled",
  interrupted: "interrupted",
};

export function status(run: Run): string {
  return STATUS[run.status];
}

/** Why a model was chosen, in a sentence. */
export function routeReason(route: Route): string {
  const confidence = route.confidence === undefined ? "" : ` (confidence ${route.confidence.toFixed(2)})`;
  const rule = route.rule === undefined ? "" : `, rule ${route.rule}`;
  switch (route.reason) {
    case "selected":
      return `chosen${confidence}${rule}`;
    case "confidence":
      return `the decision was not sure enough${confidence}${rule}, so the fallback answers`;
    case "unavailable":
      return `the decider could not be asked, so the fallback answers${rule}`;
  }
}

export function route(route: Route): string {
  return `${route.choice}: ${route.model}, ${routeReason(route)}`;
}

/** The local calendar day of a time, to tell today's runs from others. */
export function day(time: Date): string {
  return `${String(time.getFullYear())}-${String(time.getMonth() + 1)}-${String(time.getDate())}`;
}

/** One line of text without control characters, cut to `length`. */
export function oneLine(text: string, length = 120): string {
  // eslint-disable-next-line no-control-regex -- control characters are what is taken out
  const line = text.replace(/[\s\u0000-\u001f\u007f\u2028\u2029]+/gu, " ").trim();
  const characters = Array.from(line);
  return characters.length <= length ? line : `${characters.slice(0, length - 1).join("")}…`;
}
