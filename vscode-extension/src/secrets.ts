/**
 * Keys of services in the editor's secret storage, and keys that somebody wrote into the settings.
 */

import type { Memento, SecretStorage } from "vscode";

const PREFIX = "outpost.key.";
const NAMES = "outpost.keys";

/** Keys by the provider's name. Only the names are kept outside the secret storage. */
export class Keys {
  private readonly missing = new Set<string>();

  constructor(
    private readonly secrets: SecretStorage,
    private readonly state: Memento,
  ) {}

  /** The key of a provider; one that is not there is remembered as wanted. */
  async get(provider: string): Promise<string | undefined> {
    const value = await this.secrets.get(PREFIX + provider);
    if (value === undefined || value === "") {
      this.missing.add(provider);
      return undefined;
    }
    return value;
  }

  async set(provider: string, value: string): Promise<void> {
    await this.secrets.store(PREFIX + provider, value.trim());
    this.missing.delete(provider);
    await this.state.update(NAMES, [...new Set([...this.names(), provider])].sort());
  }

  async delete(provider: string): Promise<void> {
    await this.secrets.delete(PREFIX + provider);
    await this.state.update(
      NAMES,
      this.names().filter((name) => name !== provider),
    );
  }

  /** The providers whose keys are stored. */
  names(): readonly string[] {
    return this.state.get<readonly string[]>(NAMES, []);
  }

  /** The providers whose keys were asked for and are not there. */
  wanted(): readonly string[] {
    return [...this.missing];
  }
}

const KEY_NAME = /^(?:api[-_]?key|key|token|secret|password|bearer[-_]?token)$/iu;
const ENV_NAME = /^api[-_]?key[-_]?env$/iu;
const LIKE_A_KEY = /^(?=.*[a-z])(?=.*\d)[A-Za-z0-9_.:+/=-]{20,}$/u;

export interface StrayKey {
  readonly provider: string;
  readonly value: string;
}

export type Providers = Readonly<Record<string, Readonly<Record<string, unknown>>>>;

/** Keys that stand in the settings in clear, and the settings as they ought to be without them. */
export function strayKeys(providers: Providers): { readonly found: readonly StrayKey[]; readonly cleaned: Providers } {
  const found: StrayKey[] = [];
  const cleaned: Record<string, Record<string, unknown>> = {};
  for (const [provider, settings] of Object.entries(providers)) {
    if (typeof settings !== "object" || (settings as unknown) === null) {
      continue;
    }
    const kept: Record<string, unknown> = {};
    let hasMoved = false;
    for (const [name, value] of Object.entries(settings)) {
      const isKey =
        typeof value === "string" &&
        value !== "" &&
        (KEY_NAME.test(name) || (ENV_NAME.test(name) && LIKE_A_KEY.test(value)));
      if (isKey) {
        found.push({ provider, value });
        hasMoved = true;
      } else {
        kept[name] = value;
      }
    }
    if (hasMoved && !Object.keys(kept).some((name) => ENV_NAME.test(name))) {
      // The server asks for a key only where it knows that one is wanted.
      kept["apiKeyEnv"] = `${provider.toUpperCase().replace(/[^A-Z0-9]+/gu, "_")}_API_KEY`;
    }
    cleaned[provider] = kept;
  }
  return { found, cleaned };
}
