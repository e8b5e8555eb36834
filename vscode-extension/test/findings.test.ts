import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";

import { FindingStore, groupByFile, NO_FILTER, passes } from "../src/findings/store";
import { contextOf, FindingsTree, type FindingNode } from "../src/findings/tree";
import type { Finding } from "../src/protocol";
import { exchange, notification } from "./golden";
import type { MarkdownString, TreeItem } from "./stub/editor";

const told = notification("$/outpost/findings");
const [stale] = told.findings as [Finding];
const [open] = exchange("outpost.findings").result.findings as [Finding];
const dismissed = exchange("outpost.dismiss").result.finding;
const other = (more: Partial<Finding>): Finding => ({ ...open, ...more });

let store: FindingStore;
let tree: FindingsTree;

beforeEach(() => {
  store = new FindingStore();
  tree = new FindingsTree(store, "file");
});

const item = (node: FindingNode | undefined): TreeItem => {
  assert.ok(node !== undefined);
  return tree.getTreeItem(node) as unknown as TreeItem;
};
const labels = (nodes: readonly FindingNode[]): (string | undefined)[] =>
  nodes.map((node) => item(node).label ?? item(node).resourceUri?.path);

test("a publish replaces the findings of its document, and no other's", () => {
  store.publish(told.uri, told.findings);
  store.publish(open.uri, [open]);
  store.publish(told.uri, []);
  assert.deepEqual(store.all(), [open]);
});

test("a dismissed finding outlives a publish, which names diagnostics only", () => {
  store.replaceAll([dismissed]);
  store.publish(dismissed.uri, [other({ id: "new" })]);
  assert.deepEqual(
    store
      .all()
      .map(({ id }) => id)
      .sort(),
    [dismissed.id, "new"].sort(),
  );
  store.publish(dismissed.uri, [open]);
  assert.equal(store.get(open.id)?.status, "open", "restored");
});

test("an answer replaces everything", () => {
  store.publish(told.uri, told.findings);
  store.replaceAll([open]);
  assert.deepEqual(store.all(), [open]);
});

test("open findings are by file, the worst first; stale and dismissed ones stand aside", () => {
  const hint = other({ id: "h", severity: "hint", title: "a hint" });
  const error = other({ id: "e", severity: "error", title: "an error" });
  store.replaceAll([hint, open, error, stale, { ...dismissed, id: "d" }]);
  const roots = tree.getChildren();
  assert.deepEqual(labels(roots), ["/home/person/shop/prices.py", "Stale", "Dismissed"]);
  assert.deepEqual(labels(tree.getChildren(roots[0])), ["an error", open.title, "a hint"]);
  assert.deepEqual(labels(tree.getChildren(roots[1])), [stale.title]);
  assert.match(String(item(tree.getChildren(roots[2])[0]).description), /known/u);
});

test("they can be grouped by severity", () => {
  store.replaceAll([
    other({ id: "e", severity: "error" }),
    open,
    other({ id: "w", uri: "file:///home/person/shop/a.py" }),
  ]);
  tree.setGrouping("severity");
  const roots = tree.getChildren();
  assert.deepEqual(labels(roots), ["Errors", "Warnings"]);
  assert.deepEqual(
    tree.getChildren(roots[1]).map((node) => item(node).description),
    ["shop/a.py:2", "shop/prices.py:2"],
  );
});

test("a filter takes words from anywhere, and severities", () => {
  assert.ok(passes(open, { ...NO_FILTER, text: "PRICE percent unchecked" }));
  assert.ok(!passes(open, { ...NO_FILTER, text: "percent nowhere" }));
  assert.ok(!passes(open, { ...NO_FILTER, severities: new Set(["error"]) }));
  store.replaceAll([open, other({ id: "e", severity: "error" })]);
  tree.setFilter({ text: "percent", severities: new Set(["error"]) });
  assert.equal(tree.message(), "Filter “percent”: 1 of 2 findings");
  tree.setFilter(NO_FILTER);
  assert.equal(tree.message(), undefined);
});

test("what can be done depends on the status and on whether there is a suggestion", () => {
  assert.equal(contextOf(open), "finding.open.suggestion");
  const { suggestion: _, ...plain } = open;
  assert.equal(contextOf(plain), "finding.open");
  assert.equal(contextOf(stale), "finding.stale");
  assert.equal(contextOf(dismissed), "finding.dismissed");
});

test("the text of a model is given as text, never as Markdown", () => {
  const evil = "[run](command:evil) ![x](https://example.org/x.png) <b>";
  store.replaceAll([other({ title: evil, detail: evil })]);
  const [file] = tree.getChildren();
  const tip = item(tree.getChildren(file)[0]).tooltip as MarkdownString;
  assert.ok(tip.texts.includes(evil));
  assert.equal(tip.value.replaceAll(evil, "").includes("command:"), false);
});

test("documents are in the order of their names", () => {
  const uris = ["file:///b", "file:///a", "file:///b"];
  const groups = groupByFile(uris.map((uri, index) => other({ uri, id: String(index) })));
  assert.deepEqual(
    groups.map(([uri, findings]) => [uri, findings.length]),
    [
      ["file:///a", 1],
      ["file:///b", 2],
    ],
  );
});
