/** The walkthrough's first step, which the editor ticks when a context becomes true. */

import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";

import { RunStore } from "../src/runs/store";
import { tickReview } from "../src/walkthrough";
import { notification } from "./golden";
import { stage, tabs } from "./stub/editor";

const { run: review } = notification("$/outpost/run");
const PULSE = [
  ["setContext", "outpost.hasReviewed", true],
  ["setContext", "outpost.hasReviewed", false],
];

let runs: RunStore;

beforeEach(() => {
  stage.reset();
  runs = new RunStore(0);
});

test("the first review that ends is told, and again when a walkthrough may have been opened", () => {
  tickReview(runs);
  const page = { opened: [{}], changed: [] };
  tabs.fire(page);
  runs.upsert({ ...review, id: "1", kind: "dispatch" });
  runs.upsert({ ...review, id: "2", status: "running" });
  assert.deepEqual(stage.executed, []);
  runs.upsert(review);
  runs.flush();
  assert.deepEqual(stage.executed, PULSE);
  runs.upsert({ ...review, id: "3" });
  runs.flush();
  tabs.fire({ opened: [{ input: "a text" }], changed: [] });
  assert.deepEqual(stage.executed, PULSE);
  tabs.fire({ opened: [], changed: [{}] });
  assert.deepEqual(stage.executed, [...PULSE, ...PULSE]);
});
