/** Finding the server and a Python for it, with real files and real programs. */

import assert from "node:assert/strict";
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  rmSync,
  statSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, beforeEach, test } from "node:test";

import { EnvironmentError, environmentPython, forgetOldEnvironments, makeEnvironment } from "../src/server/environment";
import { findLaunch, isLaunch, type Launch, type Missing } from "../src/server/launch";
import { findPython, probe, refusalText } from "../src/server/python";
import { ServerProcess } from "../src/server/process";

const root = mkdtempSync(join(tmpdir(), "outpost-launch-"));
after(() => rmSync(root, { recursive: true, force: true }));

let folder: string;
let count = 0;
beforeEach(() => {
  folder = join(root, String((count += 1)));
  mkdirSync(folder);
});

function program(path: string, script: string): string {
  const file = join(folder, path);
  mkdirSync(join(file, ".."), { recursive: true });
  writeFileSync(file, `#!/bin/sh\n${script}\n`);
  chmodSync(file, 0o755);
  return file;
}

function launch(serverPath: string, searchPath = ""): Promise<Launch | Missing> {
  const place = { storage: join(folder, "storage"), version: "1.2.3" };
  return findLaunch({ serverPath, serverArguments: ["--log-level", "debug"], searchPath, place });
}

function wheel(): string {
  const wheels = join(folder, "wheels");
  mkdirSync(wheels);
  writeFileSync(
    join(wheels, "outpost_lsp-1.2.3-py3-none-any.whl"),
    zip({
      "outpost_lsp/__init__.py": "",
      "outpost_lsp/__main__.py": "print('served')\n",
      "outpost_lsp-1.2.3.dist-info/METADATA": "Metadata-Version: 2.1\nName: outpost-lsp\nVersion: 1.2.3\n",
      "outpost_lsp-1.2.3.dist-info/WHEEL":
        "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
      "outpost_lsp-1.2.3.dist-info/RECORD": "",
    }),
  );
  return wheels;
}

test("the setting wins, as a path, with a tilde or as a name in PATH", async () => {
  const server = program("bin/my-server", "");
  const found = await launch(server);
  assert.deepEqual(found, {
    command: server,
    arguments: ["serve", "--log-level", "debug"],
    from: "the setting outpost.serverPath",
  });
  const named = await launch("my-server", `relative:${join(folder, "bin")}`);
  assert.ok(isLaunch(named));
  assert.equal(named.command, server);
});

test("a setting that names no program is said, and nothing else is taken", async () => {
  program("bin/outpost-lsp", "");
  const found = await launch(join(folder, "nowhere"), join(folder, "bin"));
  assert.ok(!isLaunch(found));
  assert.ok(found.isSetting);
  assert.match(found.message, /outpost\.serverPath names .*nowhere/u);
});

test("the extension's own environment goes before PATH", async () => {
  program("storage/server-1.2.3/bin/python", "");
  writeFileSync(join(folder, "storage/server-1.2.3/ready.json"), "{}");
  const server = program("bin/outpost-lsp", "");
  const own = await launch("", join(folder, "bin"));
  assert.ok(isLaunch(own));
  assert.deepEqual(own.arguments.slice(0, 4), ["-I", "-m", "outpost_lsp", "serve"]);
  rmSync(join(folder, "storage"), { recursive: true });
  const other = await launch("", join(folder, "bin"));
  assert.ok(isLaunch(other));
  assert.equal(other.command, server);
});

test("an environment that is not whole is none, and a missing server is no fault of a setting", async () => {
  program("storage/server-1.2.3/bin/python", "");
  const found = await launch("");
  assert.ok(!isLaunch(found));
  assert.ok(!found.isSetting);
});

test("nothing of the working folder is started", async () => {
  program("outpost-lsp", "");
  const before = process.cwd();
  process.chdir(folder);
  try {
    assert.ok(!isLaunch(await launch("", ".:")));
    assert.ok(!isLaunch(await launch("./outpost-lsp")));
  } finally {
    process.chdir(before);
  }
});

test("a Python is asked for its version; what is too old or none is told with its reason", async () => {
  const old = program("old", "echo outpost 3 10 9");
  const odd = program("odd", "echo hello");
  const broken = program("broken", "exit 3");
  const good = program("good", "echo outpost 3 11 0");
  assert.deepEqual(
    await findPython([
      { path: old, from: "PATH" },
      { path: good, from: "PATH" },
    ]),
    { python: { path: good, version: "3.11.0" } },
  );
  assert.equal(await probe(odd), "it does not answer like a Python");
  assert.equal(await probe(broken), "it could not be run");
  assert.equal(await probe(join(folder, "none")), "it is not there");
  const none = await findPython([
    { path: old, from: "PATH" },
    { path: join(folder, "none"), from: "the setting outpost.interpreter" },
    { path: join(folder, "gone"), from: "PATH" },
  ]);
  assert.ok("refusals" in none);
  assert.equal(
    refusalText(none.refusals),
    `Outpost needs Python 3.11 or later. Looked at: ${old} (PATH): Python 3.10.9 is too old; 3.11 or later is needed; ${join(folder, "none")} (the setting outpost.interpreter): it is not there.`,
  );
  assert.match(refusalText([]), /there is none in PATH/u);
});

test("an environment is made from wheels alone, is whole, and carries the server", async () => {
  const found = await findPython([{ path: "python3", from: "PATH" }]);
  assert.ok("python" in found, "these tests need a Python 3.11 in PATH");
  const place = { storage: join(folder, "a storage"), version: "1.2.3" };
  const told: string[] = [];
  const python = await makeEnvironment(place, found.python, { wheels: wheel() }, (message) => told.push(message));
  assert.equal(await environmentPython(place), python);
  assert.equal(told.length, 2);
  assert.deepEqual(readdirSync(place.storage), ["server-1.2.3"]);
  const server = await ServerProcess.start({ command: python, arguments: ["-I", "-m", "outpost_lsp"], from: "PATH" });
  assert.equal(await server.ended, "it ended with status 0");
});

test("an installation that fails leaves nothing behind and says why", async () => {
  const found = await findPython([{ path: "python3", from: "PATH" }]);
  assert.ok("python" in found);
  const place = { storage: join(folder, "storage"), version: "9.9.9" };
  await assert.rejects(
    makeEnvironment(place, found.python, { wheels: wheel() }, () => undefined),
    (error) => {
      assert.ok(error instanceof EnvironmentError);
      assert.match(error.message, /was not found for this Python/u);
      return true;
    },
  );
  assert.deepEqual(readdirSync(place.storage), []);
  assert.equal(await environmentPython(place), undefined);
});

test("a Python without venv is told in words of its own, and a cancelled installation ends", async () => {
  const bare = program(
    "bare",
    "echo 'The virtual environment was not created: apt install python3.11-venv' >&2; exit 1",
  );
  const place = { storage: join(folder, "storage"), version: "1" };
  await assert.rejects(
    makeEnvironment(place, { path: bare, version: "3.11.2" }, {}, () => undefined),
    /python3-venv/u,
  );
  const slow = program("slow", "exec sleep 60");
  const abort = new AbortController();
  const making = makeEnvironment(place, { path: slow, version: "3.11.2" }, {}, () => abort.abort(), abort.signal);
  await assert.rejects(making, /cancelled/u);
});

test("environments of other versions go when nobody used them for two weeks", async () => {
  const place = { storage: join(folder, "storage"), version: "2" };
  for (const name of ["server-1", "server-2", "server-recent", "something-else"]) {
    mkdirSync(join(place.storage, name), { recursive: true });
    writeFileSync(join(place.storage, name, "ready.json"), "{}");
  }
  const old = new Date(Date.now() - 15 * 24 * 3600 * 1000);
  for (const name of ["server-1", "server-2", "something-else"]) {
    utimesSync(join(place.storage, name, "ready.json"), old, old);
  }
  await forgetOldEnvironments(place);
  assert.deepEqual(readdirSync(place.storage).sort(), ["server-2", "server-recent", "something-else"]);
});

test("a server that ends says how, with its last words; one that hangs is ended", async () => {
  const dying = await ServerProcess.start({
    command: program("dying", "echo 'Traceback' >&2; echo 'ImportError: no outpost' >&2; exit 7"),
    arguments: [],
    from: "PATH",
  });
  assert.equal(await dying.ended, "it ended with status 7");
  assert.equal(dying.lastWords, "ImportError: no outpost");
  await assert.rejects(
    ServerProcess.start({ command: join(folder, "none"), arguments: [], from: "PATH" }),
    /could not be started/u,
  );
  const hanging = await ServerProcess.start({
    command: program("hanging", "trap '' TERM; exec sleep 600"),
    arguments: [],
    from: "PATH",
  });
  await hanging.finish();
  assert.equal(await hanging.ended, "it was ended by SIGKILL");
});

/** A zip file without compression, which is all that a wheel is. */
function zip(files: Readonly<Record<string, string>>): Buffer {
  const parts: Buffer[] = [];
  const directory: Buffer[] = [];
  let offset = 0;
  for (const [name, text] of Object.entries(files)) {
    const [path, data] = [Buffer.from(name), Buffer.from(text)];
    const common = Buffer.alloc(26);
    common.writeUInt16LE(20, 0);
    common.writeUInt32LE(crc(data), 10);
    common.writeUInt32LE(data.length, 14);
    common.writeUInt32LE(data.length, 18);
    common.writeUInt16LE(path.length, 22);
    const local = Buffer.concat([Buffer.from("PK\u0003\u0004"), common, path, data]);
    const central = Buffer.alloc(14);
    central.writeUInt32LE(offset, 10);
    directory.push(Buffer.concat([Buffer.from("PK\u0001\u0002"), Buffer.from([20, 0]), common, central, path]));
    parts.push(local);
    offset += local.length;
  }
  const index = Buffer.concat(directory);
  const end = Buffer.alloc(18);
  end.writeUInt16LE(directory.length, 4);
  end.writeUInt16LE(directory.length, 6);
  end.writeUInt32LE(index.length, 8);
  end.writeUInt32LE(offset, 12);
  return Buffer.concat([...parts, index, Buffer.from("PK\u0005\u0006"), end]);
}

function crc(data: Buffer): number {
  let value = 0xffffffff;
  for (const byte of data) {
    value ^= byte;
    for (let bit = 0; bit < 8; bit += 1) {
      value = (value >>> 1) ^ (value & 1 ? 0xedb88320 : 0);
    }
  }
  return (value ^ 0xffffffff) >>> 0;
}

test("the tests' own folder is private", () => {
  assert.ok(existsSync(root));
  assert.equal(statSync(root).mode & 0o077, 0);
});
