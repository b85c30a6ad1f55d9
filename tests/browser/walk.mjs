// Walks the mirror's pages in a real browser, by mouse and by keyboard alone, with and without scripts.
//
//   node walk.mjs SETTINGS.json
//
// Settings: {clients: folder of node_modules, base: URL, shots: folder of screenshots, pages: {name: path}, hostile: [path],
// project, device, release: text of jetson_release}. Prints `seen` once the sync that runs was seen, and waits for its end then.
// Ends with 1, and says why, where anything is not as it should be.
import { createRequire } from "node:module";
import { mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";

const settings = JSON.parse(readFileSync(process.argv[2], "utf8"));
const require = createRequire(join(settings.clients, "package.json"));
const { chromium } = require("playwright-core");
const axe = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");

const FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
  "--disable-component-update", "--disable-sync"];
const MOST_STEPS = 400; // presses of the tabulator key on the way to something

const wrong = [];
const check = (holds, what) => { if (!holds) wrong.push(what); };

// Notes whatever a page should not do.
function listen(page, name) {
  page.on("console", (line) => {
    // That a page is not there is told to the console as well; it has a page of its own, which is looked at like any other.
    const lost = line.text().includes("status of 404") && page.url() === `${settings.base}${settings.pages.lost}`;
    if (["error", "warning"].includes(line.type()) && !lost) wrong.push(`${name}: console: ${line.text()}`);
  });
  page.on("pageerror", (error) => wrong.push(`${name}: ${error}`));
  page.on("dialog", (dialog) => { wrong.push(`${name}: a dialog: ${dialog.message()}`); dialog.dismiss(); });
  page.on("request", (request) => {
    const url = request.url();
    if (!url.startsWith(settings.base) && !url.startsWith("data:")) wrong.push(`${name}: asks elsewhere: ${url}`);
  });
}

// Moves the focus by keyboard until it is on what is looked for.
async function reach(page, what, matches) {
  for (let step = 0; step < MOST_STEPS; step += 1) {
    await page.keyboard.press("Tab");
    const text = await page.evaluate(() => {
      const at = document.activeElement;
      return { tag: at.tagName.toLowerCase(), text: at.textContent.trim(), name: at.getAttribute("name") ?? at.getAttribute("aria-label") ?? "" };
    });
    if (matches(text)) return;
  }
  throw new Error(`no way by keyboard to ${what} at ${page.url()}`);
}

const hands = {
  mouse: {
    follow: (page, text) => page.getByRole("link", { name: text, exact: true }).first().click(),
    open: (page, text) => page.locator("summary", { hasText: text }).first().click(),
    write: (page, name, text) => page.locator(`main [name=${name}], header [name=${name}]`).first().fill(text),
    send: (page, text) => page.getByRole("button", { name: text, exact: true }).first().click(),
  },
  keyboard: {
    follow: async (page, text) => {
      await reach(page, `the link ${text}`, (at) => at.tag === "a" && at.text === text);
      await page.keyboard.press("Enter");
    },
    open: async (page, text) => {
      await reach(page, `the details ${text}`, (at) => at.tag === "summary" && at.text.includes(text));
      await page.keyboard.press("Enter");
    },
    write: async (page, name, text) => {
      await reach(page, `the field ${name}`, (at) => at.name === name);
      await page.keyboard.insertText(text);
    },
    send: async (page, text) => {
      await reach(page, `the button ${text}`, (at) => at.tag === "button" && at.text === text);
      await page.keyboard.press("Enter");
    },
  },
};

// The four errands, by one kind of hands.
async function errands(page, { follow, open, write, send }) {
  await page.goto(`${settings.base}/`);
  await follow(page, settings.device);
  await page.waitForURL(/\/devices\//);
  const line = await page.getByRole("region", { name: "pip", exact: true }).textContent();
  check(line.startsWith(`pip install --index-url ${settings.base}/${settings.device}/simple/`), `the device's line is ${line}`);

  await write(page, "q", settings.project);
  await page.keyboard.press("Enter");
  await page.waitForURL(/search/);
  await follow(page, settings.project);
  await page.waitForURL(/\/projects\//);
  const why = page.locator("details", { hasText: "refused" }).first();
  if (!(await why.evaluate((details) => details.open))) await open(page, "refused");
  check(await why.getByText("What to do:").first().isVisible(), "the reason of a refusal is not to be seen");

  await follow(page, "What is my device? What is this error?");
  await page.waitForURL(/detect/);
  await write(page, "text", settings.release);
  await send(page, "Find out");
  await page.locator("#answer").waitFor();
  check(await page.getByRole("link", { name: settings.device, exact: true }).isVisible(), "the pasted release names no device");
  check(await page.getByText("A shared library is missing").isVisible(), "the pasted error is not known");
}

async function main() {
  mkdirSync(settings.shots, { recursive: true });
  // Each context of it has a fresh profile.
  const started = await chromium.launch({ executablePath: settings.chromium, args: FLAGS, headless: true });
  const browser = await started.newContext();
  try {
    // A sync that runs, by keyboard, with a script and without.
    const bare = await started.newContext({ javaScriptEnabled: false });
    const page = await browser.newPage();
    listen(page, "sync");
    await page.goto(`${settings.base}/`);
    await hands.keyboard.follow(page, "Sync");
    await page.getByText("A sync is running.").waitFor();
    await page.locator("#live", { hasText: "fetching" }).waitFor();
    for (const scheme of ["light", "dark"]) {
      await page.emulateMedia({ colorScheme: scheme });
      await page.screenshot({ path: join(settings.shots, `sync-running-${scheme}.png`) });
    }
    const plain = await bare.newPage();
    await plain.goto(`${settings.base}/sync`);
    await plain.getByText("A sync is running.").waitFor();
    console.log("seen");
    await page.getByText("No sync is running.").waitFor();
    await page.locator("#live", { hasText: "Sync, ended" }).waitFor();
    await plain.getByText("No sync is running.").waitFor();
    await page.close();

    // Each errand by mouse and by keyboard, with scripts and without.
    for (const [name, kind] of Object.entries(hands)) {
      for (const [scripts, context] of [["with scripts", browser], ["without scripts", bare]]) {
        const walked = await context.newPage();
        listen(walked, `${name}, ${scripts}`);
        await errands(walked, kind);
        await walked.close();
      }
    }

    // Every page, as it looks, and by the accessibility checker.
    for (const [width, height] of [[360, 740], [1280, 900]]) {
      for (const scheme of ["light", "dark"]) {
        const seen = await browser.newPage();
        listen(seen, `${width} ${scheme}`);
        await seen.setViewportSize({ width, height });
        await seen.emulateMedia({ colorScheme: scheme });
        for (const [name, path] of Object.entries(settings.pages)) {
          await seen.goto(`${settings.base}${path}`);
          const fullPage = !["home", "devices"].includes(name);
          await seen.screenshot({ path: join(settings.shots, `${name}-${scheme}-${width}.png`), fullPage });
          const over = await seen.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
          check(over <= 0, `${name} at ${width}: ${over} pixels too wide`);
          // What is folded away is read as well.
          await seen.evaluate(() => document.querySelectorAll("details").forEach((details) => { details.open = true; }));
          const unfolded = await seen.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
          check(unfolded <= 0, `${name} at ${width}, unfolded: ${unfolded} pixels too wide`);
          await seen.evaluate(axe);
          const { violations } = await seen.evaluate(() => window.axe.run(document, { resultTypes: ["violations"] }));
          for (const { id, impact, nodes } of violations.filter(({ impact }) => ["serious", "critical"].includes(impact))) {
            wrong.push(`${name} ${scheme} ${width}: axe: ${impact}: ${id}: ${nodes.slice(0, 3).map(({ html, failureSummary }) => `${html} ${failureSummary}`).join(" | ")}`);
          }
        }
        await seen.close();
      }
    }

    // A wheel that is full of markup adds nothing to a page.
    for (const path of settings.hostile) {
      const hostile = await browser.newPage();
      listen(hostile, path);
      await hostile.goto(`${settings.base}${path}`);
      const added = await hostile.evaluate(() => document.querySelectorAll("main script, main img, main svg:not(.bar), main b, [onerror], [onload]").length);
      check(added === 0, `${path}: ${added} elements of the wheel's own`);
      check((await hostile.locator("main").textContent()).includes("<img src=x onerror="), `${path}: the markup is not shown as text`);
      // What would be if a value were not escaped: the policy stops it.
      const quiet = wrong.length;
      const ran = await hostile.evaluate(async () => {
        document.querySelector("main").insertAdjacentHTML("beforeend", "<img src=x onerror='window.ran = true'>");
        const script = document.createElement("script");
        script.textContent = "window.ran = true";
        document.body.append(script);
        await new Promise((done) => setTimeout(done, 200));
        return window.ran === true;
      });
      wrong.splice(quiet); // the browser's complaints about just that
      check(!ran, `${path}: the Content-Security-Policy lets markup run`);
      await hostile.close();
    }
  } finally {
    await started.close();
  }
}

try {
  await main();
} catch (error) {
  wrong.push(String(error.stack ?? error));
}
for (const line of wrong) console.error(line);
process.exit(wrong.length > 0 ? 1 : 0);
