/** Wiring: what the parts are, and who tells whom. */

import { commands, Uri, window, workspace, type ExtensionContext } from "vscode";

import { AutomaticReviews } from "./automatic";
import { ChangeDocuments, CHANGE_SCHEME } from "./changes/documents";
import { changeCommands } from "./commands/changes";
import { register, type Context } from "./commands/context";
import { findingCommands } from "./commands/findings";
import { reviewCommands } from "./commands/reviews";
import { runCommands } from "./commands/runs";
import { serverCommands, warnOfStrayKeys } from "./commands/server";
import { askPerson, showMessage } from "./dialogs";
import { FindingStore } from "./findings/store";
import { FindingsTree } from "./findings/tree";
import { Messages } from "./messages";
import { News } from "./news";
import { watchOccasions } from "./occasions";
import { Questions } from "./permissions";
import { RunStore } from "./runs/store";
import { RunsTree } from "./runs/tree";
import { Keys } from "./secrets";
import type { Place } from "./server/environment";
import type { Host } from "./server/connection";
import { Server } from "./server/control";
import { Edits, middleware } from "./server/middleware";
import { Setup } from "./server/setup";
import { own, serverProperties } from "./settings";
import { Starter } from "./starter";
import { Status } from "./status";
import { TEXT_SCHEME, Texts } from "./texts";
import { Timelines, VIEW_TYPE } from "./timeline/panels";
import { Upkeep } from "./upkeep";
import { showFindings, showRuns } from "./views";
import { tickReview } from "./walkthrough";

let server: Server | undefined;

export function activate(extension: ExtensionContext): void {
  const begin = performance.now();
  const log = window.createOutputChannel("Outpost", { log: true });
  const news = new News((error) => {
    log.error(`a notification was not taken: ${String(error)}`);
  });
  const findings = new FindingStore();
  const runs = new RunStore();
  const status = new Status(runs);
  const keys = new Keys(extension.secrets, extension.globalState);
  const questions = new Questions(askPerson, (count) => {
    status.waitingQuestions(count);
  });
  const messages = new Messages(showMessage, () => keys.wanted());
  const edits = new Edits();
  const starter: Starter = new Starter(() => mine.connection());
  const place = placeOf(extension);
  const setup = new Setup(place, Uri.joinPath(extension.extensionUri, "bundled", "wheels").fsPath, log, (message) => {
    status.settingUp(message);
  });
  const host: Host = {
    news,
    log,
    middleware: middleware(serverProperties(extension.extension.packageJSON), edits, (command, params) =>
      starter.start(command, params),
    ),
    showMessage: messages.take.bind(messages),
    ask: questions.take.bind(questions),
    secret: keys.get.bind(keys),
  };
  const mine: Server = new Server(host, place, setup);
  server = mine;
  const changes = new ChangeDocuments(async (runId) => (await mine.request("outpost.diff", { runId })).files);
  const findingsTree = new FindingsTree(findings, own("findings.group", "file"));
  const runsTree = new RunsTree(runs, {
    tellAgents: async (runId) => {
      runs.told(await mine.request("outpost.show", { runId }));
    },
    changedFiles: (runId) => changes.files(runId),
  });
  const texts = new Texts();
  const timelines = new Timelines(extension.extensionUri, mine, news);
  const context: Context = {
    session: mine,
    starter,
    findings,
    findingsTree,
    runs,
    changes,
    withPreview: edits.withPreview.bind(edits),
    collectingEdits: edits.collecting.bind(edits),
  };
  const automatic = new AutomaticReviews(async (params) => {
    const run = mine.isRunning ? await starter.start("outpost.review", params, true) : undefined;
    if (run !== undefined) {
      messages.keepQuietAbout(run.id);
      await runs.ended(run.id);
    }
  });
  extension.subscriptions.push(
    log,
    automatic,
    ...watchOccasions(automatic),
    ...tickReview(runs),
    status,
    messages,
    runs,
    timelines,
    texts,
    new Upkeep({ server: mine, news, findings, runs, status, messages, questions, starter }),
    ...showFindings(findings, findingsTree),
    ...showRuns(runs, runsTree),
    workspace.registerTextDocumentContentProvider(CHANGE_SCHEME, changes),
    workspace.registerTextDocumentContentProvider(TEXT_SCHEME, texts),
    window.registerWebviewPanelSerializer(VIEW_TYPE, {
      deserializeWebviewPanel: (panel, state) => timelines.restore(panel, state),
    }),
    ...register({
      ...reviewCommands(context),
      ...findingCommands(context),
      ...runCommands(context, timelines),
      ...changeCommands(context),
      ...serverCommands(context, mine, keys, questions, log, texts),
    }),
  );
  void commands.executeCommand("setContext", "outpost.isActive", true);
  void warnOfStrayKeys();
  void mine.startQuietly();
  log.info(`activated in ${(performance.now() - begin).toFixed(0)} ms`);
}

export async function deactivate(): Promise<void> {
  await server?.dispose();
  server = undefined;
}

function placeOf(extension: ExtensionContext): Place {
  const { version } = extension.extension.packageJSON as { version: string };
  return { storage: extension.globalStorageUri.fsPath, version };
}
