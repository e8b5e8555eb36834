/** Puts the stand-in where the bundled tests ask for the editor's interface. */

import Module from "node:module";

import * as editor from "./editor";

interface Loader {
  _load(id: string, ...rest: unknown[]): unknown;
}

const loader = Module as unknown as Loader;
const load = loader._load.bind(loader);
// A plain object: bundled code copies own properties.
const stub = { ...editor };
loader._load = (id, ...rest) => (id === "vscode" ? stub : load(id, ...rest));
