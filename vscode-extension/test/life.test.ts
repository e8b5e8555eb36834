import assert from "node:assert/strict";
import { test } from "node:test";

import { MOST_DEATHS, ServerLife, WINDOW_MS, type Clock, type Connection, type Stopped } from "../src/server/life";

class Fake implements Connection {
  isStopped = false;
  constructor(
    readonly number: number,
    readonly die: Stopped,
  ) {}
  stop(): Promise<void> {
    this.isStopped = true;
    return Promise.resolve();
  }
}

/** A clock that passes when the test says so. */
class Hand implements Clock {
  time = 0;
  readonly waits: number[] = [];
  now(): number {
    return this.time;
  }
  wait(milliseconds: number): Promise<void> {
    this.waits.push(milliseconds);
    this.time += milliseconds;
    return Promise.resolve();
  }
}

function life(start: (number: number) => "runs" | "fails" | "missing" = () => "runs"): {
  life: ServerLife<Fake>;
  made: Fake[];
  clock: Hand;
  states: string[];
} {
  const made: Fake[] = [];
  const clock = new Hand();
  let count = 0;
  const inner = new ServerLife<Fake>((died) => {
    count += 1;
    const how = start(count);
    if (how === "fails") {
      return Promise.reject(new Error("it ended with status 1: no module named outpost"));
    }
    if (how === "missing") {
      return Promise.resolve(undefined);
    }
    const fake = new Fake(count, died);
    made.push(fake);
    return Promise.resolve(fake);
  }, clock);
  const states: string[] = [];
  inner.onState((state) => states.push(state.kind));
  return { life: inner, made, clock, states };
}

const settled = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, 20));

test("a server is started once, however often it is asked for", async () => {
  const it = life();
  await Promise.all([it.life.start(), it.life.start()]);
  assert.equal(it.made.length, 1);
  assert.deepEqual(it.states, ["starting", "running"]);
});

test("a server that is missing is no failure", async () => {
  const it = life(() => "missing");
  await it.life.start();
  assert.equal(it.life.state.kind, "missing");
  assert.deepEqual(it.clock.waits, []);
});

test("restarts that are asked for meanwhile are one, and stop the server before", async () => {
  const it = life();
  await it.life.start();
  await Promise.all([it.life.restart(), it.life.restart(), it.life.restart()]);
  assert.equal(it.made.length, 2);
  assert.ok(it.made[0]?.isStopped);
  assert.equal(it.life.connection, it.made[1]);
});

test("a restart that is asked for while another one works comes after it", async () => {
  const it = life();
  const first = it.life.restart();
  await Promise.resolve();
  await Promise.resolve();
  const second = it.life.restart();
  await Promise.all([first, second]);
  assert.equal(it.made.length, 2);
});

test("a server that dies comes back, each time a little later", async () => {
  const it = life();
  await it.life.start();
  it.made[0]?.die("it was ended by SIGKILL");
  assert.equal(it.life.state.kind, "restarting");
  await settled();
  assert.equal(it.life.state.kind, "running");
  it.made[1]?.die("again");
  await settled();
  assert.deepEqual(it.clock.waits, [500, 1000]);
  assert.equal(it.made.length, 3);
});

test("one that dies five times in a row is given up, and comes back when somebody asks", async () => {
  let isBroken = true;
  const it = life(() => (isBroken ? "fails" : "runs"));
  await it.life.start();
  await settled();
  assert.deepEqual(it.life.state, { kind: "failed", reason: "it ended with status 1: no module named outpost" });
  assert.equal(it.states.filter((state) => state === "starting").length, MOST_DEATHS);
  isBroken = false;
  await it.life.restart();
  assert.equal(it.life.state.kind, "running");
});

test("deaths long ago do not count", async () => {
  const it = life();
  await it.life.start();
  for (let index = 0; index < MOST_DEATHS * 2; index += 1) {
    it.clock.time += WINDOW_MS;
    it.made.at(-1)?.die("now and then");
    await settled();
    assert.equal(it.life.state.kind, "running");
  }
});

test("a death that is told late is of the server of then, not of now", async () => {
  const it = life();
  await it.life.start();
  await it.life.restart();
  it.made[0]?.die("long gone");
  assert.equal(it.life.state.kind, "running");
  assert.equal(it.life.connection, it.made[1]);
});

test("nothing is started after the end", async () => {
  const it = life();
  await it.life.start();
  it.made[0]?.die("just now");
  await it.life.dispose();
  await settled();
  await it.life.start();
  assert.equal(it.made.length, 1);
  assert.equal(it.life.state.kind, "stopped");
});
