/** Agents with a scripted service: keys, delegation, routing, steering, changes, questions, cancelling, a crash. */

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before } from "node:test";

import { Editor, makeRepository, step as keep } from "./editor.mjs";
import { insist, until } from "./waiting.mjs";
import { decision, Service } from "./service.mjs";

const KEY = "canary-of-the-editor-test-1";
const repository = makeRepository(mkdtempSync(join(tmpdir(), "outpost-agents-")), {
  "prices.py": "def discount(price, percent):\n    return price - price * percent / 100\n",
  "README.md": "# Shop\n\nOld words.\n",
});

const COORDINATOR = "You coordinate the shop.";
const REVIEWER = "You review the shop.";
const WRITER = "You write for the shop.";

const HINT = "Think of rebates, too.";

const FINDING = {
  path: "prices.py",
  quote: "return price - price * percent / 100",
  severity: "warning",
  code: "unchecked-input",
  title: "A percentage above 100 gives a negative price",
  detail: "Nothing checks `percent`, so 150 turns 10 into -5.",
  confidence: 0.8,
};

const ANSWERS = [
  // Delegation: the coordinator asks the reviewer, who reports; one decision is not sure enough.
  decision("fast", 0.97),
  decision("deep", 0.93),
  decision("fast", 0.55),
  decision("fast", 0.97, { times: 0 }),
  {
    when: { contains: COORDINATOR, results: 0 },
    text: "I ask the reviewer.",
    calls: [{ name: "reviewer", input: { prompt: "Look at the prices." } }],
    usage: { input: 1200, output: 80 },
  },
  {
    when: { contains: REVIEWER, results: 0 },
    calls: [{ name: "report_finding", input: FINDING }],
    usage: { input: 2400, output: 160 },
    hold: "reviewer",
  },
  { when: { contains: REVIEWER, results: 1 }, text: "One risk.", usage: { input: 2600, output: 40 } },
  {
    when: { contains: COORDINATOR, results: 1 },
    text: "The discount is not checked.",
    usage: { input: 1500, output: 60 },
  },
  // One agent is spoken to, not the run: the reviewer reads on until it has heard it, and says other words than it heard.
  {
    when: { contains: COORDINATOR, results: 0 },
    calls: [{ name: "reviewer", input: { prompt: "Look again." } }],
  },
  { when: { contains: COORDINATOR, results: 1 }, text: "Looked at twice." },
  { when: { contains: HINT }, text: "Both were thought of." },
  {
    when: { contains: REVIEWER },
    calls: [{ name: "read_file", input: { path: "prices.py" } }],
    delay_s: 1,
    times: 0,
  },
  // Changes: after a question for permission.
  {
    when: { contains: "new words", results: 0 },
    calls: [{ name: "write_file", input: { path: "README.md", content: "# Shop\n\nNew words.\n" } }],
  },
  {
    when: { contains: "new words", results: 1 },
    calls: [{ name: "write_file", input: { path: "NOTES.md", content: "Noted.\n" } }],
  },
  { when: { contains: "new words", results: 2 }, text: "Written." },
  // Steering: somebody speaks while the first answer is on its way.
  { when: { contains: "use the word done" }, text: "Done, as you wished.", times: 0 },
  {
    when: { contains: "take your time", results: 0 },
    calls: [{ name: "read_file", input: { path: "README.md" } }],
    hold: "writer",
  },
  // What was said may still be on its way then: until it is there the agent reads on.
  {
    when: { contains: "take your time" },
    calls: [{ name: "read_file", input: { path: "prices.py" } }],
    delay_s: 1,
    times: 0,
  },
  { when: { contains: "wait for me" }, silent: true, times: 0 },
];

let service;
let editor;
let window;

before(async () => {
  service = await Service.start(ANSWERS);
  const agent = (instructions, more) => ({ instructions, ...more });
  editor = await Editor.start({
    settings: {
      "outpost.providers": { local: { kind: "openai", api: "chat", baseUrl: service.url, apiKeyEnv: "SHOP_KEY" } },
      "outpost.models": {
        small: {
          provider: "local",
          name: "small-1",
          price: { input: 0.25, cached: 0.025, output: 2, currency: "USD" },
        },
        large: { provider: "local", name: "large-1", price: { input: 2.5, cached: 0.25, output: 20, currency: "USD" } },
      },
      "outpost.defaultModel": "small",
      "outpost.deciders": { choosing: { kind: "system-one", baseUrl: service.url, apiKeyEnv: "" } },
      "outpost.routing": {
        depth: {
          decider: "choosing",
          model: "auto",
          question: "route",
          instructions: "Choose the model for the next step.",
          criteria: { fast: "Routine tools", deep: "Reasoning" },
          models: { fast: "small", deep: "large" },
          minConfidence: 0.85,
          fallback: "deep",
        },
      },
      "outpost.agents": {
        coordinator: agent(COORDINATOR, { routing: "depth", subagents: ["reviewer"], tools: ["files"] }),
        reviewer: agent(REVIEWER, { routing: "depth", tools: ["files", "findings"] }),
        writer: agent(WRITER, {
          tools: ["files", "edit"],
          permissions: {
            default: "allow",
            rules: [{ effect: "ask", tools: ["write_file"], paths: ["NOTES.md"], reason: "notes are private" }],
          },
        }),
      },
    },
  });
  window = await editor.open(repository, "prices.py");
});

after(async () => {
  await editor?.stop();
  service?.stop();
});

const step = (name, work) => keep(name, () => editor, work);

/** The processes of the servers that were started, as the extension's output tells. */
const pids = () => [...editor.log().matchAll(/runs as process (\d+)/gu)].map(([, pid]) => Number(pid));

async function dispatch(agent, brief) {
  await window.command("Outpost: Run an Agent…");
  await window.pick(agent);
  await window.answer(brief);
}

step("a missing key is asked for, kept in the secret storage and given to the server", async () => {
  await window.status("Outpost: idle");
  await window.command("View: Show Outpost");
  await window.widen(520);
  await window.command("Outpost: Coordinate…");
  await window.answer("Have the shop reviewed.");
  await window.press("provider local: the key is missing", "Set API Key");
  await window.picture("key");
  await window.answer(KEY);
  await window.notification("the key of local is saved");
  assert.ok(!JSON.stringify(await service.requests()).includes(KEY));
});

step("delegation is shown live, with the models that were chosen and why", async () => {
  await window.clear();
  await window.command("Outpost: Coordinate…");
  await window.answer("Have the shop reviewed.");
  await window.status("1 running");
  // It is shown while the reviewer thinks, which it does until this test has looked.
  await until("the fallback of the reviewer is shown", async () =>
    (await window.rows("Runs")).some((row) => row.includes("reviewer") && row.includes("deep → large-1")),
  );
  await window.picture("delegation");
  await service.release("reviewer");
  await window.notification("Have the shop reviewed: 1 finding");
  const ends = [/coordinator.*fast → small-1 · step 2/u, /reviewer.*fast → small-1 · step 2 · 5.3k tokens/u];
  await until("both agents are shown as they ended", async () => {
    const rows = (await window.rows("Runs")).map((row) => row.replace(/\s+/gu, " "));
    return ends.every((end) => rows.some((row) => end.test(row)));
  });
  await window.row("Findings", FINDING.title);
  await window.status("tokens");
  await window.status("USD");
  await window.picture("delegated");
  const seen = await service.requests();
  assert.ok(
    seen
      .filter(({ path }) => path.endsWith("/chat/completions"))
      .every(({ headers }) => headers.authorization === `Bearer ${KEY}`),
  );
});

step("the timeline tells steps, routes and tokens of each agent", async () => {
  await window.act("Runs", "Have the shop reviewed.", "Show Timeline");
  const frame = window.timeline();
  await frame.locator("article.step", { hasText: "reviewer, step 2" }).first().waitFor({ state: "visible" });
  await frame.locator(".badge.fallback", { hasText: "large-1" }).first().waitFor({ state: "visible" });
  await frame.locator("#usage", { hasText: "reviewer" }).waitFor({ state: "visible" });
  await insist("the keyboard moves to the next step", async (timeout) => {
    await frame.locator("article.step").first().focus({ timeout });
    await frame.locator("article.step").first().press("ArrowDown", { timeout });
    await frame.locator("article:focus h2", { hasText: "reviewer, step 1" }).waitFor({ state: "visible", timeout });
  });
  await window.picture("timeline-of-agents");
  await window.command("View: Close Editor");
});

step("one agent of a run is steered from its row, and hears it alone", async () => {
  await window.clear();
  await window.command("Outpost: Coordinate…");
  await window.answer("Have it looked at again.");
  await window.status("1 running");
  await window.act("Runs", /reviewer\s*fast → small-1/u, "Steer…", "What should reviewer know or do?");
  await window.answer(HINT);
  await window.told("Outpost: told");
  await window.notification("Have it looked at again: done");
  await window.act("Runs", "Have it looked at again.", "Show Timeline");
  const frame = window.timeline();
  const heard = frame.locator("article.step", { hasText: `instruction injected: ${HINT}` });
  await heard.first().waitFor({ state: "visible" });
  assert.deepEqual(
    (await heard.locator("h2").allInnerTexts()).map((title) => title.replace(/, step \d+.*/su, "")),
    ["reviewer"],
  );
  await window.picture("steered-agent");
  await window.command("View: Close Editor");
  const bodies = (await service.requests()).map(({ json }) => JSON.stringify(json) ?? "");
  const told = bodies.filter((body) => body.includes(HINT));
  assert.ok(told.length > 0 && told.every((body) => body.includes(REVIEWER) && !body.includes(COORDINATOR)));
});

step("a question for permission waits in the status bar until it is answered", async () => {
  await dispatch("writer", "Put new words everywhere.");
  await window.status("1 question");
  await window.notification("notes are private");
  await window.picture("question");
  await window.press("notes are private", "Allow once");
  await window.notification("2 files changed");
});

step("changes are shown, applied in part, then all of them, and saved", async () => {
  await window.clear();
  await window.act("Runs", "Put new words everywhere.", "Show Changes");
  await window.see(".multiDiffEntry, .monaco-diff-editor");
  await until("both files are shown", async () => {
    const text = (await window.page.locator(".editor-instance").allInnerTexts()).join("\n");
    return text.includes("README.md") && text.includes("NOTES.md");
  });
  await window.picture("changes");
  await window.command("View: Close All Editors");
  await window.command("Outpost: Apply Parts of the Changes…");
  await window.pick("NOTES.md");
  await window.picture("hunks");
  await window.accept();
  await window.told("applied to 1 file");
  await window.command("File: Save All Files");
  await until("the part is there", () => readFileSync(join(repository, "README.md"), "utf8").includes("New words."));
  assert.ok(!existsSync(join(repository, "NOTES.md")));
  await window.command("Outpost: Apply Changes and Save");
  await until(
    "the rest is there",
    () => existsSync(join(repository, "NOTES.md")) && readFileSync(join(repository, "NOTES.md"), "utf8") === "Noted.\n",
  );
});

step("a running agent is steered, and its timeline goes along", async () => {
  await window.clear();
  const before = (await service.state()).requests;
  await dispatch("writer", "Please take your time.");
  await window.status("1 running");
  await until("the service was asked", async () => (await service.state()).requests > before);
  await window.act("Runs", "Please take your time.", "Show Timeline");
  const timeline = window.timeline();
  await timeline.locator("article.step", { hasText: "writer, step 1" }).waitFor({ state: "visible" });
  await insist("the timeline's button asks what to say", async (timeout) => {
    await timeline.getByRole("button", { name: "Steer…" }).click({ timeout });
    await window.see(".quick-input-widget", "Steer: ", timeout);
  });
  await window.answer("use the word done");
  await service.release("writer");
  await window.told("Outpost: told");
  await timeline.locator("article.step", { hasText: "writer, step 2" }).first().waitFor({ state: "visible" });
  await timeline.locator("#answer", { hasText: "Done, as you wished." }).waitFor({ state: "visible" });
  await window.notification("Please take your time: done");
  await timeline
    .locator("#steps", { hasText: "instruction injected: use the word done" })
    .waitFor({ state: "visible" });
  await window.picture("steered");
  await window.command("View: Close Editor");
});

step("a run is cancelled from its progress notification", async () => {
  await window.clear();
  await dispatch("writer", "Again, wait for me.");
  await window.press("Again, wait for me", "Cancel");
  await window.notification("Again, wait for me: cancelled");
  await window.status("Outpost: idle");
  await until("the service was left", async () => (await service.state()).leftEarly > 0);
});

step("a server that is killed comes back, and its run can be continued", async () => {
  await window.clear();
  const before = (await service.state()).requests;
  await dispatch("writer", "Once more, wait for me.");
  await window.status("1 running");
  await until("the service was asked", async () => (await service.state()).requests > before);
  const [pid] = pids().slice(-1);
  process.kill(pid, "SIGKILL");
  await until("there is another", () => pids().at(-1) !== pid);
  await window.status("Outpost: idle");
  await window.row("Runs", "interrupted");
  await window.picture("interrupted");
  await window.command("Outpost: Continue…");
  await window.pick("Once more, wait for me.");
  await window.answer("Go on, and use the word done.");
  await window.notification("Go on, and use the word done: done");
});

step("the server and its runs go with the window, and no key was written anywhere", async () => {
  await dispatch("writer", "To the end, wait for me.");
  await window.status("1 running");
  assert.ok(pids().length > 1);
  assert.ok(!editor.log().includes(KEY));
  await window.close();
  await until("the server has ended", () => pids().every((pid) => !isAlive(pid)));
  const folders = ["state", "cache", join("data", "logs"), join("data", "User")].map((name) => join(editor.home, name));
  const { stdout } = spawnSync("grep", ["-rlF", KEY, ...folders], { encoding: "utf8" });
  assert.equal(stdout, "");
});

/** Whether the server with this number runs; another program may have got the number since. */
function isAlive(pid) {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, "utf8").includes("--clientProcessId");
  } catch {
    return false;
  }
}
