import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";

import { News } from "../src/news";
import type { Run, ShowResult } from "../src/protocol";
import { childrenOf, KEPT, RunStore, type RunsChange } from "../src/runs/store";
import { contextOf, runFacts, RunsTree, type RunNode } from "../src/runs/tree";
import { exchange, notification } from "./golden";
import { Uri, type TreeItem } from "./stub/editor";

const { run: ended } = notification("$/outpost/run");
const show: ShowResult = exchange("outpost.show").result;
const live: Run = { ...exchange("outpost.review").result.run, id: "live" };

let news: News;
let store: RunStore;
let changes: RunsChange[];

beforeEach(() => {
  news = new News((error) => {
    throw error;
  });
  store = new RunStore(0);
  changes = [];
  store.onChange((change) => changes.push(change));
  store.listen(news);
});

function begin(run: Run = live): void {
  news.emit("$/outpost/run", { run });
}

const agents = (id: string): string[][] =>
  [...(store.get(id)?.agents.values() ?? [])].map(({ name, status, activity }) => [name, status, activity]);

test("a run's agents are a tree that follows the notifications", () => {
  begin();
  const child = { ...notification("$/outpost/subagent"), runId: "live" };
  const { parentId: _, ...first } = child;
  news.emit("$/outpost/subagent", { ...first, id: "one", name: "reviewer" });
  news.emit("$/outpost/subagent", { ...child, id: "two", name: "helper", parentId: "one" });
  news.emit("$/outpost/route", { ...notification("$/outpost/route"), runId: "live", subagentId: "one" });
  news.emit("$/outpost/usage", { ...notification("$/outpost/usage"), runId: "live", subagentId: "one" });
  news.emit("$/outpost/usage", { ...notification("$/outpost/usage"), runId: "live", subagentId: "one" });
  news.emit("$/outpost/event", { runId: "live", event: { kind: "tool", subagentId: "two", name: "read_file" } });
  const entry = store.get("live");
  assert.ok(entry !== undefined);
  assert.deepEqual(
    childrenOf(entry, undefined).map(({ id }) => id),
    ["one"],
  );
  assert.deepEqual(
    childrenOf(entry, "one").map(({ id }) => id),
    ["two"],
  );
  assert.equal(entry.agents.get("one")?.route?.choice, "deep");
  assert.deepEqual(entry.agents.get("one")?.usage, { input: 20, cached: 8, output: 10, complete: true });
  assert.equal(entry.agents.get("two")?.activity, "read_file");
  assert.equal(entry.run.usage.input, 20, "the total is the server's");
  news.emit("$/outpost/subagent", { ...child, id: "two", name: "helper", parentId: "one", status: "finished" });
  assert.deepEqual(agents("live").at(-1), ["helper", "finished", ""]);
});

test("a parent that is unknown or a circle is the main loop", () => {
  begin();
  const child = { ...notification("$/outpost/subagent"), runId: "live" };
  news.emit("$/outpost/subagent", { ...child, id: "a", parentId: "b" });
  news.emit("$/outpost/subagent", { ...child, id: "b", parentId: "a" });
  news.emit("$/outpost/subagent", { ...child, id: "c", parentId: "nobody" });
  const entry = store.get("live");
  assert.ok(entry !== undefined);
  assert.deepEqual(
    childrenOf(entry, undefined).map(({ id }) => id),
    ["a", "b", "c"],
  );
});

test("the end of a run ends its agent's work", () => {
  begin();
  news.emit("$/outpost/event", { runId: "live", event: { kind: "step", index: 2 } });
  assert.deepEqual(agents("live"), [[live.agent, "started", "asking the model"]]);
  begin({ ...live, status: "cancelled" });
  assert.deepEqual(agents("live"), [[live.agent, "failed", ""]]);
});

test("one can wait for the end of a run", async () => {
  begin();
  let isOver = false;
  const waiting = store.ended("live").then(() => (isOver = true));
  begin({ ...live, status: "running" });
  await new Promise((resolve) => setTimeout(resolve, 5));
  assert.equal(isOver, false);
  begin({ ...live, status: "succeeded" });
  await waiting;
  await store.ended("live");
  await store.ended("nobody");
});

test("news of a run that is not known are left out", () => {
  news.emit("$/outpost/usage", notification("$/outpost/usage"));
  news.emit("$/outpost/event", notification("$/outpost/event"));
  assert.equal(store.list().length, 0);
});

test("runs are newest first, and the list is the server's", () => {
  begin({ ...live, id: "b", startedAt: "2026-01-02T00:00:00.000Z" });
  begin({ ...live, id: "a", startedAt: "2026-01-01T00:00:00.000Z" });
  begin({ ...live, id: "c", startedAt: "2026-01-03T00:00:00.000Z" });
  assert.deepEqual(
    store.list().map(({ run }) => run.id),
    ["c", "b", "a"],
  );
  store.replaceAll([{ ...live, id: "b" }]);
  assert.deepEqual(
    store.list().map(({ run }) => run.id),
    ["b"],
  );
});

test("the oldest finished runs are forgotten, live ones never", () => {
  begin({ ...live, startedAt: "2020-01-01T00:00:00.000Z" });
  for (let index = 0; index < KEPT + 10; index += 1) {
    begin({ ...ended, id: `run-${String(index).padStart(4, "0")}` });
  }
  assert.equal(store.list().length, KEPT);
  assert.ok(store.get("live") !== undefined);
  assert.equal(store.get("run-0000"), undefined);
});

test("2,000 events a second of 200 runs are at most ten updates a second", async () => {
  const busy = new RunStore();
  let updates = 0;
  busy.onChange(() => (updates += 1));
  busy.listen(news);
  for (let index = 0; index < 200; index += 1) {
    begin({ ...live, id: String(index) });
  }
  const began = performance.now();
  for (let index = 0; index < 2000; index += 1) {
    news.emit("$/outpost/event", {
      runId: String(index % 200),
      event: { kind: "tool", name: `tool-${String(index)}` },
    });
  }
  const took = performance.now() - began;
  await new Promise((resolve) => setTimeout(resolve, 150));
  assert.ok(updates <= 2 + Math.ceil((took + 150) / 100), `${String(updates)} updates in ${took.toFixed(0)} ms`);
  assert.ok(took < 1000, `${took.toFixed(0)} ms`);
  busy.dispose();
});

test("what today cost is the sum of today's runs, without replays", () => {
  const now = new Date();
  const startedAt = now.toISOString();
  begin({ ...ended, id: "1", startedAt });
  begin({ ...ended, id: "2", startedAt, cost: { amount: 1, currency: "EUR", complete: true } });
  begin({ ...ended, id: "3", startedAt, kind: "replay" });
  begin({ ...ended, id: "4", startedAt: "2001-01-01T00:00:00.000Z" });
  const { usage, costs } = store.today(now);
  assert.deepEqual([usage.input, usage.output, usage.complete], [240, 60, false]);
  assert.deepEqual(Object.fromEntries(costs), {
    USD: { amount: 0.0125, complete: false },
    EUR: { amount: 1, complete: true },
  });
  const { cost: _, ...unpriced } = ended;
  begin({ ...unpriced, id: "5", startedAt });
  assert.equal(store.today(now).costs.get("EUR")?.complete, false, "what nobody knows the cost of is not free");
});

test("the timeline of an earlier run tells its agents, their routes and tokens", () => {
  store.upsert(show.run);
  assert.equal(store.get(show.run.id)?.isTold, false);
  store.told(show);
  const entry = store.get(show.run.id);
  assert.ok(entry !== undefined);
  assert.ok(entry.isTold);
  const [child] = childrenOf(entry, undefined);
  assert.equal(child?.name, "reviewer");
  assert.equal(child.status, "finished");
  assert.equal(child.route?.model, "small-1");
  assert.equal((child.usage?.input ?? 0) + (entry.agents.get("")?.usage?.input ?? 0), show.run.usage.input);
});

// The view

function treeOf(details: Partial<ConstructorParameters<typeof RunsTree>[1]> = {}): RunsTree {
  const none = { tellAgents: () => Promise.resolve(), changedFiles: () => Promise.resolve([]) };
  return new RunsTree(store, { ...none, ...details }, () => Date.parse("2026-01-01T00:01:00.000Z"));
}
const item = (tree: RunsTree, node: RunNode | undefined): TreeItem => {
  assert.ok(node !== undefined);
  return tree.getTreeItem(node) as unknown as TreeItem;
};

test("a run says what came of it", () => {
  assert.deepEqual(runFacts(ended, 0), [
    "1 finding",
    "1 file +2 −3 pending",
    "at least 150 tokens",
    "at least 0.0125 USD",
    "9s",
  ]);
  assert.equal(contextOf(ended), "run.ended.conversation.pending.text");
  assert.equal(contextOf(live), "run.live");
});

test("a run's agents are asked for once, when somebody opens it", async () => {
  let asked = 0;
  const tree = treeOf({
    tellAgents: () => {
      asked += 1;
      store.told(show);
      return Promise.resolve();
    },
  });
  store.upsert(show.run);
  const [run] = await tree.getChildren();
  const [main] = await tree.getChildren(run);
  await tree.getChildren(run);
  assert.equal(asked, 1);
  const [child] = await tree.getChildren(main);
  assert.match(String(item(tree, main).description), /^fast → small-1 · step 2 · /u);
  assert.equal(item(tree, child).label, "reviewer");
});

test("changes and notes stand under their run, files with their own diff", async () => {
  const files = exchange("outpost.diff").result.files;
  const tree = treeOf({ changedFiles: () => Promise.resolve(files) });
  store.upsert(ended);
  const nodes = await tree.getChildren((await tree.getChildren())[0]);
  assert.deepEqual(
    nodes.map(({ kind }) => kind),
    ["agent", "changes", "note"],
  );
  const [file] = await tree.getChildren(nodes[1]);
  assert.deepEqual(item(tree, file).command?.arguments, [ended.id, "README.md"]);
  assert.equal(item(tree, file).contextValue, "changed-file.pending");
});

test("the model that was chosen is a badge, with the reason on hover", () => {
  store.told(show);
  const tree = treeOf();
  const badge = (id: string): { badge?: unknown; tooltip?: unknown } | undefined =>
    tree.provideFileDecoration(Uri.from({ scheme: "outpost-agent", path: `/${show.run.id}/${id}` }) as never);
  assert.equal(badge("")?.badge, "FA");
  assert.match(String(badge("")?.tooltip), /^Route fast: small-1, chosen \(confidence 0\.97\)/u);
  assert.equal(badge("nobody"), undefined);
  assert.equal(tree.provideFileDecoration(Uri.file("/x") as never), undefined);
});

test("an agent that gets its first helper is opened", async () => {
  const tree = treeOf();
  begin();
  const [main] = await tree.getChildren((await tree.getChildren())[0]);
  const before = item(tree, main).id;
  news.emit("$/outpost/subagent", { ...notification("$/outpost/subagent"), runId: "live", parentId: "live" });
  assert.notEqual(item(tree, main).id, before);
  assert.equal(item(tree, main).collapsibleState, 2);
});
