// One workload: what it runs, and what of it is not scanned.
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { Person, close } from '../person.mjs';

after(close);

test('a member opens a workload from who runs a vulnerability', async () => {
  const member = await Person.signedIn('member', '/vulnerabilities/CVE-2024-0001');
  await member.settled();
  await member.page.getByRole('link', { name: 'Pod/vulnerable-web' }).click();
  await member.page.getByRole('heading', { name: 'Pod/vulnerable-web' }).waitFor();
  await member.settled();
  const [images, findings] = await member.page.locator('tbody').allInnerTexts();
  assert.match(images, /shop\/vulnerable-web:1\.4\.2[\s\S]*main[\s\S]*Scanned/);
  assert.match(findings, /CVE-2024-0001[\s\S]*Critical[\s\S]*openssl[\s\S]*3\.0\.1[\s\S]*CVE-2024-0002 suppressed/);
  assert.match(await member.text('.answer.bad'), /Exceptions suppress 1 finding/);
  await member.leave();
});

test('a workload is not green while an image of it has no result', async () => {
  const member = await Person.signedIn('member', '/namespaces/shop/workloads/Pod/slow-import');
  await member.settled();
  assert.match(await member.text('.answer.warn'), /No finding is known\.[\s\S]*Not covered: 1 image pending/);
  assert.match(await member.page.locator('.answer.warn').getByRole('link', { name: 'Coverage' }).getAttribute('href'), /coverage\?namespace=/);
  await member.visit('/namespaces/shop/workloads/Pod/frontend');
  assert.match(await member.text('.answer.good'), /No finding\./);
  await member.visit('/namespaces/shop/workloads/Deployment/nothing');
  assert.match(await member.text('[role=alert]'), /no scanner has an image of Deployment "nothing"/);
  await member.visit('/namespaces/blog/workloads/Pod/web');
  assert.match(await member.text('[role=alert]'), /may not list imagescans/);
  await member.leave();
});

test('a member finds a workload among all of the namespace, with the numbers of its page', async () => {
  const member = await Person.signedIn('member');
  await member.settled();
  await member.page.getByRole('link', { name: 'Workloads' }).click();
  await member.page.getByRole('heading', { name: 'Workloads in shop' }).waitFor();
  await member.settled();
  const rows = await member.page.locator('tbody tr').allInnerTexts();
  assert.equal(rows.length, 6);
  assert.match(rows[0], /Pod\/hostile[\s\S]*known exploited[\s\S]*1 Critical/);
  assert.match(rows.find((r) => r.includes('slow-import')), /no result yet[\s\S]*1 image pending/);
  assert.match(rows.find((r) => r.includes('frontend')), /none/);
  assert.ok(!(await member.text('table')).includes('dns'), 'a namespace that the member may not see');
  await member.page.getByRole('searchbox', { name: 'Name' }).fill('API');
  await member.page.waitForURL(/text=API/);
  await member.settled();
  assert.equal(await member.page.locator('tbody tr').count(), 1);
  const counts = await member.text('tbody .counts');
  await member.page.getByRole('link', { name: 'Pod/riddled-api' }).click();
  await member.page.getByRole('heading', { name: 'Pod/riddled-api' }).waitFor();
  await member.settled();
  assert.equal(await member.text('.answer .counts'), counts);
  await member.page.goBack();
  await member.page.getByRole('searchbox', { name: 'Name' }).fill('nothing');
  await member.page.getByText('No workload has this text in its name.').waitFor();
  await member.leave();
});

test('a member sees what has changed in shop', async () => {
  const member = await Person.signedIn('member');
  await member.settled();
  await member.page.getByRole('link', { name: 'Changes' }).click();
  await member.page.getByRole('heading', { name: 'Changes in shop' }).waitFor();
  await member.settled();
  const text = await member.text();
  assert.match(text, /\d+ new · 0 with a fix now · 0 fixed/);
  assert.match(text, /What is fixed is not known yet of 2 repositories/);
  const rows = await member.page.getByRole('table', { name: 'New' }).locator('tbody tr').allInnerTexts();
  assert.equal(rows.length, 25);
  assert.match(rows[0], /CVE-2024-6660[\s\S]*known exploited/);
  assert.match(text, /25 of \d+, the worst first/);
  await member.page.getByLabel('Within').selectOption({ label: '90 days' });
  await member.page.waitForURL(/days=90/);
  await member.settled();
  assert.match(await member.text(), /\d+ new · /);
  await member.leave();
});
