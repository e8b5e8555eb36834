/** Waiting for conditions. Nothing in these tests sleeps for a time. */

import { setTimeout as pause } from "node:timers/promises";

/** How long a condition may take, in milliseconds; a machine may be slow. */
export const PATIENCE_MS = 120_000;

export async function until(what, condition, patience = PATIENCE_MS) {
  const end = Date.now() + patience;
  for (;;) {
    const value = await condition();
    if (value) {
      return value;
    }
    if (Date.now() > end) {
      throw new Error(`it never came to this: ${what}`);
    }
    await pause(50);
  }
}

/**
 * Try something until it works. `attempt` gets the milliseconds that it may take: little at first, since what was in the
 * way is mostly gone at once, then more and more, for a machine that is slow. `tidy` is done after each failure.
 */
export async function insist(what, attempt, tidy = async () => undefined) {
  let time = 2000;
  let reason;
  await until(what, async () => {
    try {
      await attempt(time);
      return true;
    } catch (error) {
      reason = error;
      time = Math.min(time * 1.6, 30_000);
      await tidy();
      return false;
    }
  }).catch((error) => {
    throw new Error(error.message, { cause: reason });
  });
}
