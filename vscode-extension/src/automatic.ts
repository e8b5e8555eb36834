/**
 * Reviews that nobody pressed a button for: after saves and after commits, where the person switched them on.
 *
 * Saves that follow each other are one review, a little after the last. While a review of a folder runs no other one of
 * it begins; what was asked for meanwhile is done once, after it.
 */

import type { ReviewParams } from "./protocol";

export const PAUSE_MS = 2000;

/** Starts a review and is done when it has ended. */
export type Review = (params: ReviewParams) => Promise<void>;

interface Folder {
  timer: NodeJS.Timeout | undefined;
  isRunning: boolean;
  /** What to review next. */
  next: ReviewParams | undefined;
}

export class AutomaticReviews {
  private readonly folders = new Map<string, Folder>();

  constructor(
    private readonly review: Review,
    private readonly pauseMs = PAUSE_MS,
  ) {}

  /** A document of the folder was saved. */
  saved(folder: string): void {
    this.later(folder, { scope: "uncommitted", uri: folder });
  }

  /** Something was committed in the folder. A commit says more than a save that waits. */
  committed(folder: string): void {
    this.later(folder, { scope: "commit", revision: "HEAD", uri: folder });
  }

  dispose(): void {
    for (const folder of this.folders.values()) {
      clearTimeout(folder.timer);
      folder.next = undefined;
    }
  }

  private later(name: string, params: ReviewParams): void {
    const folder = this.folders.get(name) ?? { timer: undefined, isRunning: false, next: undefined };
    this.folders.set(name, folder);
    if (folder.next?.scope !== "commit" || params.scope === "commit") {
      folder.next = params;
    }
    clearTimeout(folder.timer);
    folder.timer = setTimeout(() => {
      folder.timer = undefined;
      void this.run(folder);
    }, this.pauseMs);
  }

  private async run(folder: Folder): Promise<void> {
    const params = folder.next;
    if (params === undefined || folder.isRunning || folder.timer !== undefined) {
      return;
    }
    folder.next = undefined;
    folder.isRunning = true;
    try {
      await this.review(params);
    } finally {
      folder.isRunning = false;
    }
    await this.run(folder);
  }
}
