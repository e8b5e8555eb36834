/** Messages and questions of the server as the editor's own dialogs. */

import { commands, window, type MessageOptions } from "vscode";

import type { Choice } from "./messages";
import type { Asked } from "./permissions";

const ERROR = 1;
const WARNING = 2;

type ShowDialog = (message: string, options: MessageOptions, ...buttons: string[]) => Thenable<string | undefined>;

export function showMessage(kind: number, message: string, choices: readonly Choice[]): void {
  const show: ShowDialog =
    kind === ERROR
      ? window.showErrorMessage
      : kind === WARNING
        ? window.showWarningMessage
        : window.showInformationMessage;
  const buttons = choices.map(({ title }) => title);
  void show(message, {}, ...buttons).then((picked) => {
    const choice = choices.find(({ title }) => title === picked);
    if (choice !== undefined) {
      void commands.executeCommand(choice.command, choice.argument);
    }
  });
}

/** A permission question: beside the work at first, in the middle when the person comes back to it. */
export async function askPerson({ message, answers }: Asked, isAgain: boolean): Promise<string | undefined> {
  // The editor's own "Cancel" of a modal dialog leaves the question open, as looking away does.
  return window.showWarningMessage(message, { modal: isAgain }, ...answers);
}
