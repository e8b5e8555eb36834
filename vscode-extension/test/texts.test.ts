/** Texts that are only to be read. */

import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";

import type { Uri } from "vscode";

import { Texts } from "../src/texts";
import { stage } from "./stub/editor";

beforeEach(() => {
  stage.reset();
});

test("a text is shown as a document that needs no saving, and its next version takes its place", async () => {
  const texts = new Texts();
  const changed: string[] = [];
  texts.onDidChange((uri: Uri) => changed.push(texts.provideTextDocumentContent(uri)));
  await texts.show("Installation", "ok  git");
  await texts.show("Installation", "FAIL  git");
  assert.deepEqual(changed, ["ok  git", "FAIL  git"]);
  assert.equal(stage.shown.length, 2);
  texts.dispose();
});
