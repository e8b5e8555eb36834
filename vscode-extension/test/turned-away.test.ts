/** A person who changes their mind in the middle: after each question of every command, nothing has happened. */

import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";

import { register } from "../src/commands/context";
import { serverCommands } from "../src/commands/server";
import type { Run } from "../src/protocol";
import { Keys } from "../src/secrets";
import { Desk } from "./desk";
import { exchange, notification } from "./golden";
import { stage, Uri, workspace, type Dialog } from "./stub/editor";

const { run: ended } = notification("$/outpost/run");
const changed: Run = exchange("outpost.dispatch").result.run;
const [open] = exchange("outpost.findings").result.findings;
const dismissed = exchange("outpost.dismiss").result.finding;
const limited: Run = {
  ...ended,
  status: "failed",
  error: { code: "limit", message: "", details: { limit: "maxSteps", ceiling: 8 } },
};

/** Commands that ask the person nothing. */
const READING = new Set(["outpost.agents", "outpost.diff", "outpost.runs", "outpost.worktrees", "outpost.doctor"]);

let desk: Desk;
let saved: string[];

beforeEach(prepare);

function prepare(): void {
  desk = new Desk();
  saved = [];
  workspace.workspaceFolders = ["shop", "bank"].map((name, index) => ({
    uri: Uri.file(`/home/person/${name}`),
    name,
    index,
  }));
  workspace.openTextDocument = () => Promise.reject(new Error("nothing is opened"));
  for (const id of ["1", "2"]) {
    desk.context.runs.upsert({ ...changed, id: `pending-${id}`, status: "succeeded", disposition: "pending" });
    desk.context.runs.upsert({ ...changed, id: `applied-${id}`, status: "succeeded", disposition: "applied" });
    desk.context.runs.upsert({ ...ended, id: `live-${id}`, status: "running" });
    desk.context.runs.upsert({ ...limited, id: `limited-${id}` });
  }
  assert.ok(open !== undefined);
  desk.context.findings.replaceAll([open, { ...open, id: "other" }, dismissed, { ...dismissed, id: "old" }]);
  for (const name of ["outpost.agents", "outpost.diff", "outpost.worktrees"] as const) {
    desk.answers[name] = () => exchange(name).result;
  }
  const secrets = {
    get: () => Promise.resolve(undefined),
    store: (name: string) => Promise.resolve(void saved.push(name)),
    delete: (name: string) => Promise.resolve(void saved.push(name)),
  };
  const state = { get: () => ["openai", "anthropic"], update: () => Promise.resolve() };
  const act = (): Promise<void> => Promise.resolve(void saved.push("the server"));
  register(
    serverCommands(
      desk.context,
      { restart: act, setUp: act },
      new Keys(secrets as never, state as never),
      { askAgain: () => Promise.resolve() } as never,
      { show: () => undefined } as never,
      { show: () => Promise.resolve() } as never,
    ),
  );
}

/** The last of what is offered, which is mostly the way to more questions, the first button, or some text. */
function goOn({ kind, choices }: Dialog): string {
  return (kind === "pick" || kind === "folder" ? choices.at(-1) : choices[0]) ?? "text";
}

const isQuestion = ({ kind, choices }: Dialog): boolean => kind === "input" || choices.length > 0;

/** What a command did beside asking. */
function done(): unknown[] {
  return [...desk.started, ...desk.asked.filter(([name]) => !READING.has(name)), ...saved];
}

test("whichever question of a command is turned away, the command has done nothing", async () => {
  let deepest = 0;
  let chains = 0;
  const unasked = new Set(["cancelAll", "refreshRuns", "moveKeys", "restart", "setUp"]);
  for (const id of [...stage.registered.keys()].map((name) => name.replace("outpost.ui.", ""))) {
    for (let depth = 0; !unasked.has(id); depth += 1) {
      prepare();
      stage.answers = Array.from({ length: depth }, () => goOn);
      await desk.run(id);
      const questions = stage.dialogs.filter(isQuestion).length;
      if (questions <= depth) {
        break; // There is no further question: it went through.
      }
      const told = `${id}, question ${String(depth + 1)}: ${stage.dialogs.at(-1)?.text ?? ""}`;
      assert.deepEqual(done(), [], told);
      assert.deepEqual(
        stage.dialogs.filter(({ kind }) => kind === "error"),
        [],
        told,
      );
      chains += 1;
      deepest = Math.max(deepest, questions);
    }
  }
  assert.ok(deepest >= 4 && chains > 40, `${String(chains)} questions, ${String(deepest)} in a row`);
});

test("without changes that wait, Apply and Discard say so", async () => {
  for (const [id, words] of [
    ["apply", /there is nothing to apply/u],
    ["applySave", /there is nothing to apply/u],
    ["applyPreview", /there is nothing to apply/u],
    ["applyHunks", /there is nothing to apply/u],
    ["discard", /there is nothing to discard/u],
    ["reopen", /there is nothing to reopen/u],
    ["showChanges", /no run has changed anything/u],
    ["cancel", /nothing is running/u],
    ["steer", /nothing is running/u],
  ] as const) {
    desk = new Desk();
    desk.context.runs.upsert({ ...ended, disposition: "none" });
    await desk.run(id);
    assert.deepEqual([desk.asked, stage.dialogs.length], [[], 1], id);
    assert.match(stage.dialogs[0]?.text ?? "", words);
  }
});

test("a run that is named and has nothing to apply is told for what it is", async () => {
  for (const [run, words] of [
    [{ disposition: "none" }, /that run changed nothing/u],
    [{ disposition: "applied" }, /are applied already/u],
    [{ disposition: "discarded" }, /were given up/u],
    [{ disposition: "none", status: "running" }, /has not ended yet/u],
  ] as const) {
    for (const id of ["apply", "discard"]) {
      desk = new Desk();
      desk.context.runs.upsert({ ...ended, ...run });
      await desk.run(id, { kind: "run", id: ended.id });
      assert.deepEqual([desk.asked, stage.dialogs.length], [[], 1], id);
      assert.match(stage.dialogs[0]?.text ?? "", words);
    }
  }
  desk = new Desk();
  await desk.run("apply", "a run of long ago");
  assert.match(stage.dialogs[0]?.text ?? "", /is not kept any more/u);
});
