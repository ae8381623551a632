// Hostile images, permissions and tokens that end while a page is open, and many people behind one address.
import assert from 'node:assert/strict';
import { createSign } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { after, test } from 'node:test';
import { Person, addressOf, close, fixture } from '../person.mjs';

after(close);

test('names that are formulas, hidden marks and descriptions of 64 KiB are shown as text, cut to 4 KiB', async () => {
  const member = await Person.signedIn('member', '/images?namespace=shop');
  await member.visit(await addressOf(member, 'shop', 'hostile'));
  const packages = await member.page.locator('td[data-name=Package]').allInnerTexts();
  assert.ok(packages.some((p) => p.startsWith("=cmd|' /C calc'!A0")), packages.join('\n'));
  assert.ok(packages.some((p) => p.startsWith('gnp\\u202etxt.exe')), 'a mark that turns the text around is shown as its code');
  assert.ok(!/[\u202a-\u202e\u2066-\u2069\u0000]/.test(await member.text()), 'no mark is left in the page');
  const row = member.page.locator('tbody tr', { hasText: 'CVE-2024-6660' });
  await row.getByText('Details').click();
  const text = row.locator('.text');
  const { length } = await text.innerText();
  assert.ok(length > 4_000 && length <= 4_096, `the description has ${length} characters`);
  const { height } = await text.boundingBox();
  assert.ok(height <= 300, `the description is ${height} px high, and must scroll within itself`);
  assert.equal(await member.page.locator('main img, main script, main b:text("long")').count(), 0);
  assert.equal(await row.locator('a[href^="javascript:" i]').count(), 0);
  await member.leave();
});

test('a message is shown as in Slack, with its delivery, and its texts stay texts', async () => {
  const admin = await Person.signedIn('administrator', '/namespaces/news/scanners/default');
  await admin.settled();
  const rows = admin.page.locator('tbody tr');
  await rows.nth(1).waitFor();
  assert.match(await rows.nth(0).innerText(), /team/);
  assert.match(await rows.nth(0).innerText(), /The receiver never answered/);
  assert.match(await rows.nth(1).innerText(), /Accepted/);
  for (const summary of await admin.page.getByText('As in Slack').all()) await summary.click();
  await admin.page.locator('.slack').nth(1).waitFor();
  const hostile = admin.page.locator('.slack').nth(0);
  assert.match(await hostile.innerText(), /<img src=x onerror=/);
  assert.equal(await admin.page.locator('main img').count(), 0);
  const good = admin.page.locator('.slack').nth(1);
  assert.match(await good.innerText(), /Scanner Operator APP[\s\S]*Scanner default · namespace news[\s\S]*CVE-2024-0001[\s\S]*openssl/);
  assert.equal(await good.locator('a[href="https://example.com/CVE-2024-0001"][rel="noopener noreferrer"]').count(), 1);
  const links = await admin.page.locator('.slack a').evaluateAll((all) => all.map((a) => a.protocol));
  assert.ok(links.every((protocol) => protocol === 'https:'), links.join());
  assert.ok(!(await admin.page.title()).includes('hacked'));
  await admin.leave();
});

test('permissions that are taken away while a page is open end what it shows', async () => {
  const leaver = await Person.signedIn('leaver', '/images?namespace=blog');
  await leaver.page.getByText('comments').first().waitFor();
  const binding = `${fixture.apiServer}/apis/rbac.authorization.k8s.io/v1/namespaces/blog/rolebindings/leaver-scanner-operator-view`;
  const removed = await leaver.page.request.delete(binding, { headers: { Authorization: `Bearer ${fixture.tokens.root}` } });
  assert.ok(removed.ok(), `${removed.status()} ${await removed.text()}`);
  const phases = ['Scanned', ''];
  let at = 0;
  await leaver.eventually(async () => {
    await leaver.page.getByLabel('Phase').selectOption(phases[at++ % 2]);
    await leaver.settled();
    await leaver.page.waitForTimeout(300);
    return await leaver.page.getByRole('alert').count() > 0;
  }, 30_000);
  assert.match(await leaver.text('[role=alert]'), /may not list imagescans.*blog.*scanner-operator-view/s);
  assert.ok(!(await leaver.text()).includes('comments'), 'what was shown before');
  await leaver.leave();
});

// withExpiry returns a token with another time of its end, signed with the cluster's key.
function withExpiry(token, seconds) {
  const [header, payload] = token.split('.');
  const claims = { ...JSON.parse(Buffer.from(payload, 'base64url')), exp: Math.floor(Date.now() / 1000) + seconds };
  const signed = `${header}.${Buffer.from(JSON.stringify(claims)).toString('base64url')}`;
  return `${signed}.${createSign('SHA256').update(signed).sign({ key: readFileSync(fixture.signingKey), dsaEncoding: 'ieee-p1363' }, 'base64url')}`;
}

test('a token that expires while a page is open leads to the sign-in page', async () => {
  fixture.tokens.expiring = withExpiry(fixture.tokens.brief, 12);
  const brief = await Person.signedIn('expiring', '/images?namespace=blog');
  await brief.page.getByText('comments').first().waitFor();
  await brief.page.waitForTimeout(12_500); // a token ends by the clock of the API server
  await brief.eventually(async () => {
    if (await brief.page.getByRole('heading', { name: 'Your session has ended' }).count() > 0) return true;
    await brief.page.getByLabel('Phase').selectOption((await brief.page.getByLabel('Phase').inputValue()) === '' ? 'Scanned' : '');
    await brief.page.waitForTimeout(300);
    return false;
  }, 40_000);
  assert.ok(!(await brief.text()).includes('comments'), 'what was shown before');
  brief.requests.length = 0;
  await brief.page.waitForTimeout(1500);
  assert.deepEqual(brief.requests, [], 'no retries');
  await brief.signIn('reader');
  await brief.page.getByText('comments').first().waitFor();
  await brief.leave();
});

test('the 17th person behind one address sees everything, as the first does', async () => {
  const people = [];
  for (let i = 0; i < 17; i++) people.push(await Person.signedIn(['member', 'reader', 'keeper', 'administrator'][i % 4]));
  await Promise.all(people.map((person) => person.visit('/vulnerabilities')));
  for (const person of people) {
    assert.equal(await person.page.getByRole('alert').count(), 0);
    assert.match(await person.text('h1'), /Vulnerabilities/);
  }
  for (const person of people) await person.leave();
});

test('a clock of the browser that is a day late makes no difference to ages', async () => {
  const member = await Person.withBrowser();
  await member.page.clock.install({ time: Date.now() - 86_400_000 });
  await member.page.goto(fixture.url);
  await member.signIn('member');
  await member.page.getByRole('link', { name: 'Images', exact: true }).click();
  await member.settled();
  const ages = await member.page.locator('tbody time').allInnerTexts();
  assert.ok(ages.length > 0 && ages.every((age) => /^\d+ (s|min) ago$/.test(age)), ages.join());
  await member.leave();
});

test('copy buttons copy the digest and the link, and paper has neither menus nor buttons', async () => {
  const member = await Person.signedIn('member', '/images?namespace=shop', { permissions: ['clipboard-read', 'clipboard-write'] });
  await member.visit(await addressOf(member, 'shop', 'vulnerable-web'));
  await member.page.getByRole('button', { name: 'Copy the digest' }).click();
  assert.match(await member.page.evaluate(() => navigator.clipboard.readText()), /^sha256:[0-9a-f]{64}$/);
  await member.page.getByRole('button', { name: 'Copy link: this page' }).click();
  assert.equal(await member.page.evaluate(() => navigator.clipboard.readText()), member.page.url());
  await member.page.getByRole('button', { name: /^Copy name: / }).click();
  assert.equal(await member.page.evaluate(() => navigator.clipboard.readText()), 'registry.example.com/shop/vulnerable-web:1.4.2');
  await member.page.emulateMedia({ media: 'print', colorScheme: 'dark' });
  for (const hidden of ['header', '.filters', '.tabs', 'button']) {
    for (const part of await member.page.locator(hidden).all()) assert.ok(!await part.isVisible(), `${hidden} is on paper`);
  }
  assert.ok(await member.page.getByText('CVE-2024-0001').isVisible());
  const [text, back] = await member.page.evaluate(() => [getComputedStyle(document.body).color, getComputedStyle(document.body).backgroundColor]);
  assert.equal(back, 'rgb(255, 255, 255)');
  assert.ok(Number(/\d+/.exec(text)[0]) < 100, `dark text on paper, in dark mode too: ${text}`);
  await member.leave();
});

test('⌘K and Ctrl-K search from a filter, and j and k stay letters there', async () => {
  const member = await Person.signedIn('member', '/images?namespace=shop');
  await member.settled();
  await member.page.getByLabel('Name, digest or workload').fill('');
  await member.page.getByLabel('Name, digest or workload').pressSequentially('jk?/');
  assert.equal(await member.page.getByLabel('Name, digest or workload').inputValue(), 'jk?/');
  for (const key of ['Control+k', 'Meta+k']) {
    await member.page.getByLabel('Name, digest or workload').focus();
    await member.page.keyboard.press(key);
    assert.equal(await member.page.evaluate(() => document.activeElement.name), 'search');
  }
  await member.leave();
});

test('a response that is cut off leaves the page as it was, and says so', async () => {
  const member = await Person.signedIn('member', '/images?namespace=shop');
  const path = await addressOf(member, 'shop', 'vulnerable-web');
  await member.visit(path);
  await member.page.route('**/findings?*', (route) => route.fulfill({ status: 200, contentType: 'application/json', body: '{"items": [' }));
  await member.page.getByLabel('Severity').selectOption('Critical');
  await member.page.getByText('The response of the manager ended too early.').waitFor();
  await member.page.unroute('**/findings?*');
  await member.page.getByRole('button', { name: 'Try again' }).click();
  await member.page.getByRole('link', { name: 'CVE-2024-0001' }).waitFor();
  assert.equal(await member.page.getByRole('alert').count(), 0);
  assert.equal(await member.page.locator('.filters').count(), 1, 'filters on the page');
  await member.leave();
});
