/** Messages, questions, progress, keys and edits: what stands between the server and the person. */

import assert from "node:assert/strict";
import { beforeEach, mock, test } from "node:test";

import { hunkText } from "../src/changes/hunks";
import { touched, withPreview } from "../src/changes/preview";
import { choicesFor, Messages, type Choice } from "../src/messages";
import { Questions, type Asked } from "../src/permissions";
import type { ChangedFile, Run } from "../src/protocol";
import { Keys, strayKeys } from "../src/secrets";
import type { ProgressValue } from "../src/server/connection";
import { Starter } from "../src/starter";
import { exchange, notification } from "./golden";
import { stage } from "./stub/editor";

const { run: ended } = notification("$/outpost/run");

beforeEach(() => {
  stage.reset();
});

const settled = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, 5));

// Messages

function messages(): { shown: [number, string, string[]][]; messages: Messages } {
  const shown: [number, string, string[]][] = [];
  const show = (kind: number, text: string, choices: readonly Choice[]): void => {
    shown.push([kind, text, choices.map(({ title }) => title)]);
  };
  return { shown, messages: new Messages(show) };
}

test("the message that closes a run gets the buttons that help with it", () => {
  const it = messages();
  it.messages.take({ type: 3, message: "Outpost: done" });
  assert.deepEqual(it.shown, []);
  it.messages.runChanged({ ...ended, status: "running" });
  assert.deepEqual(it.shown, []);
  it.messages.runChanged(ended);
  assert.deepEqual(it.shown, [[3, "Outpost: done", ["Show Findings", "Show Changes"]]]);
});

test("another message is shown without buttons, in its order", () => {
  mock.timers.enable({ apis: ["setTimeout"] });
  const it = messages();
  it.messages.take({ type: 2, message: "one" });
  it.messages.take({ type: 1, message: "two" });
  mock.timers.tick(1000);
  mock.timers.reset();
  assert.deepEqual(it.shown, [
    [2, "one", []],
    [1, "two", []],
  ]);
});

test("a run that nobody asked for is not told when there is nothing to look at", () => {
  const it = messages();
  const quiet = { ...ended, findings: 0 };
  for (const run of [quiet, ended, { ...quiet, status: "failed" as const }]) {
    it.messages.keepQuietAbout(run.id);
    it.messages.take({ type: 3, message: `Outpost: ${run.status}, ${String(run.findings)}` });
    it.messages.runChanged(run);
  }
  assert.deepEqual(
    it.shown.map(([, text]) => text),
    ["Outpost: succeeded, 1", "Outpost: failed, 0"],
  );
});

test("a run that failed for want of a key leads to the box for that key, in the one message that tells of it", () => {
  const failed: Run = {
    ...ended,
    status: "failed",
    findings: 0,
    disposition: "none",
    error: { code: "configuration", message: "the key is missing", details: { provider: "local" } },
  };
  const [first, ...others] = choicesFor(failed, ["local"]);
  assert.deepEqual(first, { title: "Set API Key…", command: "outpost.ui.setKey", argument: "local" });
  assert.deepEqual(
    others.map(({ title }) => title),
    ["Continue"],
  );
  // Another key is missing, or none is: what failed is something else.
  assert.ok(!choicesFor(failed, ["other"]).some(({ title }) => title.startsWith("Set API Key")));
  assert.ok(!choicesFor(failed).some(({ title }) => title.startsWith("Set API Key")));
  const shown: string[][] = [];
  const told = new Messages(
    (_kind, _text, choices) => shown.push(choices.map(({ title }) => title)),
    () => ["local"],
  );
  told.take({ type: 1, message: "Outpost: failed" });
  told.runChanged(failed);
  assert.deepEqual(shown, [["Set API Key…", "Continue"]]);
});

test("every end of a run leads on", () => {
  const choices = (more: Partial<Run>): string[] =>
    choicesFor({ ...ended, findings: 0, disposition: "none", ...more }).map(({ title }) => title);
  assert.deepEqual(choices({ status: "interrupted" }), ["Continue", "Show Timeline"]);
  assert.deepEqual(choices({ status: "failed" }), ["Continue", "Show Timeline"]);
  assert.deepEqual(choices({ status: "cancelled" }), []);
  assert.deepEqual(choices({ status: "succeeded" }), ["Show Timeline"]);
  assert.deepEqual(choices({ disposition: "pending" }), ["Show Changes", "Show Timeline"]);
});

// Questions

const question = {
  type: 2,
  message: "writer wants to use shell",
  actions: [{ title: "Allow once" }, { title: "Deny" }],
};

function questions(): {
  asked: [Asked, boolean][];
  waiting: number[];
  answer(text: string | undefined): void;
  questions: Questions;
} {
  const asked: [Asked, boolean][] = [];
  const waiting: number[] = [];
  const open: ((text: string | undefined) => void)[] = [];
  const ask = (one: Asked, isAgain: boolean): Promise<string | undefined> => {
    asked.push([one, isAgain]);
    return new Promise((resolve) => open.push(resolve));
  };
  return {
    asked,
    waiting,
    answer: (text) => open.shift()?.(text),
    questions: new Questions(ask, (count) => waiting.push(count)),
  };
}

test("a question that is answered is settled with that answer", async () => {
  const it = questions();
  const answer = it.questions.take(question, () => undefined);
  it.answer("Allow once");
  assert.deepEqual(await answer, { title: "Allow once" });
  assert.deepEqual(it.waiting, [1, 0]);
});

test("a message that went away leaves the question open, and it can be asked again", async () => {
  const it = questions();
  const answer = it.questions.take(question, () => undefined);
  it.answer(undefined);
  await settled();
  assert.deepEqual(it.waiting, [1]);
  void it.questions.askAgain();
  assert.deepEqual(
    it.asked.map(([, isAgain]) => isAgain),
    [false, true],
  );
  it.answer("Deny");
  assert.deepEqual(await answer, { title: "Deny" });
});

test("a withdrawn question has no answer, and a late click on it is for nobody", async () => {
  const it = questions();
  let withdraw: () => void = () => undefined;
  const answer = it.questions.take(question, (listener) => (withdraw = listener));
  withdraw();
  assert.equal(await answer, null);
  it.answer("Allow once");
  await settled();
  assert.deepEqual(it.waiting, [1, 0]);
});

test("a server that is gone has no questions", async () => {
  const it = questions();
  const answers = [it.questions.take(question, () => undefined), it.questions.take(question, () => undefined)];
  it.questions.dropAll();
  assert.deepEqual(await Promise.all(answers), [null, null]);
  assert.equal(it.waiting.at(-1), 0);
  await it.questions.askAgain();
});

// Progress

class Source {
  listener: (value: ProgressValue) => void = () => undefined;
  readonly cancelled: string[] = [];
  isListening = false;
  constructor(private readonly answer: () => Promise<unknown>) {}
  request(): Promise<never> {
    return this.answer() as Promise<never>;
  }
  onProgress(_: string, listener: (value: ProgressValue) => void): { dispose(): void } {
    this.listener = listener;
    this.isListening = true;
    return { dispose: () => (this.isListening = false) };
  }
  cancelProgress(token: string): void {
    this.cancelled.push(token);
  }
}

test("a run's progress is a notification that cancels, until its end", async () => {
  const source = new Source(() => Promise.resolve({ run: ended }));
  const starter = new Starter(() => Promise.resolve(source));
  const run = await starter.start("outpost.review", {});
  assert.equal(run?.id, ended.id);
  source.listener({ kind: "begin", title: "Outpost: Review", message: "queued" });
  source.listener({ kind: "report", message: "step 1" });
  const [shown] = stage.progress;
  assert.ok(shown !== undefined);
  assert.deepEqual(shown.messages, ["queued", "step 1"]);
  shown.cancel();
  assert.equal(source.cancelled.length, 1);
  source.listener({ kind: "end", message: "cancelled" });
  await settled();
  assert.ok(shown.isDone);
  assert.ok(!source.isListening);
});

test("the progress of a run that nobody asked for is in the status bar", async () => {
  const source = new Source(() => Promise.resolve({ run: ended }));
  await new Starter(() => Promise.resolve(source)).start("outpost.review", {}, true);
  source.listener({ kind: "begin", title: "Outpost: Review" });
  assert.equal((stage.progress[0]?.options as { location: number }).location, 10);
});

test("a run that is refused is told once, in the server's words, and nothing is left of its progress", async () => {
  const source = new Source(() => Promise.reject(new Error("revision: there is no 'nowhere'")));
  const starter = new Starter(() => Promise.resolve(source));
  assert.equal(await starter.start("outpost.review", { scope: "branch", base: "nowhere" }), undefined);
  assert.deepEqual(
    stage.dialogs.map(({ text }) => text),
    ["Outpost: revision: there is no 'nowhere'"],
  );
  assert.ok(!source.isListening);
});

test("a request that was cancelled, or that there is no server for, is not told", async () => {
  const cancelled = new Source(() => Promise.reject(Object.assign(new Error("cancelled"), { code: -32800 })));
  await new Starter(() => Promise.resolve(cancelled)).start("outpost.review", {});
  await new Starter(() => Promise.resolve(undefined)).start("outpost.review", {});
  assert.deepEqual(stage.dialogs, []);
});

test("progress ends with its server", async () => {
  const source = new Source(() => Promise.resolve({ run: ended }));
  const starter = new Starter(() => Promise.resolve(source));
  await starter.start("outpost.review", {});
  source.listener({ kind: "begin", title: "Outpost: Review" });
  starter.endAll();
  await settled();
  assert.ok(stage.progress[0]?.isDone);
});

// Keys

function keys(): { keys: Keys; stored: Map<string, string>; state: Map<string, unknown> } {
  const stored = new Map<string, string>();
  const state = new Map<string, unknown>();
  const secrets = {
    get: (name: string) => Promise.resolve(stored.get(name)),
    store: (name: string, value: string) => Promise.resolve(void stored.set(name, value)),
    delete: (name: string) => Promise.resolve(void stored.delete(name)),
  };
  const memento = {
    get: (name: string, fallback: unknown) => state.get(name) ?? fallback,
    update: (name: string, value: unknown) => Promise.resolve(void state.set(name, value)),
  };
  return { keys: new Keys(secrets as never, memento as never), stored, state };
}

test("a key is only in the secret storage; its name is known outside", async () => {
  const it = keys();
  assert.equal(await it.keys.get("openai"), undefined);
  assert.deepEqual(it.keys.wanted(), ["openai"]);
  await it.keys.set("openai", " sk-123\n");
  assert.equal(await it.keys.get("openai"), "sk-123");
  assert.deepEqual(it.keys.wanted(), []);
  assert.deepEqual(it.keys.names(), ["openai"]);
  assert.ok(!JSON.stringify([...it.state]).includes("sk-123"));
  await it.keys.delete("openai");
  assert.deepEqual(it.keys.names(), []);
  assert.equal(await it.keys.get("openai"), undefined);
});

test("keys in the settings are found, by their name or by their looks, and moved out", () => {
  const { found, cleaned } = strayKeys({
    good: { kind: "openai", apiKeyEnv: "OPENAI_API_KEY" },
    clear: { kind: "openai", apiKey: "sk-abcdef", baseUrl: "https://example.org" },
    "by-looks": { kind: "anthropic", api_key_env: "sk-ant-0123456789abcdefghij" },
    local: { kind: "openai", apiKeyEnv: "" },
  });
  assert.deepEqual(
    found.map(({ provider, value }) => [provider, value]),
    [
      ["clear", "sk-abcdef"],
      ["by-looks", "sk-ant-0123456789abcdefghij"],
    ],
  );
  assert.deepEqual(cleaned, {
    good: { kind: "openai", apiKeyEnv: "OPENAI_API_KEY" },
    clear: { kind: "openai", baseUrl: "https://example.org", apiKeyEnv: "CLEAR_API_KEY" },
    "by-looks": { kind: "anthropic", apiKeyEnv: "BY_LOOKS_API_KEY" },
    local: { kind: "openai", apiKeyEnv: "" },
  });
});

// Edits

test("an edit with a preview waits for consent in every part, and is otherwise the same", () => {
  const edits = [{ range: { start: { line: 0, character: 0 }, end: { line: 1, character: 0 } }, newText: "x\n" }];
  const params = {
    edit: {
      documentChanges: [
        { textDocument: { uri: "file:///a", version: 3 }, edits },
        { kind: "create" as const, uri: "file:///b" },
        { kind: "rename" as const, oldUri: "file:///c", newUri: "file:///d" },
        { kind: "delete" as const, uri: "file:///e" },
      ],
    },
  };
  const { edit } = withPreview(params, "Changes");
  assert.deepEqual(edit.changeAnnotations, { outpost: { label: "Changes", needsConfirmation: true } });
  const text = JSON.stringify(edit.documentChanges);
  assert.equal(text.match(/"annotationId":"outpost"/gu)?.length, 4);
  assert.deepEqual(JSON.parse(text.replaceAll(',"annotationId":"outpost"', "")), params.edit.documentChanges);
  assert.deepEqual(touched(params.edit), ["file:///a", "file:///b", "file:///d"]);
  assert.deepEqual(touched({ changes: { "file:///a": edits } }), ["file:///a"]);
  assert.equal(withPreview({ edit: { changes: { "file:///a": edits } } }, "Changes").edit.documentChanges?.length, 1);
});

test("a part of the changes is told by its place and its first line", () => {
  const [file] = exchange("outpost.diff").result.files as [ChangedFile];
  const [hunk] = file.hunks as [ChangedFile["hunks"][number]];
  assert.deepEqual(hunkText(file, hunk), { place: "lines 1 to 3", line: "+ New words." });
  const removed = { ...file, before: "a\nb\nc\n", after: "a\nc\n" };
  assert.deepEqual(hunkText(removed, { id: "1", header: "@@ -2 +1,0 @@ class A" }), {
    place: "line 2 removed",
    line: "− b",
  });
  assert.deepEqual(hunkText(file, { id: "1", header: "odd" }), { place: "odd", line: "" });
});
