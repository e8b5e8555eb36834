/** What happens between the editor and the language client: settings as the user set them, edits as they were asked for. */

import { commands, Uri } from "vscode";
import type { ApplyWorkspaceEditParams, Middleware } from "vscode-languageclient/node";

import { touched, withPreview } from "../changes/preview";
import type { CommandName, Commands, Run } from "../protocol";
import { serverSettings, type Property } from "../settings";
import { START_COMMANDS, type StartCommand } from "../starter";

/** How edits of the server are treated at the moment. */
export class Edits {
  private label: string | undefined;
  private collected: string[] | undefined;

  async withPreview<T>(label: string, work: () => Promise<T>): Promise<T> {
    this.label = label;
    try {
      return await work();
    } finally {
      this.label = undefined;
    }
  }

  async collecting<T>(work: () => Promise<T>): Promise<{ result: T; uris: readonly string[] }> {
    const uris: string[] = [];
    this.collected = uris;
    try {
      return { result: await work(), uris };
    } finally {
      this.collected = undefined;
    }
  }

  take(params: ApplyWorkspaceEditParams): ApplyWorkspaceEditParams {
    this.collected?.push(...touched(params.edit));
    return this.label === undefined ? params : withPreview(params, this.label);
  }
}

export type Start = <C extends StartCommand>(command: C, params: Commands[C]["params"]) => Promise<Run | undefined>;

export function middleware(properties: ReadonlyMap<string, Property>, edits: Edits, start: Start): Middleware {
  return {
    workspace: {
      configuration: async (params, token, next) => {
        const answers = await next(params, token);
        return Array.isArray(answers)
          ? answers.map((answer: unknown, index) => {
              const item = params.items[index];
              return item?.section === "outpost" ? serverSettings(properties, scopeOf(item.scopeUri)) : answer;
            })
          : answers;
      },
      // The server asks for what it needs; a push would carry the defaults along.
      didChangeConfiguration: (_, next) => next(undefined),
      handleApplyEdit: (params, next) =>
        next(edits.take(params), {
          isCancellationRequested: false,
          onCancellationRequested: () => ({ dispose: () => undefined }),
        }),
    },
    executeCommand: async (command, parameters: unknown[], next): Promise<unknown> => {
      const [first] = parameters;
      if (START_COMMANDS.has(command)) {
        const run = await start(command as StartCommand, first ?? {});
        return run === undefined ? undefined : { run };
      }
      switch (command as CommandName) {
        case "outpost.dismiss":
          // From a code action: the person may say why.
          return hasReason(first) ? next(command, parameters) : commands.executeCommand("outpost.ui.dismiss", first);
        case "outpost.findings":
          // From a code lens; other extensions that want the answer get it, too.
          await commands.executeCommand("outpost.findings.focus");
          return next(command, parameters);
        default:
          return next(command, parameters);
      }
    },
  };
}

function scopeOf(uri: string | null | undefined): Uri | undefined {
  return uri === null || uri === undefined ? undefined : Uri.parse(uri);
}

function hasReason(argument: unknown): boolean {
  return typeof argument === "object" && argument !== null && "reason" in argument;
}
