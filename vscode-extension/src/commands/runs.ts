/** What can be done with runs: stop them, speak to them, go on, look at them. */

import { env, window } from "vscode";

import { reportUri } from "../changes/documents";
import { isLive, type RaisedLimits, type Run } from "../protocol";
import type { Timelines } from "../timeline/panels";
import { oneLine } from "../text";
import { pickRun, runNode, type Context, type Handler, type Wanted } from "./context";

const ANY: Wanted = { ask: "Which run?", none: "there are no runs yet." };
const CONVERSATION: Wanted = {
  ask: "Which conversation?",
  none: "there is no conversation to go on with.",
  fits: ({ conversation }) => conversation !== undefined,
};

export function runCommands(context: Context, timelines: Timelines): Record<string, Handler> {
  const { session, runs } = context;
  return {
    "outpost.ui.cancel": async (argument) => {
      const run = await pickRun(context, argument, {
        ask: "Which run should be cancelled?",
        none: "nothing is running.",
        fits: isLive,
      });
      if (run !== undefined && !(await session.request("outpost.cancel", { runId: run.id })).cancelled) {
        void window.showInformationMessage("Outpost: that run has ended already.");
      }
    },
    "outpost.ui.cancelAll": async () => {
      await Promise.all(runs.live().map(({ run }) => session.request("outpost.cancel", { runId: run.id })));
    },
    "outpost.ui.steer": async (argument) => {
      const run = await pickRun(context, argument, {
        ask: "Which run is it for?",
        none: "nothing is running.",
        fits: isLive,
      });
      return run === undefined ? undefined : steer(context, run, argument);
    },
    "outpost.ui.continue": async (argument) => {
      const run = await pickRun(context, argument, CONVERSATION);
      return run === undefined ? undefined : goOn(context, run, false);
    },
    "outpost.ui.fork": async (argument) => {
      const run = await pickRun(context, argument, CONVERSATION);
      return run === undefined ? undefined : goOn(context, run, true);
    },
    "outpost.ui.showTimeline": async (argument) => {
      const run = await pickRun(context, argument, ANY);
      return run === undefined ? undefined : timelines.show(run.id);
    },
    "outpost.ui.showAnswer": async (argument) => {
      const run = await pickRun(context, argument, {
        ask: "Whose answer?",
        none: "no run has an answer.",
        fits: ({ text }) => text !== undefined,
      });
      if (run !== undefined) {
        await window.showTextDocument(reportUri(run.id), { preview: true });
      }
    },
    "outpost.ui.replay": async (argument) => {
      const run = await pickRun(context, argument, {
        ask: "Which run should be gone through again?",
        none: "no run has ended yet.",
        fits: (one) => !isLive(one),
      });
      return run === undefined ? undefined : context.starter.start("outpost.replay", { runId: run.id });
    },
    "outpost.ui.copyRunId": async (argument) => {
      const run = await pickRun(context, argument, ANY);
      if (run !== undefined) {
        await env.clipboard.writeText(run.id);
      }
    },
    "outpost.ui.refreshRuns": async () => {
      runs.replaceAll((await session.request("outpost.runs", { limit: 500 })).runs);
    },
  };
}

async function steer({ session, runs }: Context, run: Run, argument: unknown): Promise<void> {
  const node = runNode(argument);
  const subagent = node?.kind === "agent" ? (node.agentId ?? null) : undefined;
  const whom = subagent === undefined ? run.title : (runs.get(run.id)?.agents.get(subagent ?? "")?.name ?? run.agent);
  const text = await window.showInputBox({
    title: `Steer: ${oneLine(whom, 60)}`,
    prompt: subagent === undefined ? "What should whoever works on it know or do?" : `What should ${whom} know or do?`,
    ignoreFocusOut: true,
  });
  if (text === undefined || text.trim() === "") {
    return;
  }
  const params = { runId: run.id, text: text.trim(), ...(subagent === undefined ? {} : { subagent }) };
  const { delivery } = await session.request("outpost.steer", params);
  const how =
    delivery === "injected" ? "It is read before the next step." : "The agent was stopped and goes on with it.";
  window.setStatusBarMessage(`Outpost: told. ${how}`, 6000);
}

async function goOn({ starter }: Context, run: Run, fork: boolean): Promise<void> {
  if (run.conversation === undefined) {
    void window.showInformationMessage("Outpost: that run kept no conversation.");
    return;
  }
  const limits = await pickLimits(run);
  if (limits === undefined) {
    return;
  }
  const brief = await window.showInputBox({
    title: `${fork ? "Fork" : "Continue"}: ${oneLine(run.title, 60)}`,
    prompt: "What next?",
    value: run.status === "interrupted" || run.status === "failed" ? "Go on where you stopped." : "",
    ignoreFocusOut: true,
    validateInput: (text) => (text.trim() === "" ? "Please write something." : undefined),
  });
  if (brief !== undefined) {
    await starter.start("outpost.continue", {
      conversation: run.conversation,
      brief: brief.trim(),
      ...(fork ? { fork } : {}),
      ...(limits === "same" ? {} : { limits }),
    });
  }
}

/** For a run that met one of its own limits: the same again, or twice as much. */
async function pickLimits(run: Run): Promise<RaisedLimits | "same" | undefined> {
  const raised = raisedLimits(run);
  if (raised === undefined) {
    return "same";
  }
  const picked = await window.showQuickPick(
    [
      { label: `Allow ${raised.text}`, limits: raised.limits },
      { label: "Keep the limit", description: run.error?.message ?? "", limits: "same" as const },
    ],
    { placeHolder: "The run met one of its limits." },
  );
  return picked?.limits;
}

/** Twice the limit that a run met; `undefined` when it met none that can be raised here. */
export function raisedLimits(run: Run): { limits: RaisedLimits; text: string } | undefined {
  const { limit, ceiling, counter } = run.error?.code === "limit" ? (run.error.details ?? {}) : {};
  if (typeof ceiling !== "number") {
    return undefined;
  }
  const twice = ceiling * 2;
  const told = twice.toLocaleString("en");
  switch (limit) {
    case "maxSteps":
      return { limits: { maxSteps: twice }, text: `${told} steps` };
    case "maxToolCalls":
      return { limits: { maxToolCalls: twice }, text: `${told} tool calls` };
    case "usage":
      return typeof counter === "string"
        ? { limits: { usage: { [counter]: twice } }, text: `${told} tokens (${counter})` }
        : undefined;
    default:
      return undefined;
  }
}
