// What the web UI costs a browser, on the page of an image with 20,000 findings: "make bench PART=ui". The figures go to the file that
// UI_RESULT names.
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { Person, addressOf, close, fixture, open } from './person.mjs';

// The processor of the browser is slowed down by this factor, except for the heap.
const throttling = 4;
const visits = 9;
// updates is how often the open page loads and shows its findings again: 30 minutes of changes, one each six seconds.
const updates = Number(process.env.UI_UPDATES ?? 300);

const keeper = await Person.signedIn('keeper');
const path = await addressOf(keeper, 'depot', 'riddled-20000');
const storageState = await keeper.context.storageState();
await keeper.leave();

// visit opens the page in a browser without a cache.
async function visit(options = {}, slow = true) {
  const person = await Person.withBrowser({ storageState, ...options });
  const session = await person.context.newCDPSession(person.page);
  if (slow) await session.send('Emulation.setCPUThrottlingRate', { rate: throttling });
  return { person, session };
}

async function measurePaint() {
  const paints = [], shown = [];
  let nodes = 0, requests = [];
  for (let i = 0; i < visits; i++) {
    const { person } = await visit();
    await person.page.addInitScript(() => {
      const rows = new MutationObserver(() => {
        if (document.querySelector('tbody tr') === null) return;
        rows.disconnect();
        requestAnimationFrame(() => setTimeout(() => { window.shownAfter = performance.now(); }));
      });
      rows.observe(document, { childList: true, subtree: true });
    });
    await person.page.goto(fixture.url + path);
    await person.page.waitForFunction(() => window.shownAfter !== undefined && performance.getEntriesByName('first-contentful-paint').length > 0);
    const [paint, rows, elements] = await person.page.evaluate(() => [
      performance.getEntriesByName('first-contentful-paint')[0].startTime, window.shownAfter, document.querySelectorAll('*').length,
    ]);
    paints.push(paint);
    shown.push(rows);
    nodes = Math.max(nodes, elements);
    requests = person.requests;
    await person.leave();
  }
  return { paints, shown, nodes, requests };
}

// measureKeys types into the filter, with pauses in which the list follows, and walks through the rows. A key lasts from the press to the next
// frame that shows its effect (Event Timing). What takes less than 16 ms is not reported, and counts as 16 ms.
async function measureKeys() {
  const { person } = await visit();
  await person.page.goto(fixture.url + path);
  await person.settled();
  await person.page.evaluate(() => {
    window.keys = new Map();
    new PerformanceObserver((list) => {
      for (const entry of list.getEntries()) if (entry.interactionId) window.keys.set(entry.interactionId, Math.max(entry.duration, window.keys.get(entry.interactionId) ?? 0));
    }).observe({ type: 'event', durationThreshold: 16, buffered: false });
  });
  let pressed = 0;
  const filter = person.page.getByLabel('Vulnerability, package or text');
  for (const text of ['library-2', 'cve-2023-1', 'openssl', 'library-66', 'nothing']) {
    await filter.focus();
    await filter.press('Control+a');
    await filter.pressSequentially(text, { delay: 120 });
    pressed += text.length;
    await person.page.waitForTimeout(800);
  }
  await filter.fill('');
  await person.page.getByText('of 20,000 findings').waitFor();
  await person.page.evaluate(() => document.activeElement.blur());
  for (const key of 'jjjjjjjjjjkkkkk') {
    await person.page.keyboard.press(key, { delay: 20 });
    await person.page.waitForTimeout(80);
    pressed++;
  }
  await person.page.waitForTimeout(500);
  const long = await person.page.evaluate(() => [...window.keys.values()]);
  await person.leave();
  assert.ok(long.length > 0, 'no key was reported, so the measurement does not work');
  return Array.from({ length: Math.max(pressed, long.length) }, (_, i) => long[i] ?? 16);
}

// hint is a stream with one change, which then ends, as behind a proxy that cuts it. The page opens the next one, and each has a change to load.
const hint = ['hello', 'changed'].map((type, i) =>
  `data: ${JSON.stringify({ type, id: `0-${i}`, changes: [{ kind: 'Findings', namespace: 'depot' }] })}\n\n`).join('');

// untilLoaded lets the page's clock run until the page has loaded findings. The steps leave real time for what the page has asked for.
async function untilLoaded(page) {
  let loaded = false;
  const response = page.waitForResponse((r) => r.url().includes('/findings')).then(() => { loaded = true; });
  while (!loaded) await Promise.race([response, page.clock.runFor(1000).then(() => page.waitForTimeout(20))]);
}

// measureHeap returns the memory of the page's scripts in bytes after each fifth of the updates, without garbage.
async function measureHeap() {
  const { person, session } = await visit({}, false);
  await person.page.clock.install();
  await person.page.route('**/api/v1/events*', (route) => route.fulfill({ contentType: 'text/event-stream', body: hint }));
  await person.page.goto(fixture.url + path);
  await person.settled();
  await session.send('HeapProfiler.enable');
  const sizes = [];
  for (let i = 1; i <= updates; i++) {
    const loaded = untilLoaded(person.page);
    // Every tenth time the filter changes as well, and other findings are shown.
    if (i % 10 === 0) await person.page.getByLabel('Severity').selectOption(['', 'High', 'Critical'][(i / 10) % 3]);
    await loaded;
    if (i % Math.ceil(updates / 5) !== 0) continue;
    await person.page.clock.runFor(1000);
    await session.send('HeapProfiler.collectGarbage');
    sizes.push((await session.send('Runtime.getHeapUsage')).usedSize);
  }
  await person.leave();
  return sizes;
}

const paint = await measurePaint();
const keys = await measureKeys();
const heap = await measureHeap();
writeFileSync(process.env.UI_RESULT, JSON.stringify({ browser: (await open()).version(), throttling, updates, ...paint, keys, heap }));
await close();
