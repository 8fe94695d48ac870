// A headless Chromium, spoken to in the DevTools protocol over a pair of pipes
// (--remote-debugging-pipe: JSON messages, each ended by a zero byte), so that nothing beside node
// is needed.
import {spawn} from "node:child_process";
import {mkdtempSync, rmSync} from "node:fs";
import {tmpdir} from "node:os";
import {join} from "node:path";

const DEADLINE_MS = 120_000; // of one answer, on a loaded machine

export class Browser {
  #process;
  #profile;
  #next = 1;
  #waiting = new Map();
  #listeners = new Set();
  #unread = "";

  constructor(executable) {
    this.#profile = mkdtempSync(join(tmpdir(), "lockstep-pages-"));
    this.#process = spawn(executable, [
      "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
      "--no-first-run", "--hide-scrollbars", "--remote-debugging-pipe",
      `--user-data-dir=${this.#profile}`, "about:blank",
    ], {stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"]});
    this.#process.stdio[4].setEncoding("utf8").on("data", (text) => this.#read(text));
    this.#process.on("error", (error) => this.#fail(error));
    this.#process.on("exit", () => this.#fail(new Error("the browser ended")));
    this.#process.stdio[3].on("error", (error) => this.#fail(error));
  }

  #fail(error) {
    for (const {reject} of this.#waiting.values()) reject(error);
    this.#waiting.clear();
  }

  #read(text) {
    const messages = (this.#unread + text).split("\0");
    this.#unread = messages.pop();
    for (const message of messages.map((one) => JSON.parse(one))) {
      const waiting = this.#waiting.get(message.id);
      this.#waiting.delete(message.id);
      if (waiting === undefined) {
        for (const listener of this.#listeners) listener(message);
      } else if (message.error) {
        waiting.reject(new Error(`${waiting.method}: ${message.error.message}`));
      } else {
        waiting.resolve(message.result);
      }
    }
  }

  send(method, params = {}, sessionId = undefined) {
    const id = this.#next++;
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => {
        this.#waiting.delete(id);
        reject(new Error(`${method}: no answer in ${DEADLINE_MS / 1000} s`));
      }, DEADLINE_MS);
      const settled = (settle) => (value) => { clearTimeout(timer); settle(value); };
      this.#waiting.set(id, {method, resolve: settled(resolve), reject: settled(reject)});
      this.#process.stdio[3].write(JSON.stringify({id, method, params, sessionId}) + "\0");
    });
  }

  // A tab. on(event, parameters) hears everything that happens in it.
  async tab(on) {
    const {targetId} = await this.send("Target.createTarget", {url: "about:blank"});
    const {sessionId} = await this.send("Target.attachToTarget", {targetId, flatten: true});
    const listener = (message) => {
      if (message.sessionId === sessionId) on(message.method, message.params);
    };
    this.#listeners.add(listener);
    return {
      send: (method, params) => this.send(method, params, sessionId),
      close: async () => {
        this.#listeners.delete(listener);
        await this.send("Target.closeTarget", {targetId});
      },
    };
  }

  async close() {
    const ended = new Promise((resolve) => this.#process.once("exit", resolve));
    await this.send("Browser.close").catch(() => this.#process.kill("SIGKILL"));
    await ended;
    rmSync(this.#profile, {recursive: true, force: true, maxRetries: 5});
  }
}
