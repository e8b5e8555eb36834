/** Edits of the server on their way to the files: with the editor's own preview when the person asked for one. */

import type { ApplyWorkspaceEditParams, WorkspaceEdit } from "vscode-languageclient/node";

const ANNOTATION = "outpost";

/** The edit with every part waiting for the person's consent. */
export function withPreview(params: ApplyWorkspaceEditParams, label: string): ApplyWorkspaceEditParams {
  const { edit } = params;
  const documentChanges = (edit.documentChanges ?? fromChanges(edit)).map((change) =>
    "kind" in change
      ? { ...change, annotationId: ANNOTATION }
      : {
          ...change,
          edits: change.edits.map((one) => ({ ...one, annotationId: ANNOTATION })),
        },
  );
  return {
    ...params,
    label: params.label ?? label,
    metadata: { isRefactoring: true },
    edit: {
      documentChanges,
      changeAnnotations: { ...edit.changeAnnotations, [ANNOTATION]: { label, needsConfirmation: true } },
    },
  };
}

function fromChanges(edit: WorkspaceEdit): NonNullable<WorkspaceEdit["documentChanges"]> {
  return Object.entries(edit.changes ?? {}).map(([uri, edits]) => ({ textDocument: { uri, version: null }, edits }));
}

/** The URIs that an edit writes. */
export function touched(edit: WorkspaceEdit): string[] {
  const uris = (edit.documentChanges ?? fromChanges(edit)).flatMap((change) => {
    if (!("kind" in change)) {
      return [change.textDocument.uri];
    }
    return change.kind === "rename" ? [change.newUri] : change.kind === "create" ? [change.uri] : [];
  });
  return [...new Set(uris)];
}
