import assert from "node:assert/strict";
import { test } from "node:test";

import type { AgentEvent, ShowResult } from "../src/protocol";
import { actionsOf, headView, stepView } from "../src/timeline/describe";
import { TimelineModel } from "../src/timeline/model";
import { page } from "../src/timeline/page";
import { usageByAgent } from "../src/timeline/panels";
import { exchange, notification } from "./golden";

const show: ShowResult = exchange("outpost.show").result;
const { run: ended } = notification("$/outpost/run");
const empty: ShowResult = { run: { ...show.run, status: "running" }, steps: [], subagents: [], routes: [] };
const child = show.subagents[0]?.id ?? "";

const EVENTS: readonly AgentEvent[] = [
  { kind: "step", at: "2026-01-01T00:00:01.000Z", index: 1 },
  { kind: "usage", tokens: { input: 40, cached: 0, output: 0 } },
  { kind: "text", text: "I ask." },
  { kind: "tool", name: "reviewer", callId: "c1", input: { prompt: "Look." } },
  { kind: "step", index: 1, subagentId: "child" },
  { kind: "tool", name: "report_finding", callId: "c2", input: {}, subagentId: "child" },
  {
    kind: "finding",
    subagentId: "child",
    finding: { path: "a.py", severity: "error", title: "wrong", span: { startLine: 1 } },
  },
  { kind: "finding", subagentId: "child", rejected: "the quote is not there" },
  { kind: "tool-denied", name: "shell", callId: "c3", reason: "not allowed", subagentId: "child" },
  { kind: "tool-result", name: "shell", callId: "c3", isError: true, preview: "denied", subagentId: "child" },
  {
    kind: "tool-result",
    name: "report_finding",
    callId: "c2",
    isError: false,
    preview: "Placed.",
    subagentId: "child",
  },
  { kind: "steer", mode: "injected", text: "Hurry." },
  { kind: "reasoning", text: "not shown" },
];

test("a timeline that was followed says what one that was read says", () => {
  const model = new TimelineModel(empty);
  for (const event of EVENTS) {
    model.happened(event);
  }
  const steps = model.all();
  assert.deepEqual(
    steps.map(({ key, who }) => [key, who]),
    [
      ["#1", show.run.agent],
      ["child#1", "child"],
    ],
  );
  assert.deepEqual(steps[0]?.step.texts, ["I ask."]);
  assert.deepEqual(steps[0].step.notes, ["instruction injected: Hurry."]);
  assert.equal(steps[0].step.usage.input, 40);
  assert.deepEqual(steps[1]?.step.notes, ["finding a.py:2: error: wrong", "finding refused: the quote is not there"]);
  assert.deepEqual(
    steps[1].step.tools.map(({ name, status, preview }) => [name, status, preview]),
    [
      ["report_finding", "ok", "Placed."],
      ["shell", "denied", "not allowed"],
    ],
  );
});

test("events that the answer holds already are taken once", () => {
  const model = new TimelineModel(show);
  const before = model.all();
  for (const step of show.steps) {
    const owner = step.subagentId === undefined ? {} : { subagentId: step.subagentId };
    model.happened({ kind: "step", index: step.index, ...owner });
    for (const text of step.texts) {
      model.happened({ kind: "text", text, ...owner });
    }
    for (const call of step.tools) {
      model.happened({ kind: "tool", name: call.name, callId: call.callId, input: call.input, ...owner });
    }
  }
  assert.deepEqual(model.all(), before);
});

test("only what changed is sent", () => {
  const model = new TimelineModel(show);
  model.all();
  assert.deepEqual(model.takeChanged(), []);
  model.happened({ kind: "step", index: 2, subagentId: child });
  model.happened({ kind: "warning", message: "slow", subagentId: child });
  assert.deepEqual(
    model.takeChanged().map(({ key }) => key),
    [`${child}#2`],
  );
});

test("depth, names and routes are those of the agents", () => {
  const model = new TimelineModel(show);
  model.delegated(
    { runId: show.run.id, id: "grandchild", name: "helper", status: "started", parentId: child, callId: "c" },
    "2026-01-01",
  );
  model.happened({ kind: "step", index: 1, subagentId: "grandchild" });
  model.routed({ step: 1, subagentId: "grandchild", choice: "deep", model: "large-1", reason: "unavailable" });
  const last = model.all().at(-1);
  assert.ok(last !== undefined);
  assert.deepEqual([last.who, last.depth, last.route?.model], ["helper", 2, "large-1"]);
  const view = stepView(last);
  assert.equal(view.title, "helper, step 1");
  assert.ok(view.badge?.isFallback);
});

test("the head says what came of the run, and offers what can be done with it", () => {
  const usage = usageByAgent(new TimelineModel(show).all());
  assert.deepEqual(
    usage.map(([agent]) => agent),
    ["coordinator", "reviewer"],
  );
  const head = headView(ended, usage, 0);
  assert.deepEqual(
    head.actions.map(({ id }) => id),
    ["showChanges", "apply", "discard", "continue"],
  );
  assert.ok(head.facts.includes("1 file +2 −3 pending"));
  assert.deepEqual(headView(ended, usage, 0, "its journal is empty").notes, [
    ...ended.notes,
    "No steps to show: its journal is empty",
  ]);
  assert.deepEqual(actionsOf({ ...ended, status: "running" }), ["steer", "cancel"]);
  assert.deepEqual(actionsOf({ ...ended, disposition: "applied" }), ["showChanges", "reopen", "continue"]);
});

test("agents that used nothing, as the built-in reviewers, have no row of tokens", () => {
  const nothing = { input: 0, cached: 0, output: 0, complete: true };
  const steps = new TimelineModel(show).all();
  const using = (usage: typeof nothing): typeof steps => steps.map((one) => ({ ...one, step: { ...one.step, usage } }));
  assert.deepEqual(usageByAgent(using(nothing)), []);
  assert.equal(usageByAgent(using({ ...nothing, complete: false })).length, 2);
});

test("long texts are cut, and say so", () => {
  const [first] = new TimelineModel(show).all();
  assert.ok(first !== undefined);
  const view = stepView({ ...first, step: { ...first.step, texts: ["x".repeat(30_000)] } });
  assert.match(view.texts[0] ?? "", /x\n… 10,000 characters not shown$/u);
});

test("the page loads its own script and style only, and nothing from the network", () => {
  const html = page({
    cspSource: "https://editor.example",
    script: "https://editor.example/t.js",
    style: "https://editor.example/t.css",
    nonce: "n0nce",
  });
  assert.match(html, /content="default-src 'none'; style-src https:\/\/editor\.example; script-src 'nonce-n0nce'"/u);
  assert.equal(html.match(/<script/gu)?.length, 1);
  assert.doesNotMatch(html, /unsafe|style=| on[a-z]+=/u);
});
