import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";

import { AutomaticReviews } from "../src/automatic";
import { watchOccasions } from "../src/occasions";
import type { ReviewParams } from "../src/protocol";
import { save, stage, Uri, workspace } from "./stub/editor";

const PAUSE_MS = 20;

interface Running {
  readonly params: ReviewParams;
  end(): void;
}

let running: Running[];
let reviews: AutomaticReviews;

beforeEach(() => {
  stage.reset();
  running = [];
  reviews = new AutomaticReviews(
    (params) =>
      new Promise((resolve) => {
        running.push({ params, end: resolve });
      }),
    PAUSE_MS,
  );
});

async function until(condition: () => boolean): Promise<void> {
  for (const end = Date.now() + 10_000; !condition();) {
    assert.ok(Date.now() < end, "it never came to this");
    await new Promise((resolve) => setTimeout(resolve, 2));
  }
}

const pause = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, PAUSE_MS * 4));

test("saves that follow each other are one review, after the last", async () => {
  for (let index = 0; index < 5; index += 1) {
    reviews.saved("file:///shop");
  }
  assert.equal(running.length, 0);
  await until(() => running.length > 0);
  await pause();
  assert.deepEqual(
    running.map(({ params }) => params),
    [{ scope: "uncommitted", uri: "file:///shop" }],
  );
});

test("what is saved while a review runs is reviewed once, after it", async () => {
  reviews.saved("file:///shop");
  await until(() => running.length === 1);
  reviews.saved("file:///shop");
  reviews.saved("file:///shop");
  await pause();
  assert.equal(running.length, 1);
  running[0]?.end();
  await until(() => running.length === 2);
  running[1]?.end();
  await pause();
  assert.equal(running.length, 2);
});

test("folders do not wait for each other, and a commit goes before a save that waits", async () => {
  reviews.saved("file:///shop");
  reviews.committed("file:///shop");
  reviews.saved("file:///shop");
  reviews.saved("file:///bank");
  await until(() => running.length === 2);
  assert.deepEqual(
    running.map(({ params }) => params).sort((left, right) => (left.uri ?? "").localeCompare(right.uri ?? "")),
    [
      { scope: "uncommitted", uri: "file:///bank" },
      { scope: "commit", revision: "HEAD", uri: "file:///shop" },
    ],
  );
});

test("nothing is reviewed after the end", async () => {
  reviews.saved("file:///shop");
  reviews.dispose();
  await pause();
  assert.equal(running.length, 0);
});

test("saves count where the person switched that on, and the folder is trusted", async () => {
  workspace.workspaceFolders = [{ uri: Uri.file("/shop"), name: "shop", index: 0 }];
  const subscriptions = watchOccasions(reviews);
  save(Uri.file("/shop/a.py"));
  stage.settings["outpost.reviewOnSave"] = true;
  workspace.isTrusted = false;
  save(Uri.file("/shop/a.py"));
  await pause();
  assert.equal(running.length, 0);
  workspace.isTrusted = true;
  save(Uri.file("/shop/a.py"));
  await until(() => running.length === 1);
  subscriptions.forEach((one) => one.dispose());
  save(Uri.file("/shop/a.py"));
  running[0]?.end();
  await pause();
  assert.equal(running.length, 1);
});
