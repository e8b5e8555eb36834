/** The first minutes of a user: no service, no key; the built-in reviewer finds slips in uncommitted work. */

import assert from "node:assert/strict";
import { mkdtempSync, readFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";

import { Editor, keepEvidence, makeRepository, until, writeFiles } from "./editor.mjs";

const COMMITTED = `"""Prices of a small shop."""


def discount(price, percent):
    return price - price * percent / 100
`;

const CHANGED = `"""Prices of a small shop."""


def discount(price, percent):
    if percent is 0:
        return price
    return price - price * percent / 100


def total(items, seen=[]):
    seen.extend(items)
    return sum(item.price for item in seen)


def label(name):
    return f"price of {nam}"
`;

const IDENTITY = "The comparison depends on the interpreter";
const MUTABLE = "The default value is shared";
const UNDEFINED = "is not defined here";

let editor;
let window;
const repository = makeRepository(mkdtempSync(join(tmpdir(), "outpost-shop-")), { "shop/prices.py": COMMITTED });
writeFiles(repository, { "shop/prices.py": CHANGED });
const file = () => readFileSync(join(repository, "shop/prices.py"), "utf8");

before(async () => {
  editor = await Editor.start();
  window = await editor.open(repository, "shop/prices.py");
});

after(async () => {
  await editor?.stop();
});

function step(name, work) {
  test(name, async () => {
    try {
      await work();
    } catch (error) {
      await keepEvidence(editor, window, name.replace(/\W+/gu, "-"));
      throw error;
    }
  });
}

step("the extension starts the server without a word", async () => {
  await window.status("Outpost: idle");
  assert.equal(await window.page.locator(".notification-toast").count(), 0);
});

step("a review puts findings into the view and the Problems panel", async () => {
  await window.command("Outpost: Review Uncommitted Work");
  await window.notification("Review of the uncommitted changes: 3 findings");
  await window.command("View: Show Outpost");
  await window.widen(520);
  for (const title of [IDENTITY, MUTABLE, UNDEFINED]) {
    await window.row("Findings", title);
  }
  await window.row("Runs", "Review of the uncommitted changes");
  await window.picture("findings");
  await window.command("Problems: Focus on Problems View");
  const problem = await window.see(".markers-panel .monaco-list-row", IDENTITY);
  assert.match((await problem.innerText()).replace(/\s+/gu, " "), /outpost\s*\(?is-literal\)? ?\[Ln 5, Col 5\]/u);
  await window.picture("problems");
});

step("a suggestion is applied to the text, and its finding goes", async () => {
  await window.command("View: Show Outpost");
  await window.act("Findings", IDENTITY, "Apply Suggestion");
  await until("the text has changed", async () => (await window.editorText()).includes("if percent == 0:"));
  await window.command("File: Save All");
  await until("the file has changed", () => file().includes("if percent == 0:"));
  await until(
    "two findings are left",
    async () => (await window.rows("Findings")).filter((row) => row.includes(IDENTITY)).length === 0,
  );
});

step("a dismissed finding is remembered with its reason, and can be restored", async () => {
  await window.act("Findings", MUTABLE, "Dismiss");
  await window.answer("the list is wanted");
  await window.expand("Findings", "Dismissed");
  const row = await window.row("Findings", "the list is wanted");
  await window.picture("dismissed");
  await row.hover();
  await row.locator(".action-label[aria-label^='Restore']").click();
  await window.gone(".pane .monaco-list-row", "Dismissed");
  await window.row("Findings", MUTABLE);
});

step("the timeline of the run can be read", async () => {
  await window.act("Runs", "Review of the uncommitted changes", "Show Timeline");
  const frame = window.timeline();
  await frame.locator("article.step").first().waitFor({ state: "visible", timeout: 30_000 });
  assert.match(await frame.locator("#facts").innerText(), /reviewer · /u);
  await window.picture("timeline");
});

step("everything is still there after the window was loaded again, also in high contrast", async () => {
  editor.configure({ "workbench.colorTheme": "Default High Contrast" });
  await window.reload();
  await window.page.waitForSelector(".monaco-workbench.hc-black");
  await window.status("Outpost: idle");
  const timeline = window.timeline();
  await timeline.locator("article.step").first().waitFor({ state: "visible" });
  const color = await timeline.locator("body").evaluate((body) => getComputedStyle(body).backgroundColor);
  assert.equal(color, "rgb(0, 0, 0)");
  await window.command("View: Show Outpost");
  await window.row("Findings", MUTABLE);
  await window.row("Runs", "Review of the uncommitted changes");
  await window.picture("high-contrast");
});

step("a code action and a code lens lead to the same", async () => {
  await window.command("View: Close All Editors");
  await (await window.row("Findings", UNDEFINED)).click();
  await window.see(".view-lines", "price of");
  await window.page.keyboard.press("Control+Home");
  await window.see(".codelens-decoration", "findings");
  await (await window.row("Findings", UNDEFINED)).click();
  await window.command("Quick Fix...");
  await window.see(".action-widget", "Fix with an agent");
  await window.picture("quick-fix");
  await window.page.keyboard.press("ArrowDown");
  await window.see(".action-widget .monaco-list-row.focused", "Dismiss: ");
  await window.page.keyboard.press("Enter");
  await window.answer("a word of the trade");
  await window.row("Findings", "Dismissed");
});

step("review on save begins a moment after the last save, and says nothing of its progress", async () => {
  editor.configure({ "outpost.reviewOnSave": true });
  await window.reload();
  await window.status("Outpost: idle");
  await window.row("Runs", "Review of the uncommitted changes");
  const reviews = async () =>
    (await window.rows("Runs")).filter((row) => row.includes("Review of the uncommitted changes"));
  assert.equal((await reviews()).length, 1);
  await window.see(".view-lines");
  await window.page.locator(".view-lines").first().click();
  await window.page.keyboard.press("Control+End");
  await window.page.keyboard.type("\n\nlast = misspelt\n");
  await window.command("File: Save All");
  await window.row("Findings", "`misspelt` is not defined");
  assert.equal((await reviews()).length, 2);
});
