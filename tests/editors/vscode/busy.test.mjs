/** The view of runs under 200 runs that tell 2,000 events a second: it goes along, and answers whoever uses it. */

import assert from "node:assert/strict";
import { chmodSync, mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before } from "node:test";
import { fileURLToPath } from "node:url";

import { Editor, makeRepository, step as keep } from "./editor.mjs";
import { until } from "./waiting.mjs";

const folder = mkdtempSync(join(tmpdir(), "outpost-busy-"));
const repository = makeRepository(join(folder, "repository"), { "a.py": "print(1)\n" });
const server = join(folder, "server");
writeFileSync(
  server,
  `#!/bin/sh\nexec "${process.execPath}" "${fileURLToPath(new URL("flood.mjs", import.meta.url))}"\n`,
);
chmodSync(server, 0o755);

let editor;
let window;

before(async () => {
  editor = await Editor.start({ settings: { "outpost.serverPath": server } });
  window = await editor.open(repository, "a.py");
});
after(() => editor?.stop());

const step = (name, work) => keep(name, () => editor, work);

/** How often something in the page changed within three seconds; runs in the page. */
async function countChanges(selector) {
  const text = () => [...document.querySelectorAll(selector)].map((one) => one.textContent).join();
  const began = performance.now();
  let last = text();
  let times = 0;
  while (performance.now() - began < 3000) {
    await new Promise((resolve) => requestAnimationFrame(resolve));
    const now = text();
    times += now === last ? 0 : 1;
    last = now;
  }
  return { times, seconds: (performance.now() - began) / 1000 };
}

const plain = (rows) => rows.map((row) => row.replace(/\s+/gu, " ").trim());

step("the view goes along with 200 busy runs", async () => {
  await window.status("200 running");
  await window.command("View: Show Outpost");
  await window.widen(520);
  const latest = async () =>
    Math.max(0, ...(await window.rows("Runs")).map((row) => Number(/tool (\d+)/u.exec(row)?.[1] ?? 0)));
  const seen = await until("an agent at work is shown", latest);
  await until("what is shown has gone on", async () => (await latest()) > seen + 10);
  const { times, seconds } = await window.page.evaluate(countChanges, `${window.rowsOf("Runs")} .label-description`);
  console.log(`${(times / seconds).toFixed(1)} updates a second are drawn`);
  await window.picture("busy");
});

step("a question about all of them is asked and turned away, and a file is opened, while events come in", async () => {
  await window.command("Outpost: Show Timeline");
  await window.turnAway("work 3");
  await window.openFile("a.py");
});

step("a run that is cancelled from its row ends, and the view shows how all of them ended", async () => {
  await window.act("Runs", "work 2", "Cancel");
  await window.status("Outpost: idle");
  await until("they are shown as cancelled", async () => {
    const rows = plain(await window.rows("Runs")).filter((row) => row.startsWith("work"));
    return rows.length > 0 && rows.every((row) => row.includes("cancelled"));
  });
  const [, events, time] = /told (\d+) events in (\d+) ms/u.exec(editor.log());
  console.log(`${events} events in ${time} ms`);
  const told = await window.notifications();
  assert.ok(!told.some((one) => one.includes("already registered")), "the editor was given rows that it refused");
});
