/** When the editor saves a document or commits: the occasions of automatic reviews. */

import { extensions, workspace, type Event, type Uri } from "vscode";

import type { AutomaticReviews } from "./automatic";
import { own } from "./settings";

interface Repository {
  readonly rootUri: Uri;
  readonly onDidCommit: Event<void>;
}

interface Git {
  readonly repositories: readonly Repository[];
  readonly onDidOpenRepository: Event<Repository>;
}

interface GitExtension {
  getAPI(version: 1): Git;
}

export function watchOccasions(reviews: AutomaticReviews): { dispose(): unknown }[] {
  const subscriptions: { dispose(): unknown }[] = [
    workspace.onDidSaveTextDocument(({ uri }) => {
      const folder = workspace.getWorkspaceFolder(uri);
      if (folder !== undefined && workspace.isTrusted && own<boolean>("reviewOnSave", false, uri)) {
        reviews.saved(folder.uri.toString());
      }
    }),
  ];
  const watch = ({ rootUri, onDidCommit }: Repository): void => {
    subscriptions.push(
      onDidCommit(() => {
        if (workspace.isTrusted && own<boolean>("reviewOnCommit", false, rootUri)) {
          reviews.committed(rootUri.toString());
        }
      }),
    );
  };
  void openGit().then((git) => {
    git?.repositories.forEach(watch);
    if (git !== undefined) {
      subscriptions.push(git.onDidOpenRepository(watch));
    }
  });
  return [
    {
      dispose: () => {
        subscriptions.forEach((one) => one.dispose());
      },
    },
  ];
}

/** The editor's own git extension; `undefined` where it is switched off. */
async function openGit(): Promise<Git | undefined> {
  try {
    return (await extensions.getExtension<GitExtension>("vscode.git")?.activate())?.getAPI(1);
  } catch {
    return undefined;
  }
}
