// Opens pages in a headless Chromium as a reader would, at the width of a phone and of a desk, in
// the light and in the dark, and audits each with axe.
//
//   node audit.mjs CHROMIUM SCREENSHOTS PAGE.html...
//
// A page must load nothing but itself, leave the console empty, not be wider than the window,
// folded or with all of its details open, and give axe nothing to say of its levels "serious" and
// "critical". One line a page; the screenshots, with all open, lie in the folder, to be looked at.
// Exit code 1 when something was found, 2 for wrong use.
import {readFileSync, mkdirSync, writeFileSync} from "node:fs";
import {createRequire} from "node:module";
import {basename, join, resolve} from "node:path";
import {pathToFileURL} from "node:url";
import {Browser} from "./browser.mjs";

const [chromium, screenshots, ...pages] = process.argv.slice(2);
if (pages.length === 0) {
  process.stderr.write("usage: node audit.mjs CHROMIUM SCREENSHOTS PAGE.html...\n");
  process.exit(2);
}
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

const WIDTHS = [390, 1400];
const THEMES = ["light", "dark"];
const LEVELS = ["serious", "critical"];

async function evaluate(tab, expression) {
  const {result, exceptionDetails} = await tab.send("Runtime.evaluate", {
    expression, awaitPromise: true, returnByValue: true});
  if (exceptionDetails) {
    throw new Error(exceptionDetails.exception?.description ?? exceptionDetails.text);
  }
  return result.value;
}

// What speaks against the page in this window, a line each.
async function audit(browser, page, width, theme) {
  const findings = [];
  const url = pathToFileURL(resolve(page)).href;
  let loaded;
  const isLoaded = new Promise((resolve) => { loaded = resolve; });
  const tab = await browser.tab((event, params) => {
    if (event === "Page.loadEventFired") loaded();
    if (event === "Network.requestWillBeSent" && params.request.url !== url &&
        !params.request.url.startsWith("data:")) {
      findings.push(`asks for ${params.request.url}`);
    }
    if (event === "Runtime.consoleAPICalled") {
      findings.push(`console: ${params.args.map((one) => one.value ?? one.description).join(" ")}`);
    }
    if (event === "Runtime.exceptionThrown") {
      findings.push(`exception: ${params.exceptionDetails.text}`);
    }
    if (event === "Log.entryAdded") findings.push(`log: ${params.entry.text}`);
  });
  for (const domain of ["Page", "Network", "Runtime", "Log"]) await tab.send(`${domain}.enable`);
  await tab.send("Emulation.setEmulatedMedia", {
    features: [{name: "prefers-color-scheme", value: theme}]});
  await tab.send("Emulation.setDeviceMetricsOverride", {
    width, height: 844, deviceScaleFactor: 1, mobile: width < 600});
  await tab.send("Page.navigate", {url});
  await isLoaded;

  const checkWidth = async (state) => {
    const wide = await evaluate(tab, "document.documentElement.scrollWidth");
    if (wide > width) findings.push(`is ${wide} px wide in a window of ${width}${state}`);
  };
  await checkWidth("");
  // What is folded away is hidden from axe, and takes no room.
  await evaluate(tab, 'for (const one of document.querySelectorAll("details")) one.open = true');
  await checkWidth(", opened");
  await evaluate(tab, axe + ";0");
  const {violations, passes} = await evaluate(tab, `axe.run(document).then((all) => ({
    passes: all.passes.length,
    violations: all.violations.map((one) => ({
      id: one.id, impact: one.impact, help: one.help,
      targets: one.nodes.map((node) => node.target.join(" "))})),
  }))`);
  if (passes === 0) findings.push("axe looked at nothing");
  for (const one of violations) {
    if (!LEVELS.includes(one.impact)) continue;
    const more = one.targets.length > 1 ? ` and ${one.targets.length - 1} more` : "";
    findings.push(`${one.impact}: ${one.help} (${one.id}): ${one.targets[0]}${more}`);
  }
  const {data} = await tab.send("Page.captureScreenshot", {
    format: "png", captureBeyondViewport: true});
  const name = `${basename(page, ".html")}-${width}-${theme}.png`;
  writeFileSync(join(screenshots, name), Buffer.from(data, "base64"));
  await tab.close();
  return {findings, passes};
}

mkdirSync(screenshots, {recursive: true});
const browser = new Browser(chromium);
let found = 0;
try {
  for (const page of pages) {
    const lines = [];
    let passes = 0;
    for (const width of WIDTHS) {
      for (const theme of THEMES) {
        const one = await audit(browser, page, width, theme);
        passes = Math.max(passes, one.passes);
        for (const finding of one.findings) lines.push(`  ${width} px, ${theme}: ${finding}`);
      }
    }
    found += lines.length;
    console.log(`${lines.length === 0 ? "✓" : "✗"} ${basename(page)}: ` +
                `${WIDTHS.length * THEMES.length} windows, ${passes} rules of axe hold`);
    for (const line of lines) console.log(line);
  }
} finally {
  await browser.close();
}
process.exitCode = found === 0 ? 0 : 1;
