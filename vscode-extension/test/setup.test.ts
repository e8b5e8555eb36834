/** Installing the server: what is asked, and that an unanswered message keeps nobody from asking again. */

import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, beforeEach, test } from "node:test";

import type { LogOutputChannel } from "vscode";

import { Setup } from "../src/server/setup";
import { stage } from "./stub/editor";

const folder = mkdtempSync(join(tmpdir(), "outpost-setup-"));
after(() => rmSync(folder, { recursive: true, force: true }));
beforeEach(() => {
  stage.reset();
});

const quiet = { info: () => undefined, warn: () => undefined, error: () => undefined } as unknown as LogOutputChannel;
const setup = (): Setup =>
  new Setup({ storage: join(folder, "storage"), version: "1.2.3" }, join(folder, "no-wheels"), quiet, () => undefined);
const asked = (): string[] => stage.dialogs.map(({ text }) => text);
const errors = (): string[] => stage.dialogs.filter(({ kind }) => kind === "error").map(({ text }) => text);

test("nothing is fetched when the person cancels, or was not asked", async () => {
  const one = setup();
  assert.equal(await one.run(false), false);
  assert.equal(asked().length, 0);
  stage.answers = [undefined];
  assert.equal(await one.run(true), false);
  assert.equal(asked().length, 1);
  assert.match(asked()[0] ?? "", /from your Python package index/u);
});

test("while the message of a failure is open, the next attempt looks again", async () => {
  const one = setup();
  const never = new Promise(() => undefined);
  stage.answers = ["Install", never, "Install", never];
  stage.settings = { "outpost.interpreter": "/nowhere/first" };
  assert.equal(await one.run(true), false);
  stage.settings = { "outpost.interpreter": "/nowhere/second" };
  assert.equal(await one.run(true), false);
  assert.deepEqual(
    errors().map((text) => /\/nowhere\/\w+/u.exec(text)?.[0]),
    ["/nowhere/first", "/nowhere/second"],
  );
});

test("asked for twice at once it is one installation", async () => {
  const one = setup();
  stage.answers = ["Install"];
  stage.settings = { "outpost.interpreter": "/nowhere/python3" };
  assert.deepEqual(await Promise.all([one.run(true), one.run(true)]), [false, false]);
  assert.equal(errors().length, 1);
});
