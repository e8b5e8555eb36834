/**
 * One window of the editor, and what a person does in it.
 *
 * Whatever is pressed here may be drawn anew, moved or covered just then, so each action is one that fails when it cannot
 * be done, and is tried again; and whatever is read may come later, so it is waited for.
 */

import { join } from "node:path";

import { insist, PATIENCE_MS, until } from "./waiting.mjs";

const PICK = ".quick-input-list .monaco-list-row";

/** How often to look behind the bell while a notification is waited for, in milliseconds. */
const BELL_MS = 5000;

/**
 * Let the windows of a browser context remember what they said in passing, which is notifications and words in the status
 * bar, and how often they were clicked.
 */
export async function listen(context) {
  await context.addInitScript(() => {
    if (globalThis.top !== globalThis) {
      return;
    }
    globalThis.said = { notifications: new Set(), status: new Set() };
    globalThis.clicked = { page: performance.timeOrigin, times: 0 };
    document.addEventListener("click", () => (globalThis.clicked.times += 1), true);
    const listenTo = (selector, said) => {
      for (const item of document.querySelectorAll(selector)) {
        said.add(item.innerText.replace(/\s+/gu, " "));
      }
    };
    setInterval(() => {
      listenTo(".notification-list-item", globalThis.said.notifications);
      listenTo("footer .statusbar-item", globalThis.said.status);
    }, 100);
  });
}

export class Window {
  constructor(editor, page, folder) {
    this.editor = editor;
    this.page = page;
    this.folder = folder;
    this.errors = [];
    page.on("pageerror", (error) => this.errors.push(String(error)));
    page.on("dialog", (dialog) => dialog.accept().catch(() => undefined));
  }

  get address() {
    const kind = this.folder.endsWith(".code-workspace") ? "workspace" : "folder";
    return `${this.editor.url}/?${kind}=${encodeURIComponent(this.folder)}`;
  }

  /**
   * Wait until a workspace shows its folders. Now and then the editor opens one without them, before any extension is there,
   * and says that none was added; what helps a person is to load the window again.
   */
  async hasFolders() {
    await insist(
      "the workspace has its folders",
      (timeout) =>
        this.page.locator(".explorer-folders-view .monaco-list-row").first().waitFor({ state: "visible", timeout }),
      async () => {
        if (await this.page.getByText("You have not yet added a folder").first().isVisible()) {
          await this.page.reload();
        }
      },
    );
  }

  async openFile(file) {
    const name = file.split("/").at(-1);
    await this.choose("Control+P", file, this.page.locator(PICK, { hasText: name }));
    await this.see(".tab", name);
  }

  find(selector, text) {
    const found = text === undefined ? this.page.locator(selector) : this.page.locator(selector, { hasText: text });
    return found.filter({ visible: true }).first();
  }

  /** The first element that a selector and a text find, once it is to be seen. */
  async see(selector, text, patience = PATIENCE_MS) {
    const found = this.find(selector, text);
    await found.waitFor({ state: "visible", timeout: patience });
    return found;
  }

  async gone(selector, text) {
    await until(`${selector} ${text ?? ""} is gone`, async () => (await this.find(selector, text).count()) === 0);
  }

  /** The page of a timeline that is open. */
  timeline() {
    return this.page.frameLocator("iframe.webview").frameLocator("iframe");
  }

  /**
   * Click something. On a slow machine the time may be over after the window took the click and before that is known; what
   * was clicked is not clicked again then, since something else may be in its place.
   */
  async click(found, timeout) {
    const clicked = () => this.page.evaluate(() => globalThis.clicked);
    const before = await clicked();
    await found.click({ timeout }).catch(async (error) => {
      const { page, times } = await clicked();
      if (page === before.page && times === before.times) {
        throw error;
      }
    });
  }

  status(text) {
    return this.see("footer .statusbar-item", text);
  }

  /** Wait until the status bar says or has said something, since the window was loaded. */
  async told(text) {
    await until(`the status bar says ${text}`, async () =>
      (await this.page.evaluate(() => [...globalThis.said.status]).catch(() => [])).some((one) => one.includes(text)),
    );
  }

  /** Run a command by its title in the palette. */
  async command(title) {
    await this.choose("F1", `>${title}`, this.offer(title));
  }

  /** A row of the palette: its label is the title, then perhaps keys. */
  offer(title) {
    return this.page.locator(`${PICK}[aria-label="${title}"], ${PICK}[aria-label^="${title}, "]`);
  }

  /** Whether the palette offers a command; `known` is the title of one that it does offer. */
  async isOffered(title, known) {
    const input = this.page.locator(".quick-input-widget input.input");
    let isThere;
    await insist(
      `what is offered for ${title}`,
      async (timeout) => {
        await this.page.keyboard.press("F1");
        await input.fill(`>${known}`, { timeout });
        await this.offer(known).waitFor({ state: "visible", timeout });
        await input.fill(`>${title}`, { timeout });
        await this.offer(known).waitFor({ state: "hidden", timeout });
        isThere = await this.offer(title).isVisible();
      },
      () => this.page.keyboard.press("Escape"),
    );
    await this.page.keyboard.press("Escape");
    return isThere;
  }

  /** Type into the box that a key opens, and take a row. */
  async choose(key, text, row) {
    await insist(
      `a row for ${text}`,
      async (timeout) => {
        await this.page.keyboard.press(key);
        await this.page.locator(".quick-input-widget input.input").fill(text, { timeout });
        await this.click(row.first(), timeout);
      },
      () => this.page.keyboard.press("Escape"),
    );
  }

  /** Pick an entry of the list that is open. */
  async pick(text) {
    await insist(`${text} is picked`, (timeout) => this.click(this.find(PICK, text), timeout));
  }

  /** Answer the input box that is open. */
  async answer(text) {
    const input = this.page.locator(".quick-input-widget:not(:has(.quick-input-list:visible)) input.input");
    await input.waitFor({ state: "visible" });
    const isAnswered = async () => !(await input.isVisible()) || (await input.inputValue({ timeout: 1000 })) !== text;
    let isFilled = false;
    await insist(`${text} is taken as an answer`, async (timeout) => {
      if (isFilled && (await isAnswered())) {
        return;
      }
      await input.fill(text, { timeout });
      isFilled = true;
      await input.press("Enter", { timeout });
      await until("the box is gone", () => isAnswered().catch(() => false), timeout);
    });
  }

  /** Turn away the question that is asked now. */
  async turnAway(question) {
    await this.see(".quick-input-widget", question);
    await insist("the question is turned away", async (timeout) => {
      await this.page.keyboard.press("Escape");
      await until("it is gone", async () => (await this.find(".quick-input-widget", question).count()) === 0, timeout);
    });
  }

  /** Agree to what is ticked in the list that is open. */
  async accept() {
    await this.page.locator(".quick-input-widget").getByRole("button", { name: "OK", exact: true }).click();
    await this.gone(PICK);
  }

  rowsOf(view) {
    return `.pane:has(.pane-header[aria-label^="${view}"]) .monaco-list-row`;
  }

  /** A row of one of the extension's views. */
  row(view, text) {
    return this.see(this.rowsOf(view), text);
  }

  async clickRow(view, text) {
    await insist(`${text} is clicked`, (timeout) => this.find(this.rowsOf(view), text).click({ timeout }));
  }

  /** Open a row that has others below it. */
  async expand(view, text) {
    const row = await this.row(view, text);
    const isOpen = async () => (await row.getAttribute("aria-expanded", { timeout: 1000 })) === "true";
    await insist(`${text} is open`, async (timeout) => {
      if (!(await isOpen())) {
        await row.locator(".monaco-tl-twistie").click({ timeout });
        await until("it is open", () => isOpen().catch(() => false), timeout);
      }
    });
  }

  rows(view) {
    return this.page.locator(this.rowsOf(view)).allInnerTexts();
  }

  /** A row's own button. Rows move; `question`, what is asked next, tells that it was the right row's. */
  async act(view, text, title, question) {
    await insist(
      `${title} of ${text} is pressed`,
      async (timeout) => {
        const row = this.find(this.rowsOf(view), text);
        await row.hover({ timeout });
        await this.click(row.locator(`.action-label[aria-label^="${title}"]`).first(), timeout);
        if (question !== undefined) {
          await this.see(".quick-input-widget", question, timeout);
        }
      },
      question === undefined ? undefined : () => this.page.keyboard.press("Escape"),
    );
  }

  /**
   * Wait until a notification says or has said something, since the window was loaded or they were cleared. The editor shows
   * at most three within 800 ms, fewer than these tests may cause; a later one is only behind the bell, so that is looked at
   * now and then.
   */
  async notification(text, patience) {
    let next = Date.now() + BELL_MS;
    await until(
      `a notification says ${text}`,
      async () => {
        if (Date.now() > next) {
          await this.lookBehindBell();
          next = Date.now() + BELL_MS;
        }
        return (await this.notifications()).some((one) => one.includes(text));
      },
      patience,
    );
  }

  /** Let the window remember what is behind the bell, unless a list or a box waits for an answer and would go away. */
  async lookBehindBell() {
    const bell = this.page.locator('footer .statusbar-item[id="status.notifications"]');
    const center = this.page.locator(".notifications-center.visible");
    const turn = (isOpen) =>
      insist(`the notifications are ${isOpen ? "shown" : "hidden"}`, async (timeout) => {
        if ((await center.isVisible()) !== isOpen) {
          await bell.click({ timeout });
          await center.waitFor({ state: isOpen ? "visible" : "hidden", timeout });
        }
      });
    const hasNews = (await bell.locator(".codicon-bell-dot").count()) > 0;
    if (hasNews && !(await this.page.locator(".quick-input-widget").isVisible())) {
      await turn(true);
      const words = await center.locator(".notification-list-item").allInnerTexts();
      await this.page.evaluate((heard) => {
        for (const one of heard) {
          globalThis.said.notifications.add(one.replace(/\s+/gu, " "));
        }
      }, words);
      await turn(false);
    }
  }

  notifications() {
    return this.page.evaluate(() => [...globalThis.said.notifications]).catch(() => []);
  }

  /** Forget the notifications that there were. */
  async clear() {
    await this.command("Notifications: Clear All Notifications");
    await this.gone(".notification-toast");
    await this.page.evaluate(() => globalThis.said.notifications.clear());
  }

  /** Press a button of a notification, of one that has gone to the others, too. */
  async press(text, button) {
    await this.notification(text);
    await insist(
      `${button} of ${text} is pressed`,
      (timeout) =>
        this.click(
          this.find(".notification-list-item", text).locator(".monaco-button", { hasText: button }).first(),
          timeout,
        ),
      () => this.command("Notifications: Show Notifications"),
    );
  }

  /** Press a button of the dialog that is open. */
  async confirm(button) {
    await this.page.locator(".monaco-dialog-box").getByRole("button", { name: button, exact: true }).click();
    await this.gone(".monaco-dialog-box");
  }

  /** Give the side bar more room, as a person does with the mouse. */
  async widen(width) {
    const { mouse } = this.page;
    const measure = async () => (await this.see(".part.sidebar")).boundingBox();
    await insist("the side bar is wider", async (timeout) => {
      const bar = await measure();
      await mouse.move(bar.x + bar.width, bar.y + bar.height / 2);
      await mouse.down();
      await mouse.move(bar.x + width, bar.y + bar.height / 2, { steps: 4 });
      await mouse.up();
      await mouse.move(bar.x + width + 200, bar.y + bar.height / 2);
      await until("it is", async () => Math.abs((await measure()).width - width) < 20, timeout);
    });
  }

  async editorText() {
    const lines = await this.page.locator(".editor-instance .view-lines .view-line").allInnerTexts();
    return lines.join("\n").replace(/\u00a0/gu, " ");
  }

  async picture(name) {
    await this.page.screenshot({
      animations: "disabled",
      path: join(process.env.OUTPOST_PICTURES, `vscode-${name}.png`),
    });
  }

  /** Load the window again as the editor does it, with its state kept. */
  async reload() {
    await this.page.evaluate(() => (globalThis.isOld = true));
    await this.command("Developer: Reload Window");
    await until("the window is loaded again", () =>
      this.page
        .evaluate(() => globalThis.isOld !== true && document.querySelector(".monaco-workbench") !== null)
        .catch(() => false),
    );
  }

  /** Leave the page, as a person does who closes it, so that it can tell its server; then close it. */
  async close() {
    await this.page.goto("about:blank");
    await this.page.context().close();
  }
}
