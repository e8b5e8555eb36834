/**
 * Many changes, few updates: what happened within an interval is told once, at its end at the latest.
 *
 * The first change after a pause is told at once, so that a quiet view is never late.
 */

export class Coalescer<T> {
  private readonly waiting = new Set<T>();
  private timer: ReturnType<typeof setTimeout> | undefined;
  private last = Number.NEGATIVE_INFINITY;

  constructor(
    private readonly intervalMs: number,
    private readonly tell: (changed: readonly T[]) => void,
    private readonly now: () => number = () => performance.now(),
  ) {}

  add(changed: T): void {
    this.waiting.add(changed);
    if (this.timer !== undefined) {
      return;
    }
    const wait = this.last + this.intervalMs - this.now();
    if (wait <= 0) {
      this.flush();
    } else {
      this.timer = setTimeout(() => {
        this.flush();
      }, wait);
    }
  }

  flush(): void {
    if (this.timer !== undefined) {
      clearTimeout(this.timer);
      this.timer = undefined;
    }
    if (this.waiting.size === 0) {
      return;
    }
    const changed = [...this.waiting];
    this.waiting.clear();
    this.last = this.now();
    this.tell(changed);
  }

  dispose(): void {
    clearTimeout(this.timer);
    this.timer = undefined;
    this.waiting.clear();
  }
}
