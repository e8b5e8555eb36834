/** Reviews, findings and runs, as a person asks for them. */

import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";

import { raisedLimits } from "../src/commands/runs";
import type { Finding, Run } from "../src/protocol";
import { Desk } from "./desk";
import { exchange, notification } from "./golden";
import { stage, Uri, window, workspace } from "./stub/editor";

const [open] = exchange("outpost.findings").result.findings as [Finding];
const { run: ended } = notification("$/outpost/run");
const changed: Run = exchange("outpost.dispatch").result.run;

let desk: Desk;

beforeEach(() => {
  desk = new Desk();
});

function folders(...names: string[]): void {
  workspace.workspaceFolders = names.map((name, index) => ({ uri: Uri.file(`/home/person/${name}`), name, index }));
}

interface Place {
  readonly line: number;
  readonly character: number;
}

function document(
  text: string,
  version = 1,
): { uri: Uri; version: number; getText(range: { start: Place; end: Place }): string } {
  return {
    uri: Uri.parse(open.uri),
    version,
    getText: ({ start, end }) => (text.split("\n")[start.line] ?? "").slice(start.character, end.character),
  };
}

// Reviews

test("with one folder a review begins at once", async () => {
  folders("shop");
  await desk.run("reviewUncommitted");
  assert.deepEqual(desk.started, [["outpost.review", { scope: "uncommitted", uri: "file:///home/person/shop" }]]);
  assert.deepEqual(stage.dialogs, []);
});

test("with several folders the person is desk.asked; the source control view says which", async () => {
  folders("shop", "bank");
  stage.answers = ["bank"];
  await desk.run("reviewUncommitted");
  await desk.run("reviewStaged", { rootUri: Uri.file("/home/person/shop") });
  assert.deepEqual(
    desk.started.map(([, params]) => params),
    [
      { scope: "uncommitted", uri: "file:///home/person/bank" },
      { scope: "staged", uri: "file:///home/person/shop" },
    ],
  );
  assert.equal(stage.dialogs.length, 1);
});

test("without a folder it is said what is missing", async () => {
  await desk.run("reviewUncommitted");
  assert.deepEqual(desk.started, []);
  assert.match(stage.dialogs[0]?.text ?? "", /open one first/u);
});

test("a file and a selection are those of the active editor", async () => {
  const at = (line: number, character: number): unknown => ({ line, character });
  window.activeTextEditor = {
    document: { uri: Uri.file("/home/person/shop/a.py") },
    selection: { isEmpty: false, start: at(1, 2), end: at(3, 4) },
  };
  await desk.run("reviewFile");
  await desk.run("reviewSelection");
  assert.deepEqual(
    desk.started.map(([, params]) => params),
    [
      { scope: "file", uri: "file:///home/person/shop/a.py" },
      {
        scope: "selection",
        uri: "file:///home/person/shop/a.py",
        range: { start: { line: 1, character: 2 }, end: { line: 3, character: 4 } },
      },
    ],
  );
});

test("the branch's base may be left to the server, and a commit is named", async () => {
  folders("shop");
  stage.answers = ["", "origin/next", "abc123"];
  await desk.run("reviewBranch");
  await desk.run("reviewBranch");
  await desk.run("reviewCommit");
  assert.deepEqual(
    desk.started.map(([, params]) => params),
    [
      { scope: "branch", uri: "file:///home/person/shop" },
      { scope: "branch", uri: "file:///home/person/shop", base: "origin/next" },
      { scope: "commit", uri: "file:///home/person/shop", revision: "abc123" },
    ],
  );
});

test("a review of everything is confirmed first", async () => {
  folders("shop");
  await desk.run("reviewWorkspace");
  assert.deepEqual(desk.started, []);
  stage.answers = ["Review"];
  await desk.run("reviewWorkspace");
  assert.equal(desk.started.length, 1);
});

test("in a folder that is not trusted a review is agreed to first", async () => {
  folders("shop");
  workspace.isTrusted = false;
  await desk.run("reviewUncommitted");
  assert.deepEqual(desk.started, []);
  assert.deepEqual(stage.dialogs[0]?.choices, ["Review", "Manage Trust"]);
  stage.answers = ["Manage Trust"];
  await desk.run("reviewUncommitted");
  assert.deepEqual([desk.started.length, stage.executed.at(-1)], [0, ["workbench.trust.manage"]]);
  stage.answers = ["Review"];
  await desk.run("reviewUncommitted");
  await desk.run("reviewUncommitted");
  assert.equal(desk.started.length, 2, "desk.asked once a session");
});

test("scope, agent and instruction can be chosen", async () => {
  folders("shop");
  desk.answers["outpost.agents"] = () => exchange("outpost.agents").result;
  stage.answers = ["Staged changes", "coordinator", " look at rounding "];
  await desk.run("review");
  assert.deepEqual(desk.started, [
    [
      "outpost.review",
      { scope: "staged", uri: "file:///home/person/shop", agent: "coordinator", brief: "look at rounding" },
    ],
  ]);
});

test("a person who turns every dialog away starts nothing and is told nothing", async () => {
  folders("shop", "bank");
  desk.context.runs.upsert({ ...changed, id: "a" });
  desk.context.runs.upsert({ ...changed, id: "b" });
  desk.context.runs.upsert({ ...ended, id: "c", status: "running" });
  desk.context.runs.upsert({ ...ended, id: "d", status: "running" });
  desk.context.findings.replaceAll([open, { ...exchange("outpost.dismiss").result.finding, id: "x" }]);
  desk.answers["outpost.agents"] = () => exchange("outpost.agents").result;
  desk.answers["outpost.diff"] = () => exchange("outpost.diff").result;
  const harmless = new Set(["outpost.agents", "outpost.diff", "outpost.runs"]);
  for (const id of [...stage.registered.keys()]) {
    if (id !== "outpost.ui.cancelAll" && id !== "outpost.ui.refreshRuns") {
      await desk.run(id.replace("outpost.ui.", ""));
    }
  }
  assert.deepEqual(desk.started, []);
  assert.deepEqual(
    desk.asked.filter(([command]) => !harmless.has(command)),
    [],
  );
  assert.deepEqual(
    stage.dialogs.filter(({ kind }) => kind === "error"),
    [],
  );
});

test("what the server refuses is told in its words", async () => {
  desk.answers["outpost.restore"] = () => new Error("findingId: there is no finding 'x'");
  desk.context.findings.replaceAll([open]);
  await desk.run("restore", open.id);
  assert.deepEqual(
    stage.dialogs.map(({ kind, text }) => [kind, text]),
    [["error", "Outpost: findingId: there is no finding 'x'"]],
  );
});

// Findings

const TEXT = "def discount(price, percent):\n    return price - price * percent / 100\n";

function standing(text: string, version = 1): void {
  desk.context.findings.replaceAll([open]);
  desk.answers["outpost.findings"] = () => ({ findings: [open] });
  workspace.openTextDocument = () => Promise.resolve(document(text, version));
}

test("a suggestion is applied where the quoted text stands", async () => {
  standing(TEXT);
  await desk.run("applySuggestion", { kind: "finding", finding: open, showsFile: false });
  const [edit] = stage.applied;
  assert.deepEqual(
    edit?.replaced.map(({ text }) => text),
    ["return max(0, price - price * percent / 100)"],
  );
});

test("a suggestion whose text is gone is not applied, and that is said", async () => {
  standing(TEXT.replace("price - price", "price + price"));
  await desk.run("applySuggestion", open.id);
  assert.deepEqual(stage.applied, []);
  assert.match(stage.dialogs[0]?.text ?? "", /was edited since/u);
});

test("a text that changed while the server was desk.asked is left alone", async () => {
  standing(TEXT);
  const changing = document(TEXT);
  workspace.openTextDocument = () => Promise.resolve(changing);
  desk.answers["outpost.findings"] = () => {
    changing.version = 2;
    return { findings: [open] };
  };
  await desk.run("applySuggestion", open.id);
  assert.deepEqual(stage.applied, []);
});

test("a dismissal takes a reason, or none, and a date", async () => {
  desk.context.findings.replaceAll([open]);
  desk.answers["outpost.dismiss"] = () => exchange("outpost.dismiss").result;
  stage.answers = ["  known  "];
  await desk.run("dismiss", { findingId: open.id });
  assert.equal(desk.context.findings.get(open.id)?.status, "dismissed");
  desk.context.findings.replaceAll([open]);
  stage.answers = ["For a week", ""];
  await desk.run("dismissUntil", open.id);
  assert.deepEqual(desk.asked[0], ["outpost.dismiss", { findingId: open.id, reason: "known" }]);
  const { until, ...rest } = desk.asked[1]?.[1] as { until: string };
  assert.deepEqual(rest, { findingId: open.id });
  assert.ok(Math.abs(Date.parse(until) - Date.now() - 7 * 24 * 3600 * 1000) < 60_000);
});

test("an agent is sent to a finding, and the filter says that it is on", async () => {
  desk.context.findings.replaceAll([open]);
  await desk.run("fix", open.id);
  assert.deepEqual(desk.started, [["outpost.fix", { findingId: open.id }]]);
  stage.answers = ["rounding"];
  await desk.run("filterFindings");
  assert.deepEqual(stage.executed.at(-1), ["setContext", "outpost.isFiltering", true]);
  await desk.run("clearFilter");
  assert.deepEqual(stage.executed.at(-1), ["setContext", "outpost.isFiltering", false]);
});

// Runs

test("a person speaks to a run, to its main loop or to one agent", async () => {
  desk.context.runs.upsert({ ...ended, status: "running" });
  desk.answers["outpost.steer"] = () => exchange("outpost.steer").result;
  stage.answers = ["one", "two", "three"];
  await desk.run("steer", ended.id);
  await desk.run("steer", { kind: "agent", runId: ended.id, agentId: undefined });
  await desk.run("steer", { kind: "agent", runId: ended.id, agentId: "child" });
  assert.deepEqual(
    desk.asked.map(([, params]) => params),
    [
      { runId: ended.id, text: "one" },
      { runId: ended.id, text: "two", subagent: null },
      { runId: ended.id, text: "three", subagent: "child" },
    ],
  );
});

test("a run that met a limit can go on with twice as much", async () => {
  const error = (details: Record<string, unknown>): Run => ({
    ...ended,
    status: "failed",
    error: { code: "limit", message: "", details },
  });
  assert.deepEqual(raisedLimits(error({ limit: "maxSteps", ceiling: 8 }))?.limits, { maxSteps: 16 });
  assert.deepEqual(raisedLimits(error({ limit: "usage", counter: "output", ceiling: 2000 }))?.limits, {
    usage: { output: 4000 },
  });
  assert.equal(raisedLimits(error({ limit: "budget", counter: "output", ceiling: 1 })), undefined);
  assert.equal(raisedLimits(ended), undefined);
  desk.context.runs.upsert(error({ limit: "maxSteps", ceiling: 8 }));
  stage.answers = ["Allow 16 steps", "Go on."];
  await desk.run("continue", ended.id);
  assert.deepEqual(desk.started, [
    ["outpost.continue", { conversation: "c-42", brief: "Go on.", limits: { maxSteps: 16 } }],
  ]);
});

test("a run that ended already is not cancelled, which is said", async () => {
  desk.context.runs.upsert(ended);
  desk.answers["outpost.cancel"] = () => ({ cancelled: false });
  await desk.run("cancel", ended.id);
  assert.match(stage.dialogs[0]?.text ?? "", /has ended already/u);
});
