// Opens a report in headless Chromium, in light and dark, wide and as narrow as a phone: uses each
// control once, and tells what went wrong as one line each. Arguments: the program, the packages'
// folder, the report.
import { createRequire } from 'node:module';
import path from 'node:path';
import process from 'node:process';

const [program, packages, report] = process.argv.slice(2);
const require = createRequire(path.join(packages, 'package.json'));
const { chromium } = require('playwright-core');
const axe = require.resolve('axe-core/axe.min.js');

const wrong = [];
const browser = await chromium.launch({
  executablePath: program,
  args: ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run',
    '--disable-background-networking', '--disable-component-update', '--disable-sync'],
});
for (const [scheme, width] of [['light', 1100], ['dark', 1100], ['light', 360]]) {
  const page = await browser.newPage({
    viewport: { width, height: 800 }, colorScheme: scheme, bypassCSP: true,
  });
  const at = `${scheme}, ${width} wide`;
  page.on('console', (message) => wrong.push(`${at}: console: ${message.text()}`));
  page.on('pageerror', (error) => wrong.push(`${at}: ${error}`));
  page.on('request', (request) => {
    if (!request.url().startsWith('file:')) wrong.push(`${at}: asks for ${request.url()}`);
  });
  await page.goto(`file://${report}`);

  const over = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
  if (over > 0) wrong.push(`${at}: wider than the window by ${over}`);
  const boxes = page.locator('input[type=checkbox]');
  const count = await boxes.count();
  if (count < 3) wrong.push(`${at}: only ${count} controls`);
  for (let index = 0; index < count; index += 1) {
    const box = boxes.nth(index);
    const series = page.locator(`main g.${await box.getAttribute('id')}`);
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
  await page.addScriptTag({ path: axe });
  const { violations } = await page.evaluate(() => globalThis.axe.run());
  for (const { id, nodes } of violations) wrong.push(`${at}: axe: ${id}: ${nodes[0].html}`);
}
await browser.close();
for (const line of wrong) console.log(line);
process.exit(wrong.length === 0 ? 0 : 1);
