import assert from "node:assert/strict";
import { test } from "node:test";

import * as text from "../src/text";
import { notification } from "./golden";

const { run } = notification("$/outpost/run");

test("tokens are short, and say when some are not known", () => {
  const usage = (input: number, output: number, complete = true): Parameters<typeof text.tokens>[0] => ({
    input,
    output,
    complete,
  });
  assert.equal(text.tokens(usage(1, 0)), "1 token");
  assert.equal(text.tokens(usage(900, 99)), "999 tokens");
  assert.equal(text.tokens(usage(1000, 234)), "1.2k tokens");
  assert.equal(text.tokens(usage(99_949, 0)), "99.9k tokens");
  assert.equal(text.tokens(usage(999_499, 0)), "999k tokens");
  assert.equal(text.tokens(usage(999_500, 0)), "1.00M tokens");
  assert.equal(text.tokens(usage(3_210_000, 0, false)), "at least 3.21M tokens");
  assert.equal(text.tokensInFull(run.usage), "120 in (20 cached), 30 out, and some requests did not say");
});

test("money shows what is small, and says when something had no price", () => {
  assert.equal(text.money({ amount: 0.0125, currency: "USD", complete: false }), "at least 0.0125 USD");
  assert.equal(text.money({ amount: 12.5, currency: "EUR", complete: true }), "12.50 EUR");
  assert.equal(text.money({ amount: 0, currency: "USD", complete: true }), "0.00 USD");
});

test("time is told from start to end, or until now while the run is live", () => {
  assert.equal(text.elapsed(run, 0), "9s");
  const start = Date.parse(run.startedAt);
  const { finishedAt: _, ...open } = run;
  assert.equal(text.elapsed({ ...open, status: "running" }, start + 61_000), "1m 1s");
  assert.equal(text.elapsed({ ...open, status: "interrupted" }, start + 61_000), "");
  assert.equal(text.duration(3_723_000), "1h 2m");
  assert.equal(text.duration(-5), "0s");
});

test("a route says why", () => {
  const route = notification("$/outpost/route");
  assert.equal(
    text.route(route),
    "deep: large, the decision was not sure enough (confidence 0.50), so the fallback answers",
  );
  assert.match(text.route({ ...route, reason: "unavailable", rule: "r1" }), /could not be asked.*rule r1/u);
  assert.equal(text.routeReason({ ...route, reason: "selected", confidence: 0.97 }), "chosen (confidence 0.97)");
});

test("one line of text is one line, and is cut between characters", () => {
  assert.equal(text.oneLine("a\n\tb\u0000c\u2028d"), "a b c d");
  assert.equal(text.oneLine("😀😀😀", 2), "😀…");
});
