// Changes appear by themselves, and the page says when they cannot.
import assert from 'node:assert/strict';
import net from 'node:net';
import { after, test } from 'node:test';
import { Person, close, fixture, withHealth } from '../person.mjs';

// The journeys' own requests go to the manager's own certificate.
process.env.NODE_TLS_REJECT_UNAUTHORIZED = '0';

after(close);

// The page tries again after 60 s at the latest, if several streams have failed.
const fresh = (person, words) => person.page.locator('.fresh', { hasText: words }).waitFor({ timeout: 65_000 });
const streams = (person) => person.requests.filter((r) => r.includes('/api/v1/events'));

async function rescan(repository) {
  const headers = { Authorization: `Bearer ${fixture.tokens.editor}` };
  const images = await (await fetch(`${fixture.url}/api/v1/namespaces/shop/imagescans`, { headers })).json();
  const image = images.items.find((i) => i.references.some((r) => r.includes(repository)));
  const response = await fetch(`${fixture.url}/api/v1/namespaces/shop/imagescans/${image.name}/report`, { method: 'DELETE', headers });
  assert.ok(response.ok, `scanning ${image.name} again: ${response.status} ${await response.text()}`);
}

// Proxy passes connections on to the manager, until it cuts them.
class Proxy {
  static async start() {
    const proxy = new Proxy(), manager = new URL(fixture.url);
    proxy.sockets = new Set();
    proxy.server = net.createServer((socket) => {
      if (proxy.refuses) return socket.destroy();
      const on = net.connect(Number(manager.port), manager.hostname);
      for (const [from, to] of [[socket, on], [on, socket]]) {
        proxy.sockets.add(from);
        from.pipe(to);
        from.on('error', () => to.destroy());
        from.on('close', () => { proxy.sockets.delete(from); to.destroy(); });
      }
    });
    await new Promise((resolve) => { proxy.server.listen(0, 'localhost', resolve); });
    proxy.url = `https://localhost:${proxy.server.address().port}`;
    return proxy;
  }

  cut() {
    this.sockets.forEach((socket) => socket.destroy());
  }

  stop() {
    this.cut();
    this.server.close();
  }
}

test('a change appears without a reload, and loads only what the page shows', async () => {
  const member = await Person.signedIn('member', '/images?namespace=shop');
  await member.settled();
  await fresh(member, 'live');
  const newest = () => member.page.locator('tbody time').evaluateAll((all) => all.map((t) => t.dateTime).sort().at(-1));
  const before = await newest();
  member.requests.length = 0;
  await rescan('vulnerable-web');
  await member.page.waitForFunction((old) => [...document.querySelectorAll('tbody time')].some((t) => t.dateTime > old), before, { timeout: 20_000 });
  const paths = new Set(member.requests.map((r) => r.replace(/\?.*/, '')));
  assert.deepEqual([...paths], ['GET /api/v1/namespaces/shop/imagescans'], 'only the list of the page is loaded again');
  await member.leave();
});

test('a connection that is cut shows that the page is not connected since when, and recovers', async () => {
  const proxy = await Proxy.start();
  try {
    const member = await Person.withBrowser();
    await member.page.goto(`${proxy.url}/images?namespace=shop`);
    await member.signIn('member');
    await member.settled();
    await fresh(member, 'live');
    proxy.cut();
    await fresh(member, 'every 30 s');
    await fresh(member, 'live');
    proxy.refuses = true;
    proxy.cut();
    await fresh(member, 'every 30 s');
    await member.page.getByLabel('Phase').selectOption('Scanned');
    await fresh(member, /not connected since \d/);
    proxy.refuses = false;
    await fresh(member, 'live');
    await member.eventually(async () => await member.page.getByRole('alert').count() === 0, 5_000);
    member.problems.length = 0; // that connections failed was wanted
    await member.leave();
  } finally {
    proxy.stop();
  }
});

test('a proxy that lets no stream through leaves a page that loads again every 30 s', async () => {
  const member = await Person.withBrowser();
  await member.page.clock.install();
  await member.page.route('**/api/v1/events*', (route) => route.abort());
  await member.page.goto(fixture.url);
  await member.signIn('member');
  await member.settled();
  await fresh(member, 'every 30 s');
  member.requests.length = 0;
  await member.page.clock.runFor(65_000);
  await member.page.waitForTimeout(300);
  const others = member.requests.filter((r) => !r.includes('/api/v1/events'));
  assert.ok(others.length >= 1 && others.length <= 3, `requests in 65 s: ${others.join(', ')}`);
  assert.ok(streams(member).length <= 5, `the stream is tried ${streams(member).length} times in 65 s`);
  await member.page.unroute('**/api/v1/events*');
  // The page's clock runs ahead, but not so far that a stream which has just been opened would count as silent.
  for (let i = 0; i < 15 && await member.page.locator('.fresh.live').count() === 0; i++) {
    await member.page.clock.runFor(5_000);
    await member.page.waitForTimeout(1_000);
  }
  await fresh(member, 'live');
  member.problems.length = 0; // that the stream failed was wanted
  await member.leave();
});

test('a connection that is cut off without a word is no live page, and no all-clear', async () => {
  const reader = await Person.withBrowser();
  await reader.page.clock.install();
  await reader.page.goto(fixture.url);
  await reader.signIn('reader');
  await reader.settled();
  await fresh(reader, 'live');
  // From now on, no request is ever answered, and the stream sends nothing.
  await reader.page.route('**/api/v1/**', () => {});
  for (let i = 0; i < 30 && await reader.page.locator('.fresh.lost').count() === 0; i++) {
    await reader.page.clock.runFor(5_000);
    await reader.page.waitForTimeout(100);
  }
  await fresh(reader, 'not connected since');
  assert.match(await reader.text('[role=alert]'), /Not up to date\. The manager has not answered within 28 s/);
  await reader.page.screenshot({ path: `${fixture.output}/actions-cut-off-light.png`, fullPage: true });
  await reader.page.unroute('**/api/v1/**');
  await reader.page.getByRole('button', { name: 'Try again' }).click();
  await reader.eventually(async () => await reader.page.getByRole('alert').count() === 0);
  reader.problems.length = 0; // that requests failed was wanted
  await reader.leave();
});

const hide = (person, hidden) => person.page.evaluate((value) => {
  Object.defineProperty(document, 'hidden', { value, configurable: true });
  document.dispatchEvent(new Event('visibilitychange'));
}, hidden);

test('a hidden tab has no stream, and continues where it was when it is shown', async () => {
  const member = await Person.signedIn('member', '/images?namespace=shop');
  await member.settled();
  await fresh(member, 'live');
  await hide(member, true);
  await fresh(member, 'every 30 s');
  member.requests.length = 0;
  await rescan('riddled-api');
  await member.page.waitForTimeout(3000);
  assert.deepEqual(member.requests, [], 'requests of a hidden tab');
  await hide(member, false);
  await fresh(member, 'live');
  await member.page.waitForTimeout(2500);
  assert.equal(streams(member).length, 1);
  assert.ok(member.requests.some((r) => r.includes('/imagescans')), 'what changed meanwhile is loaded');
  await member.leave();
});

// withHints returns somebody whose stream of events has only the messages that send gives it.
async function withHints(path, user = 'member') {
  const member = await Person.withBrowser();
  await member.page.addInitScript(() => {
    window.EventSource = class {
      constructor() {
        window.send = (message) => this.onmessage({ data: JSON.stringify(message) });
        setTimeout(() => window.send({ type: 'hello' }));
      }

      close() {}
    };
  });
  await member.page.clock.install();
  await member.page.goto(fixture.url + path);
  await member.signIn(user);
  await member.settled();
  await fresh(member, 'live');
  member.hint = () => member.page.evaluate(() => window.send({ type: 'changed', changes: [{ kind: 'ImageScan' }] }));
  return member;
}

const lists = '**/api/v1/namespaces/shop/imagescans?*';

test('what could not be loaded after a change is loaded soon, although the stream works', async () => {
  const member = await withHints('/images?namespace=shop');
  await member.page.route(lists, (route) => route.fulfill({ status: 503, contentType: 'application/problem+json', body: '{"title":"Unavailable","status":503,"detail":"The store does not answer.","reason":"Unavailable"}' }));
  await member.hint();
  await member.page.clock.runFor(3_000);
  await member.page.getByText('Not up to date.').waitFor();
  await member.page.unroute(lists);
  await member.page.clock.runFor(36_000);
  await member.eventually(async () => await member.page.getByRole('alert').count() === 0, 3_000);
  member.problems.length = 0; // that a request failed was wanted
  await member.leave();
});

test('what a hint asks for waits while the tab is hidden', async () => {
  const member = await withHints('/images?namespace=shop');
  member.requests.length = 0;
  await member.hint();
  await hide(member, true);
  await member.page.clock.runFor(60_000);
  assert.deepEqual(member.requests, [], 'requests of a hidden tab');
  const loaded = member.page.waitForRequest((r) => r.url().includes('/imagescans'));
  await hide(member, false);
  await loaded;
  await member.leave();
});

test('changes that come faster than responses do not keep these from arriving', async () => {
  const member = await withHints('/images?namespace=shop');
  let answers = 0;
  await member.page.route(lists, async (route) => {
    await new Promise((resolve) => { setTimeout(resolve, 3_500); });
    await route.continue().then(() => { answers++; }, () => {});
  });
  const changes = setInterval(() => void member.hint().catch(() => {}), 200);
  try {
    await member.page.waitForResponse(lists, { timeout: 15_000 });
  } finally {
    clearInterval(changes);
  }
  assert.ok(answers >= 1);
  await member.leave();
});

test('the replicas of the manager are loaded again although no hint says that one has come or gone', async () => {
  const admin = await withHints('/operator', 'administrator');
  const replica = (name, more) => ({ name, node: 'node', ready: true, ending: false, leads: false, startTime: new Date(Date.now() - 3_600_000).toISOString(), ...more });
  const replicas = [replica('manager-a', { ending: true }), replica('manager-b', { leads: true, leadsSince: new Date(Date.now() - 60_000).toISOString() }), replica('manager-c', { ready: false })];
  await admin.page.route('**/api/v1/operator', async (route) => {
    const response = await route.fetch();
    await route.fulfill({ response, json: { ...await response.json(), replicas } });
  });
  await admin.page.clock.runFor(36_000);
  await admin.page.getByText('manager-c').waitFor();
  const rows = await admin.page.getByRole('table', { name: 'Replicas' }).locator('tbody tr').allInnerTexts();
  for (const [i, words] of [/manager-a\s+node\s+ending\s+no\b/, /manager-b\s+node\s+ready\s+yes, for \d+ (s|min)/, /manager-c\s+node\s+not ready\s+no\b/].entries()) assert.match(rows[i], words);
  await admin.leave();
});

test('an all-clear that cannot be loaded again is not green', async () => {
  const admin = await withHints('/?namespace=blog', 'administrator');
  await withHealth(admin, {});
  await admin.hint();
  await admin.page.clock.runFor(3_000);
  await admin.page.locator('.answer.good').waitFor();
  const back = () => admin.page.locator('.answer.good').evaluate((e) => getComputedStyle(e).backgroundColor);
  const green = await back();
  await admin.page.route('**/api/v1/overview?*', (route) => route.abort());
  await admin.hint();
  await admin.page.clock.runFor(3_000);
  await admin.page.getByText('Not up to date.').waitFor();
  assert.notEqual(await back(), green);
  admin.problems.length = 0; // that a request failed was wanted
  await admin.leave();
});

test('the start of changes moves on while the page is open, since the manager refuses one that is 90 days ago', async () => {
  const member = await withHints('/changes?namespace=shop&days=90');
  const starts = [];
  await member.page.route('**/changes?*', async (route) => {
    starts.push(Date.parse(new URL(route.request().url()).searchParams.get('since')));
    const response = await route.fetch();
    await route.fulfill({ response, headers: { ...response.headers(), date: new Date(await member.page.evaluate(() => Date.now())).toUTCString() } });
  });
  await member.page.clock.fastForward(2 * 3_600_000);
  await member.hint();
  await member.page.clock.runFor(3_000);
  await member.eventually(() => starts.some((start) => start > Date.now() - 90 * 86_400_000 + 3_600_000), 5_000);
  await member.page.unrouteAll({ behavior: 'ignoreErrors' });
  await member.leave();
});

test('permissions that are taken away end what the page shows by itself', async () => {
  const member = await withHints('/images?namespace=shop');
  await member.page.getByText('vulnerable-web').first().waitFor();
  await member.page.route(lists, (route) => route.fulfill({ status: 403, contentType: 'application/problem+json', body: '{"title":"Forbidden","status":403,"detail":"You may not list imagescans.","reason":"Forbidden"}' }));
  await member.hint();
  await member.page.clock.runFor(3_000);
  await member.page.getByText('You may not list imagescans.').waitFor();
  assert.equal(await member.page.getByText('vulnerable-web').count(), 0, 'what was shown before');
  await member.leave();
});

test('another build of the page asks to reload', async () => {
  const member = await Person.withBrowser();
  await member.page.route('**/api/v1/events*', (route) => route.fulfill({
    contentType: 'text/event-stream', body: 'data: {"type":"hello","build":"0000000000000000","version":"9.9.9"}\n\n',
  }));
  await member.page.goto(fixture.url);
  await member.signIn('member');
  await member.page.getByText('A new version is there.').waitFor();
  await member.page.unroute('**/api/v1/events*');
  await member.page.getByRole('button', { name: 'Reload' }).click();
  await fresh(member, 'live');
  assert.equal(await member.page.getByText('A new version is there.').count(), 0);
  await member.leave();
});
