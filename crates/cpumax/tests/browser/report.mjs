// Opens a report in headless Chromium, in light and dark, wide and as narrow as a phone: uses each
// control once, holds its pictures against those that are kept, and tells what went wrong as one
// line each. Arguments: the program, the packages' folder, the report, the file with the pictures.
// SNAPSHOTS=overwrite writes that anew.
import { readFileSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import process from 'node:process';

const [program, packages, report, kept] = process.argv.slice(2);
const require = createRequire(path.join(packages, 'package.json'));
const { chromium } = require('playwright-core');
const axe = require.resolve('axe-core/axe.min.js');
const PERFETTO = 'https://ui.perfetto.dev';

const wrong = [];
const browser = await chromium.launch({
  executablePath: program,
  args: ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run',
    '--disable-background-networking', '--disable-component-update', '--disable-sync'],
});

/// A page with the report in it, of which is told what it says and asks for.
async function opened(at, options) {
  const context = await browser.newContext(options);
  const page = await context.newPage();
  const asked = [];
  context.on('request', (request) => {
    if (!request.url().startsWith('file:')) asked.push(request.url());
  });
  page.on('console', (message) => wrong.push(`${at}: console: ${message.text()}`));
  page.on('pageerror', (error) => wrong.push(`${at}: ${error}`));
  await page.goto(`file://${report}`);
  return { context, page, asked };
}

for (const [scheme, width] of [['light', 1100], ['dark', 1100], ['light', 360], ['dark', 360]]) {
  const at = `${scheme}, ${width} wide`;
  const { context, page, asked } = await opened(at, {
    viewport: { width, height: 800 }, colorScheme: scheme, bypassCSP: true,
  });
  const over = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
  if (over > 0) wrong.push(`${at}: wider than the window by ${over}`);
  const higher = await page.evaluate(() => [...document.querySelectorAll('.scroll')]
    .filter((one) => one.scrollHeight > one.clientHeight).length);
  if (higher > 0) wrong.push(`${at}: ${higher} figures are higher than their place`);
  await useFigures(page, at);
  await useBoxes(page, at);
  await useWidths(page, at);
  for (const summary of await page.locator('summary').all()) await summary.click();
  const closed = await page.locator('details:not([open])').count();
  if (closed > 0) wrong.push(`${at}: ${closed} tables stay closed`);
  await page.addScriptTag({ path: axe });
  const { violations } = await page.evaluate(() => globalThis.axe.run());
  for (const { id, nodes } of violations) wrong.push(`${at}: axe: ${id}: ${nodes[0].html}`);
  for (const url of asked) wrong.push(`${at}: asks for ${url}`);
  await context.close();
}

/// The pointer and the arrow keys tell the numbers of each figure. Series of a legend differ.
async function useFigures(page, at) {
  const figures = page.locator('figure:has(.told)');
  const count = await figures.count();
  if (count < 6) wrong.push(`${at}: only ${count} figures tell numbers`);
  for (let index = 0; index < count; index += 1) {
    const figure = figures.nth(index);
    const [told, mark] = [figure.locator('.told'), figure.locator('[data-x]').last()];
    await mark.hover({ force: true });
    const pointed = await told.innerText();
    if (!pointed.includes(await mark.textContent())) wrong.push(`${at}: ${index} tells ${pointed}`);
    await figure.locator('.slider input').focus();
    await page.keyboard.press('ArrowLeft');
    const moved = await told.innerText();
    const spoken = await figure.locator('.slider input').getAttribute('aria-valuetext');
    if (moved === pointed || moved.split('\n').join('; ') !== spoken) {
      wrong.push(`${at}: arrow keys tell ${moved}, ${spoken}, after ${pointed}`);
    }
  }
  const keys = await page.locator('fieldset').evaluateAll((all) => all.map((legend) => [
    ...legend.querySelectorAll('.key'),
  ].map((key) => getComputedStyle(key).color + key.innerHTML)));
  const alike = keys.filter((one) => new Set(one).size < one.length);
  if (alike.length > 0 || keys[0].length < 2) wrong.push(`${at}: series look alike: ${keys}`);
}

/// Each check box hides its series or plots, and shows them again.
async function useBoxes(page, at) {
  const boxes = page.locator('input[type=checkbox]');
  const count = await boxes.count();
  if (count < 3) wrong.push(`${at}: only ${count} check boxes`);
  for (let index = 0; index < count; index += 1) {
    const box = boxes.nth(index);
    const series = page.locator(`main .${await box.getAttribute('id')}`);
    const all = await series.count();
    const shown = async () => {
      let visible = 0;
      for (let one = 0; one < all; one += 1) visible += Number(await series.nth(one).isVisible());
      return visible;
    };
    if (all === 0 || await shown() === 0) wrong.push(`${at}: control ${index} shows nothing`);
    await box.uncheck();
    if (await shown() !== 0) wrong.push(`${at}: control ${index} hides nothing`);
    await box.check();
  }
}

/// Each choice of a width makes its plots as wide as it says.
async function useWidths(page, at) {
  const radios = page.locator('input[type=radio]');
  const count = await radios.count();
  if (count < 4) wrong.push(`${at}: only ${count} widths`);
  // The last is the first of its group again, so that the page is as it was.
  for (let index = count - 1; index >= 0; index -= 1) {
    const radio = radios.nth(index);
    const [, of, zoom] = (await radio.getAttribute('id')).match(/^(.*)-z(\d+)$/);
    await radio.check();
    const widths = await page.locator(`.${of}-w`).evaluateAll((all) => all.map(
      (one) => one.getBoundingClientRect().width / one.parentElement.clientWidth));
    const off = widths.some((width) => Math.abs(width - Number(zoom)) > 0.02);
    if (widths.length === 0 || off) wrong.push(`${at}: ${of} at ${zoom} is ${widths} wide`);
  }
}

/// The button opens Perfetto's page, which is not that but answers as it does, and hands it a trace.
async function useButton() {
  const at = 'Perfetto';
  const { context, page, asked } = await opened(at, { colorScheme: 'light' });
  await context.route(`${PERFETTO}/**`, (route) => route.fulfill({
    contentType: 'text/html',
    body: `<script>addEventListener('message', ({ source, data }) => {
      if (data === 'PING') source.postMessage('PONG', '*');
      else window.got = [data.perfetto.title, new TextDecoder().decode(data.perfetto.buffer)];
    })</script>`,
  }));
  if (asked.length > 0) wrong.push(`${at}: asks for ${asked} before anybody pressed a button`);
  const button = page.locator('button').first();
  const [other] = await Promise.all([context.waitForEvent('page'), button.click()]);
  const got = await other.waitForFunction(() => globalThis.got, null, { timeout: 20000 });
  const [title, text] = await got.jsonValue();
  const { traceEvents } = JSON.parse(text);
  const has = (ph, name) => traceEvents.some((one) => one.ph === ph && one.name.includes(name));
  if (!title.includes(' on ')) wrong.push(`${at}: the title is ${title}`);
  for (const [ph, name] of [['X', 'running'], ['X', 'stopped'], ['i', 'period'], ['C', 'left']]) {
    if (!has(ph, name)) wrong.push(`${at}: there is no ${name} in the trace`);
  }
  if (asked.some((url) => url !== `${PERFETTO}/`)) wrong.push(`${at}: asks for ${asked}`);
  await context.close();
}
await useButton();

/// Without scripts the marks still have their numbers, and no control is there that does nothing.
{
  const { context, page } = await opened('no scripts', { javaScriptEnabled: false });
  if (await page.locator('[data-x] > title').count() < 20) wrong.push('no scripts: no numbers');
  if (await page.locator('.slider').first().isVisible()) wrong.push('no scripts: a slider');
  await context.close();
}

/// Each picture as means of its parts: fonts differ between machines, so only what is coarse can be
/// compared.
const [COLUMNS, ROWS] = [24, 12];
async function pictures() {
  const { context, page } = await opened('pictures', { viewport: { width: 1100, height: 800 } });
  const sheet = await context.newPage();
  const means = async (locator) => {
    const data = (await locator.screenshot()).toString('base64');
    return sheet.evaluate(async ([url, columns, rows]) => {
      const image = new Image();
      image.src = url;
      await image.decode();
      const canvas = new OffscreenCanvas(image.width, image.height).getContext('2d');
      canvas.drawImage(image, 0, 0);
      const all = [];
      for (let at = 0; at < columns * rows; at += 1) {
        const [x, y] = [at % columns, Math.floor(at / columns)];
        const edge = (index, of, length) => Math.floor(index * length / of);
        const [left, top] = [edge(x, columns, image.width), edge(y, rows, image.height)];
        const [width, height] =
          [edge(x + 1, columns, image.width) - left, edge(y + 1, rows, image.height) - top];
        const { data } = canvas.getImageData(left, top, width, height);
        for (const colour of [0, 1, 2]) {
          let sum = 0;
          for (let byte = colour; byte < data.length; byte += 4) sum += data[byte];
          all.push(Math.round(sum / (width * height)));
        }
      }
      return all;
    }, [`data:image/png;base64,${data}`, COLUMNS, ROWS]);
  };
  const of = {};
  const figures = { throttled: '.plots svg', percentiles: '.plots ~ figure svg', stretch: 'svg.lanes' };
  for (const [name, selector] of Object.entries(figures)) {
    of[name] = await means(page.locator(selector).first());
  }
  await page.locator('#a-s0').uncheck();
  const without = await means(page.locator('.plots svg').first());
  await context.close();
  return [of, without];
}
/// The mean difference, and that of the worst part, of 255.
function difference(one, other) {
  const all = one.map((value, at) => Math.abs(value - other[at]));
  return [all.reduce((sum, value) => sum + value, 0) / all.length, Math.max(...all)];
}
const hex = (all) => all.map((value) => value.toString(16).padStart(2, '0')).join('');
const [of, without] = await pictures();
if (process.env.SNAPSHOTS === 'overwrite') {
  const lines = Object.entries(of).map(([name, means]) => `${name} ${hex(means)}\n`);
  writeFileSync(kept, lines.join(''));
}
const [MEAN, WORST] = [2, 60];
const before = Object.fromEntries(readFileSync(kept, 'utf8').trim().split('\n').map((line) => {
  const [name, means] = line.split(' ');
  return [name, means.match(/../g).map((byte) => parseInt(byte, 16))];
}));
for (const [name, means] of Object.entries(of)) {
  const [mean, worst] = difference(means, before[name] ?? []);
  if (!(mean <= MEAN && worst <= WORST)) {
    wrong.push(`the picture of ${name} is another one: ${mean.toFixed(2)} off, at most ${worst}`);
  }
}
const [hidden] = difference(of.throttled, without);
if (hidden < 0.05) wrong.push(`a picture without a series is the same: ${hidden}`);

await browser.close();
for (const line of wrong) console.log(line);
process.exit(wrong.length === 0 ? 0 : 1);
