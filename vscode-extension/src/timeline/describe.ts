/** The timeline's model as the texts that its page shows. */

import { isLive, type Run, type ToolCall } from "../protocol";
import type { ShownStep } from "./model";
import * as text from "../text";
import type { ActionId, CallView, HeadView, StepView } from "./view";

const MOST = 20_000;

export function headView(
  run: Run,
  usage: readonly (readonly [string, string])[],
  now: number,
  untold?: string,
): HeadView {
  return {
    title: run.title,
    status: text.status(run),
    isLive: isLive(run),
    facts: [
      run.agent,
      text.elapsed(run, now),
      run.usage.input + run.usage.output > 0 ? text.tokensInFull(run.usage) : "",
      ...(run.cost === undefined ? [] : [text.money(run.cost)]),
      ...(run.models.length > 0 ? [run.models.join(", ")] : []),
      ...(run.kind === "review" || run.findings > 0 ? [text.plural(run.findings, "finding")] : []),
      ...(run.changes !== undefined && run.disposition !== "none"
        ? [`${text.changes(run.changes)} ${run.disposition}`]
        : []),
      run.id,
    ].filter((fact) => fact !== ""),
    error: run.error === undefined ? "" : `${run.error.code}: ${run.error.message}`,
    notes: isLive(run) || untold === undefined ? run.notes : [...run.notes, `No steps to show: ${untold}`],
    answer: cut(run.text ?? ""),
    usage,
    actions: actionsOf(run).map((id) => ({ id, title: TITLES[id] })),
  };
}

const TITLES: Readonly<Record<ActionId, string>> = {
  cancel: "Cancel",
  steer: "Steer…",
  continue: "Continue…",
  showChanges: "Show Changes",
  apply: "Apply",
  discard: "Discard",
  reopen: "Reopen Changes",
};

export function actionsOf(run: Run): ActionId[] {
  if (isLive(run)) {
    return ["steer", "cancel"];
  }
  return [
    ...(run.disposition === "pending" ? (["showChanges", "apply", "discard"] as const) : []),
    ...(run.disposition === "applied" || run.disposition === "discarded" ? (["showChanges", "reopen"] as const) : []),
    ...(run.conversation === undefined ? [] : (["continue"] as const)),
  ];
}

export function stepView({ key, step, who, depth, route }: ShownStep): StepView {
  const used = step.usage.input + step.usage.output > 0 ? text.tokensInFull(step.usage) : "";
  const time = new Date(step.at);
  return {
    key,
    title: `${who}, step ${String(step.index)}`,
    depth,
    ...(route === undefined
      ? {}
      : {
          badge: {
            text: `${route.choice} → ${route.model}`,
            reason: text.routeReason(route),
            isFallback: route.reason !== "selected",
          },
        }),
    facts: [
      route === undefined ? "" : text.routeReason(route),
      used,
      Number.isNaN(time.getTime()) ? "" : time.toLocaleTimeString(),
    ]
      .filter(Boolean)
      .join(" · "),
    texts: step.texts.map(cut),
    calls: step.tools.map(callView),
    notes: step.notes,
  };
}

function callView(call: ToolCall): CallView {
  return {
    id: call.callId,
    name: call.name,
    status: call.status,
    input: call.input === undefined ? "" : cut(JSON.stringify(call.input, undefined, 2)),
    preview: cut(call.preview ?? ""),
  };
}

function cut(value: string): string {
  const left = value.length - MOST;
  return left <= 0 ? value : `${value.slice(0, MOST)}\n… ${left.toLocaleString("en")} characters not shown`;
}
