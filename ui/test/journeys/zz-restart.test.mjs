// The manager is away while a page is open, or starts with another configuration. These journeys are the last.
import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { after, test } from 'node:test';
import { Person, close, fixture } from '../person.mjs';

after(close);

const managerPID = () => Number(readFileSync(`${fixture.work}/manager.pid`, 'utf8'));

test('a page stays readable while the manager does not answer, says how old it is, and recovers', async () => {
  const member = await Person.signedIn('member', '/images?namespace=shop');
  await member.settled();
  process.kill(managerPID(), 'SIGSTOP');
  try {
    await member.context.setOffline(true);
    await member.page.getByLabel('Phase').selectOption('Scanned');
    await member.page.getByRole('alert').waitFor();
    assert.match(await member.text('[role=alert]'), /does not answer/);
  } finally {
    process.kill(managerPID(), 'SIGCONT');
    await member.context.setOffline(false);
  }
  await member.page.getByRole('button', { name: 'Try again' }).click();
  await member.page.locator('tbody tr').first().waitFor();
  assert.equal(await member.page.getByRole('alert').count(), 0);
  member.problems.length = 0; // that the connection failed was wanted
  await member.leave();
});

test('a manager that is killed while a page is open comes back to the same session', async () => {
  const member = await Person.signedIn('member', '/images?namespace=shop');
  await member.settled();
  process.kill(managerPID(), 'SIGKILL');
  await member.page.getByLabel('Phase').selectOption('Scanned');
  await member.page.getByRole('alert').waitFor();
  assert.match(await member.text('[role=alert]'), /No answer\. The manager does not answer/);
  await member.eventually(async () => {
    await member.page.getByRole('button', { name: 'Try again' }).click({ timeout: 1000 }).catch(() => {});
    await member.settled();
    return await member.page.locator('tbody tr').count() > 0;
  }, 60_000);
  assert.equal(await member.page.getByRole('alert').count(), 0);
  assert.equal(await member.page.getByLabel('Token').count(), 0, 'nobody has to sign in again');
  member.problems.length = 0;
  await member.leave();
});

test('below a base path, pages, links, requests and the session stay below it', async () => {
  const before = managerPID();
  writeFileSync(`${fixture.work}/config.yaml`, 'ui: {basePath: /cluster/scanner}\n');
  process.kill(before, 'SIGTERM');
  const person = await Person.withBrowser();
  const base = `${fixture.url}/cluster/scanner`;
  await person.eventually(async () => managerPID() !== before && (await person.page.request.get(`${base}/`).catch(() => undefined))?.status() === 200, 60_000);
  await person.page.goto(`${base}/images?namespace=shop`);
  await person.eventually(async () => {
    await person.page.reload();
    return await person.page.getByLabel('Token').count() > 0;
  }, 60_000);
  person.requests.length = 0;
  await person.signIn('member');
  await person.page.locator('tbody tr').first().waitFor();
  await person.page.getByRole('link', { name: /hostile/ }).click();
  await person.page.getByText('<img src=x onerror=').first().waitFor();
  assert.match(person.page.url(), /\/cluster\/scanner\/namespaces\/shop\/images\//);
  await person.page.getByRole('link', { name: 'CVE-2024-6661' }).click();
  await person.page.getByRole('heading', { name: 'Who runs it' }).waitFor();
  await person.page.reload();
  await person.page.getByRole('heading', { name: 'Who runs it' }).waitFor();
  assert.ok(person.requests.every((r) => /^\w+ \/cluster\/scanner\//.test(r)), person.requests.join('\n'));
  const cookies = await person.context.cookies(`${base}/api/v1/session`);
  assert.ok(cookies.length > 0 && cookies.every((c) => c.name.startsWith('__Secure-') && c.path.startsWith('/cluster/scanner') && c.httpOnly && c.secure));
  assert.equal((await person.page.request.get(`${base}/nothing.js`)).status(), 404);
  await person.page.locator('.menu summary').click();
  await person.page.getByRole('button', { name: 'Sign out' }).click();
  await person.page.getByRole('heading', { name: 'Sign in' }).waitFor();
  person.problems.length = 0; // the manager was away at first
  await person.leave();
});
