/**
 * The server's notifications, handed to whoever asked for them; and a plain emitter for changes of our own state.
 *
 * One listener that fails neither keeps the others from hearing nor stops the sender.
 */

import type { NotificationName, Notifications } from "./protocol";

export interface Subscription {
  dispose(): void;
}

export class Emitter<T> {
  private readonly listeners = new Set<(value: T) => void>();

  constructor(private readonly failed: (error: unknown) => void = () => undefined) {}

  readonly on = (listener: (value: T) => void): Subscription => {
    this.listeners.add(listener);
    return { dispose: () => void this.listeners.delete(listener) };
  };

  emit(value: T): void {
    for (const listener of [...this.listeners]) {
      try {
        listener(value);
      } catch (error) {
        this.failed(error);
      }
    }
  }
}

export class News {
  private readonly emitters = new Map<NotificationName, Emitter<never>>();

  constructor(private readonly failed: (error: unknown) => void = () => undefined) {}

  on<N extends NotificationName>(name: N, listener: (params: Notifications[N]) => void): Subscription {
    return this.of(name).on(listener);
  }

  emit<N extends NotificationName>(name: N, params: Notifications[N]): void {
    this.of(name).emit(params);
  }

  private of<N extends NotificationName>(name: N): Emitter<Notifications[N]> {
    let emitter = this.emitters.get(name);
    if (emitter === undefined) {
      emitter = new Emitter<never>(this.failed);
      this.emitters.set(name, emitter);
    }
    return emitter as unknown as Emitter<Notifications[N]>;
  }
}
