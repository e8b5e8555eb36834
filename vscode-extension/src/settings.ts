/**
 * Settings: the extension's own, typed; and those of the server, of which only what the user really set is passed on.
 *
 * A default in the manifest is there to be read by people. Were it sent, it would win over the user's own file.
 */

import { commands, env, workspace, type ConfigurationScope } from "vscode";

const SECTION = "outpost";

/** What the extension itself goes by; never sent to the server. */
export const OWN_SETTINGS = [
  "serverPath",
  "serverArguments",
  "interpreter",
  "progress",
  "reviewOnSave",
  "reviewOnCommit",
  "findings.group",
  "trace.server",
] as const;

export type OwnSetting = (typeof OWN_SETTINGS)[number];

export interface Property {
  readonly scope?: string;
}

interface Manifest {
  readonly contributes?: {
    readonly configuration?: readonly { readonly properties: Readonly<Record<string, Property>> }[];
  };
}

export function own<T>(name: OwnSetting, fallback: T, scope?: ConfigurationScope): T {
  return workspace.getConfiguration(SECTION, scope ?? null).get<T>(name) ?? fallback;
}

/** Show settings to the person, where those of the machine are: on a remote one they have a tab of their own. */
export async function openSettings(query: string): Promise<void> {
  await (env.remoteName === undefined
    ? commands.executeCommand("workbench.action.openSettings", query)
    : commands.executeCommand("workbench.action.openRemoteSettings", { query }));
}

/** The settings of the manifest that are the server's, with their scopes. */
export function serverProperties(manifest: unknown): ReadonlyMap<string, Property> {
  const found = new Map<string, Property>();
  const mine = new Set<string>(OWN_SETTINGS);
  for (const { properties } of (manifest as Manifest).contributes?.configuration ?? []) {
    for (const [name, property] of Object.entries(properties)) {
      const key = name.slice(SECTION.length + 1);
      if (!mine.has(key)) {
        found.set(key, property);
      }
    }
  }
  return found;
}

/** The server's settings for a folder, as the user set them, in the shape of the configuration file. */
export function serverSettings(
  properties: ReadonlyMap<string, Property>,
  scope: ConfigurationScope | undefined,
): Readonly<Record<string, unknown>> {
  const configuration = workspace.getConfiguration(SECTION, scope ?? null);
  const settings: Record<string, unknown> = {};
  for (const [key, { scope: reach }] of properties) {
    const told = configuration.inspect(key);
    // A machine setting that somebody wrote into a workspace counts for nothing.
    const layers =
      reach === "machine" ? [told?.globalValue] : [told?.globalValue, told?.workspaceValue, told?.workspaceFolderValue];
    if (layers.some((value) => value !== undefined)) {
      put(settings, key.split("."), configuration.get(key));
    }
  }
  return settings;
}

function put(tree: Record<string, unknown>, path: readonly string[], value: unknown): void {
  const [first, ...rest] = path;
  if (first === undefined) {
    return;
  }
  if (rest.length === 0) {
    tree[first] = value;
    return;
  }
  const inner = (tree[first] ?? {}) as Record<string, unknown>;
  tree[first] = inner;
  put(inner, rest, value);
}
