/** When the views are drawn anew. */

import assert from "node:assert/strict";
import { afterEach, beforeEach, mock, test } from "node:test";

import { RunStore } from "../src/runs/store";
import { RunsTree } from "../src/runs/tree";
import { showRuns } from "../src/views";
import { notification } from "./golden";
import { stage } from "./stub/editor";

/** The editor waits for so long a pause before it draws a tree. */
const EDITORS_PAUSE_MS = 200;

const { run: ended } = notification("$/outpost/run");
let now: number;

beforeEach(() => {
  stage.reset();
  now = 1000;
  mock.method(performance, "now", () => now);
  mock.timers.enable({ apis: ["setTimeout", "setInterval"] });
});

afterEach(() => {
  mock.timers.reset();
  mock.restoreAll();
});

test("however busy runs are, the editor gets the pause in which it draws", () => {
  const store = new RunStore();
  const tree = new RunsTree(store, {
    tellAgents: () => Promise.resolve(),
    changedFiles: () => Promise.resolve([]),
  });
  const drawn: number[] = [];
  tree.onDidChangeTreeData(() => drawn.push(now));
  const parts = showRuns(store, tree);
  for (const end = now + 5000; now < end; now += 1) {
    store.upsert({ ...ended, id: String(now % 7), status: "running" });
    mock.timers.tick(1);
  }
  const pauses = drawn.slice(1).map((at, index) => at - (drawn[index] ?? 0));
  assert.ok(Math.min(...pauses) > EDITORS_PAUSE_MS, pauses.join(", "));
  assert.ok(drawn.length >= 15, String(drawn.length));
  parts.forEach((one) => one.dispose());
  store.dispose();
});

test("the agents of a run are asked for once, however often the view wants them meanwhile", async () => {
  const store = new RunStore(0);
  store.upsert(ended);
  let tell: () => void = () => undefined;
  let asked = 0;
  const tree = new RunsTree(store, {
    tellAgents: () => {
      asked += 1;
      return new Promise((resolve) => (tell = resolve));
    },
    changedFiles: () => Promise.resolve([]),
  });
  const rows = Promise.all([1, 2, 3].map(() => tree.getChildren(tree.node(ended.id))));
  assert.equal(asked, 1);
  tell();
  assert.equal((await rows).length, 3);
});

test("a run whose rows are being read is drawn anew when the editor has them, others at once", async () => {
  const store = new RunStore(0);
  const tell: (() => void)[] = [];
  const tree = new RunsTree(store, {
    tellAgents: () => new Promise((resolve) => tell.push(resolve)),
    changedFiles: () => new Promise((resolve) => tell.push(() => resolve([]))),
  });
  store.upsert(ended);
  const drawn: string[][] = [];
  tree.onDidChangeTreeData((nodes) => {
    drawn.push((nodes ?? []).map((node) => (node.kind === "run" ? node.id : node.kind)));
  });
  const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

  const rows = tree.getChildren(tree.node(ended.id));
  tree.refresh([ended.id, "other"]);
  await turn();
  assert.deepEqual(drawn, [["other"]]);
  tell.shift()?.();
  const [, changes] = await rows;
  assert.deepEqual(drawn, [["other"]]);
  await turn();
  assert.deepEqual(drawn, [["other"], [ended.id]]);

  const files = [tree.getChildren(changes), tree.getChildren(changes)];
  tree.refresh([ended.id]);
  tell.shift()?.();
  await files[0];
  await turn();
  assert.equal(drawn.length, 2);
  tell.shift()?.();
  await files[1];
  await turn();
  assert.deepEqual(drawn.slice(2), [[ended.id]]);
  tree.refresh([ended.id]);
  assert.equal(drawn.length, 4);
});

test("a run whose rows could not be read is drawn anew all the same", async () => {
  const store = new RunStore(0);
  store.upsert(ended);
  const tree = new RunsTree(store, {
    tellAgents: () => Promise.reject(new Error("the server is gone")),
    changedFiles: () => Promise.resolve([]),
  });
  let drawn = 0;
  tree.onDidChangeTreeData(() => (drawn += 1));
  const rows = tree.getChildren(tree.node(ended.id));
  tree.refresh([ended.id]);
  await assert.rejects(rows, /the server is gone/u);
  await new Promise((resolve) => setImmediate(resolve));
  assert.equal(drawn, 1);
});
