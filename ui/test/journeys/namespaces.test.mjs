// The namespaces, for people who look after several.
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { Person, close, fixture } from '../person.mjs';

after(close);

test('an administrator sees which namespaces have most to act on, and which are not scanned', async () => {
  const admin = await Person.signedIn('administrator', '/coverage');
  await admin.settled();
  await admin.page.getByRole('link', { name: 'Namespaces', exact: true }).click();
  await admin.page.getByRole('heading', { name: 'Namespaces' }).waitFor();
  await admin.settled();
  const rows = await admin.page.getByRole('table', { name: /Namespaces/ }).locator('tbody tr').allInnerTexts();
  const names = rows.map((row) => row.split(/\s/)[0]);
  assert.deepEqual(names.slice(0, 3), ['depot', 'shop', 'infra'], 'the most to act on first');
  const shop = rows[names.indexOf('shop')];
  assert.match(shop, /shop[\s\S]*1[\s\S]*Critical[\s\S]*4 scanned[\s\S]*1 image pending, 1 image failed[\s\S]*Scanner default/);
  assert.ok(rows.some((row) => /kube-public[\s\S]*not scanned/.test(row)), rows.join('\n'));
  assert.match(rows[names.indexOf('blog')], /blog\s+0\s+none\s+0/);
  assert.match(rows[names.indexOf('news')], /news\s+–\s+no result yet\s+–/, 'nothing is known where no image has a result');
  const { items: [scanner] } = await (await admin.page.request.get(`${fixture.url}/api/v1/scanners?namespace=shop`)).json();
  assert.match(shop, new RegExp(`${scanner.findings.critical}\\s+Critical\\s+${scanner.findings.high}\\s+High`), 'the numbers of the Scanner');
  assert.match(await admin.page.getByRole('table', { name: 'ClusterScanners' }).innerText(), /platform[\s\S]*\d with their own Scanner, 1 excluded/);
  await admin.page.getByRole('link', { name: 'shop', exact: true }).click();
  await admin.page.getByRole('heading', { name: 'Actions in shop' }).waitFor();
  await admin.leave();
});

test('a member sees only the namespace that it may see', async () => {
  const member = await Person.signedIn('member', '/namespaces');
  await member.settled();
  assert.deepEqual((await member.page.locator('tbody tr').allInnerTexts()).map((row) => row.split(/\s/)[0]), ['shop']);
  assert.match(await member.text(), /Namespaces that are not scanned are left out/);
  await member.visit('/namespaces?scanned=false');
  assert.doesNotMatch(await member.text(), /Every namespace is scanned/);
  await member.leave();
});

test('an administrator sees whether the operator is well, and a member does not', async () => {
  const admin = await Person.signedIn('administrator');
  await admin.settled();
  await admin.page.getByRole('link', { name: 'Operator', exact: true }).click();
  await admin.page.getByRole('heading', { name: 'Operator' }).waitFor();
  await admin.settled();
  const text = await admin.text();
  assert.match(text, /15 images: 13 scanned · 1 pending · 1 failed/);
  assert.match(text, /6 scanners, no image waits to be matched/);
  assert.match(text, /grype\s+unknown/, 'the data of the tests has no time');
  assert.match(text, /Database\s+SQLite\s+Size\s+[\d.]+ (kB|MB)\s+Schema\s+\d+\s+Revision\s+[\d,]+\s+Manager/);
  await admin.leave();
  const member = await Person.signedIn('member', '/operator');
  await member.settled();
  assert.match(await member.text('[role=alert]'), /may not list scanners\.scanner-operator\.io in all namespaces/);
  assert.equal(await member.page.getByRole('link', { name: 'Operator', exact: true }).count(), 0);
  await member.leave();
});
