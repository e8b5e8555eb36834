/**
 * Ticks the walkthrough's step "Review your uncommitted work", however the review was started and whenever.
 *
 * The editor reads the walkthrough when one is opened, and takes notice only of what becomes true after that. So it is told
 * again whenever a tab of a kind that extensions do not know, as that of walkthroughs is, was opened or got its name.
 */

import { commands, window } from "vscode";

import type { RunStore } from "./runs/store";

const CONTEXT = "outpost.hasReviewed";

export function tickReview(runs: RunStore): { dispose(): unknown }[] {
  let hasReviewed = false;
  const tell = (): void => {
    for (const value of [true, false]) {
      void commands.executeCommand("setContext", CONTEXT, value);
    }
  };
  return [
    runs.onChange(() => {
      if (!hasReviewed && runs.list().some(({ run }) => run.kind === "review" && run.status === "succeeded")) {
        hasReviewed = true;
        tell();
      }
    }),
    window.tabGroups.onDidChangeTabs(({ opened, changed }) => {
      if (hasReviewed && [...opened, ...changed].some(({ input }) => input === undefined)) {
        tell();
      }
    }),
  ];
}
