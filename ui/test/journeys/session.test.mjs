// Signing in and out, and what happens to a page when permissions or the session end.
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { request } from 'playwright-core';
import { Person, close, fixture } from '../person.mjs';

after(close);

test('somebody without a token sees how to get one, and a wrong token is refused in words', async () => {
  const person = await Person.withBrowser();
  await person.page.goto(`${fixture.url}/images?namespace=shop`);
  await person.page.getByRole('heading', { name: 'Sign in' }).waitFor();
  assert.match(await person.text(), /kubectl create token viewer --namespace shop/);
  await person.page.getByLabel('Token').fill('forged');
  await person.page.getByRole('button', { name: 'Sign in' }).click();
  await person.page.getByRole('alert').waitFor();
  assert.match(await person.text('[role=alert]'), /does not accept the token/);
  await person.signIn('member');
  await person.settled();
  assert.equal(new URL(person.page.url()).pathname + new URL(person.page.url()).search, '/images?namespace=shop', 'the page that was asked for');
  await person.leave();
});

test('the token is neither in the page nor in its storage nor in an address', async () => {
  const member = await Person.signedIn('member');
  await member.settled();
  const token = fixture.tokens.member;
  const found = await member.page.evaluate((secret) => [
    document.documentElement.outerHTML.includes(secret), JSON.stringify({ ...localStorage, ...sessionStorage }).includes(secret), document.cookie !== '', location.href.includes(secret),
  ], token);
  assert.deepEqual(found, [false, false, false, false]);
  assert.ok(!member.requests.some((r) => r.includes(token)));
  const cookies = await member.context.cookies();
  assert.ok(cookies.length > 0 && cookies.every((c) => c.httpOnly && c.secure && c.sameSite === 'Strict' && c.name.startsWith('__Host-') && !c.value.includes(token)));
  await member.leave();
});

// codeOf returns a code as `kubectl scanner ui` gets it.
async function codeOf(user) {
  const api = await request.newContext({ ignoreHTTPSErrors: true });
  const response = await api.post(`${fixture.url}/api/v1/session/code`, { headers: { Authorization: `Bearer ${fixture.tokens[user]}` } });
  assert.equal(response.status(), 200);
  const { code, path } = await response.json();
  assert.equal(path, '/');
  await api.dispose();
  return code;
}

test('the link of kubectl scanner ui signs in once, and leaves neither code nor token in an address', async () => {
  const code = await codeOf('member');
  const link = `${fixture.url}/images?namespace=shop#code=${code}`;
  const member = await Person.withBrowser();
  await member.page.goto(link);
  await member.page.locator('header').waitFor();
  await member.settled();
  assert.equal(member.page.url(), `${fixture.url}/images?namespace=shop`);
  await member.page.locator('.menu summary').click();
  assert.match(await member.text('.menu'), /member/);
  assert.ok(!member.requests.some((r) => r.includes(code)), member.requests.join());
  const kept = await member.page.evaluate((secret) => JSON.stringify({ ...localStorage, ...sessionStorage }).includes(secret), code);
  assert.equal(kept, false);
  await member.page.reload();
  await member.settled();
  await member.page.goBack();
  assert.equal(member.page.url(), 'about:blank', 'the history has no address with the code');
  await member.leave();

  const other = await Person.withBrowser();
  await other.page.goto(link);
  await other.page.getByRole('alert').waitFor();
  assert.match(await other.text('[role=alert]'), /was used before, or is older than 60 seconds: run kubectl scanner ui again/);
  assert.equal(other.page.url(), `${fixture.url}/images?namespace=shop`);
  // A new link that is pasted over the same address signs in as well.
  await other.page.goto(`${fixture.url}/images?namespace=shop#code=${await codeOf('member')}`);
  await other.page.locator('header').waitFor();
  assert.equal(other.page.url(), `${fixture.url}/images?namespace=shop`);
  await other.leave();
});

test('the link of somebody else does not replace a session', async () => {
  const member = await Person.signedIn('member');
  await member.settled();
  await member.page.goto('about:blank');
  await member.page.goto(`${fixture.url}/#code=${await codeOf('administrator')}`);
  await member.settled();
  assert.equal(member.page.url(), `${fixture.url}/`);
  await member.page.locator('.menu summary').click();
  assert.match(await member.text('.menu'), /member/);
  await member.leave();
});

test('a first visit needs at most 4 requests, and no request is sent twice', async () => {
  const person = await Person.signedIn('member');
  await person.settled();
  person.requests.length = 0;
  await person.visit('/');
  assert.ok(person.requests.length <= 4, `requests: ${person.requests.join(', ')}`);
  assert.equal(new Set(person.requests).size, person.requests.length, `requests: ${person.requests.join(', ')}`);
  await person.leave();
});

test('a session that ends while a page is open leads to one sign-in page, without retries, and back to the page', async () => {
  const member = await Person.signedIn('member', '/images?namespace=shop');
  await member.settled();
  await member.context.clearCookies();
  member.requests.length = 0;
  await member.page.getByRole('link', { name: 'Coverage', exact: true }).click();
  await member.page.getByRole('heading', { name: 'Your session has ended' }).waitFor();
  await member.page.waitForTimeout(1500);
  assert.equal(member.requests.length, 1, `requests: ${member.requests.join(', ')}`);
  await member.signIn('member');
  await member.page.getByRole('heading', { name: 'Coverage' }).waitFor();
  await member.leave();
});

test('signing out deletes the session, or says that it did not', async () => {
  const member = await Person.signedIn('member');
  await member.settled();
  await member.page.locator('.menu summary').click();
  await member.page.route('**/api/v1/session', (route) => route.abort());
  await member.page.getByRole('button', { name: 'Sign out' }).click();
  await member.page.locator('.menu [role=alert]', { hasText: 'The manager does not answer.' }).waitFor();
  await member.page.unroute('**/api/v1/session');
  member.problems.length = 0; // that a request failed was wanted
  await member.page.getByRole('button', { name: 'Sign out' }).click();
  await member.page.getByRole('heading', { name: 'Sign in' }).waitFor();
  assert.deepEqual(await member.context.cookies(), []);
  await member.leave();
});

test('somebody without permissions is told which role to ask for', async () => {
  const nobody = await Person.signedIn('nobody', '/images');
  await nobody.settled();
  assert.match(await nobody.text(), /scanner-operator-view/);
  await nobody.visit('/images?namespace=shop');
  assert.match(await nobody.text('[role=alert]'), /may not list imagescans.*shop.*scanner-operator-view/s);
  await nobody.visit('/vulnerabilities/CVE-2024-0001');
  assert.match(await nobody.text('[role=alert]'), /may not list imagescans/);
  await nobody.leave();
});

test('behind a proxy that sends the token, nobody has to sign in', async () => {
  const person = await Person.withBrowser({ extraHTTPHeaders: { Authorization: `Bearer ${fixture.tokens.member}` } });
  await person.visit('/');
  await person.page.locator('.menu summary').click();
  assert.match(await person.text('.menu'), /member/);
  assert.equal(await person.page.getByRole('button', { name: 'Sign out' }).count(), 0);
  await person.leave();
});

test('a page of another origin can neither sign in nor read anything', async () => {
  const member = await Person.signedIn('member');
  await member.settled();
  const violations = member.problems;
  const url = fixture.url.replace('localhost', '127.0.0.1'); // the same program, and another origin
  const got = await member.page.evaluate(async (to) => {
    const attempts = [fetch(`${to}/api/v1/session`, { method: 'POST', body: '{}', mode: 'no-cors' }), fetch(`${to}/api/v1/scanners`, { credentials: 'include' })];
    return (await Promise.allSettled(attempts)).map((a) => a.status);
  }, url);
  assert.deepEqual(got, ['rejected', 'rejected'], "the UI's own policy does not let it connect to another origin");
  await member.page.waitForTimeout(200);
  assert.ok(violations.filter((v) => v.startsWith('policy violation: connect-src')).length === 2, violations.join());
  violations.length = 0;
  await member.leave();
});
