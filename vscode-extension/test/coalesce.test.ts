import assert from "node:assert/strict";
import { mock, test } from "node:test";

import { Coalescer } from "../src/coalesce";

interface Told {
  readonly told: (readonly number[])[];
  add(value: number): void;
  pass(ms: number): void;
  stop(): void;
  dispose(): void;
}

function coalescer(): Told {
  mock.timers.enable({ apis: ["setTimeout"] });
  let now = 0;
  const told: (readonly number[])[] = [];
  const inner = new Coalescer<number>(
    100,
    (changed) => told.push(changed),
    () => now,
  );
  return {
    told,
    add: (value) => inner.add(value),
    pass: (ms) => {
      now += ms;
      mock.timers.tick(ms);
    },
    stop: () => inner.dispose(),
    dispose: () => {
      inner.dispose();
      mock.timers.reset();
    },
  };
}

test("the first change after a pause is told at once", () => {
  const it = coalescer();
  it.add(1);
  assert.deepEqual(it.told, [[1]]);
  it.dispose();
});

test("what follows within the interval is told together, each thing once", () => {
  const it = coalescer();
  [1, 2, 3, 2].forEach((value) => it.add(value));
  assert.deepEqual(it.told, [[1]]);
  it.pass(100);
  assert.deepEqual(it.told, [[1], [2, 3]]);
  it.dispose();
});

test("2,000 changes a second are at most ten updates a second and one", () => {
  const it = coalescer();
  for (let millisecond = 0; millisecond < 1000; millisecond += 1) {
    it.add(millisecond % 7);
    it.add(millisecond % 11);
    it.pass(1);
  }
  assert.ok(it.told.length <= 11, String(it.told.length));
  assert.ok(it.told.length >= 9, String(it.told.length));
  it.dispose();
});

test("nothing is told after the end", () => {
  const it = coalescer();
  it.add(1);
  it.add(2);
  it.stop();
  it.pass(1000);
  assert.deepEqual(it.told, [[1]]);
  it.dispose();
});
