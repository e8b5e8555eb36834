/** What a run changed: shown, applied in whole or in part, given up, brought back. */

import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";

import { changeUri, placeOf } from "../src/changes/documents";
import type { Run } from "../src/protocol";
import { Desk } from "./desk";
import { exchange } from "./golden";
import { stage, Uri } from "./stub/editor";

const changed: Run = exchange("outpost.dispatch").result.run;

let desk: Desk;

beforeEach(() => {
  desk = new Desk();
});

function withChanges(): void {
  desk.context.runs.upsert(changed);
  desk.answers["outpost.diff"] = () => exchange("outpost.diff").result;
  desk.answers["outpost.apply"] = () => exchange("outpost.apply").result;
}

test("one changed file is a diff of its two sides, whose paths are the file's", async () => {
  withChanges();
  await desk.run("showChanges", changed.id);
  const [command, before, after] = stage.executed[0] as [string, Uri, Uri];
  assert.deepEqual([command, before.path, after.path], ["vscode.diff", "/README.md", "/README.md"]);
  assert.equal(await desk.context.changes.provideTextDocumentContent(before as never), "# Shop\n\nOld words.\n");
  assert.equal(await desk.context.changes.provideTextDocumentContent(after as never), "# Shop\n\nNew words.\n");
  assert.equal(desk.asked.filter(([name]) => name === "outpost.diff").length, 1, "desk.asked once");
  assert.deepEqual(placeOf(changeUri("r", "after", "a b/c#d.py")), { runId: "r", side: "after", path: "a b/c#d.py" });
  assert.equal(placeOf(Uri.file("/x") as never), undefined);
});

test("changes are applied as a whole, by file or in parts", async () => {
  withChanges();
  await desk.run("apply", { kind: "run", id: changed.id });
  const [file] = exchange("outpost.diff").result.files;
  await desk.run("apply", { kind: "changed-file", runId: changed.id, file });
  stage.answers = [["README.md: lines 1 to 3"]];
  await desk.run("applyHunks", changed.id);
  assert.deepEqual(
    desk.asked.filter(([name]) => name === "outpost.apply").map(([, params]) => params),
    [
      { runId: changed.id },
      { runId: changed.id, paths: ["README.md"] },
      { runId: changed.id, hunks: ["29d5b5018890ffa2"] },
    ],
  );
  stage.answers = [[]];
  await desk.run("applyHunks", changed.id);
  assert.equal(desk.asked.filter(([name]) => name === "outpost.apply").length, 3, "nothing chosen, nothing applied");
});

test("a conflict is told with its reasons", async () => {
  withChanges();
  desk.answers["outpost.apply"] = () => exchange("outpost.apply", "apply-refused").result;
  stage.answers = ["Show Changes"];
  await desk.run("apply", changed.id);
  assert.match(stage.dialogs[0]?.text ?? "", /README\.md: both sides changed/u);
  assert.deepEqual(stage.executed.at(-1), ["outpost.ui.showChanges", changed.id]);
});

test("files that make programs act are applied by name, after the person saw them", async () => {
  withChanges();
  const first = { ...exchange("outpost.apply").result, needsOwnAccept: [".vscode/tasks.json"] };
  desk.answers["outpost.apply"] = (params: { paths?: unknown }) =>
    params.paths === undefined ? first : exchange("outpost.apply").result;
  await desk.run("apply", changed.id);
  assert.equal(desk.asked.length, 1, "without a yes they stay");
  stage.answers = ["Apply Them Too"];
  await desk.run("apply", changed.id);
  assert.deepEqual(desk.asked.at(-1), ["outpost.apply", { runId: changed.id, paths: [".vscode/tasks.json"] }]);
});

test("a preview that the person turned away is no fault", async () => {
  withChanges();
  desk.answers["outpost.apply"] = () => ({
    applied: false,
    files: [],
    conflicts: [{ path: "", reason: "nothing was applied: the editor declined" }],
    needsOwnAccept: [],
  });
  await desk.run("applyPreview", changed.id);
  assert.equal(stage.dialogs.length, 0);
  await desk.run("apply", changed.id);
  assert.equal(stage.dialogs[0]?.text, "Outpost: nothing was applied: the editor declined");
});

test("changes are given up after a question, and come back", async () => {
  withChanges();
  await desk.run("discard", changed.id);
  assert.equal(desk.asked.length, 0);
  stage.answers = ["Discard"];
  await desk.run("discard", changed.id);
  desk.answers["outpost.reopen"] = () => ({ run: changed });
  await desk.run("reopen", changed.id);
  assert.deepEqual(
    desk.asked.map(([name]) => name),
    ["outpost.discard", "outpost.reopen"],
  );
});
