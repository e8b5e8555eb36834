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
