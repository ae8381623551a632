// The namespaces, for people who look after several.
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { Person, close, fixture } from '../person.mjs';

after(close);

test('an administrator sees which namespaces have most to act on, and which are not scanned', async () => {
  const admin = await Person.signedIn('administrator', '/coverage');
  await admin.settled();
  await admin.page.getByRole('link', { name: 'Namespaces' }).click();
  await admin.page.getByRole('heading', { name: 'Namespaces' }).waitFor();
  await admin.settled();
  const rows = await admin.page.getByRole('table', { name: /Namespaces/ }).locator('tbody tr').allInnerTexts();
  assert.match(rows[0], /shop[\s\S]*1[\s\S]*Critical[\s\S]*4 scanned[\s\S]*1 image pending, 1 image failed[\s\S]*Scanner default/);
  assert.match(rows[1], /infra[\s\S]*Critical[\s\S]*2 scanned/);
  assert.ok(rows.some((row) => /kube-public[\s\S]*not scanned/.test(row)), rows.join('\n'));
  const { items: [scanner] } = await (await admin.page.request.get(`${fixture.url}/api/v1/scanners?namespace=shop`)).json();
  assert.match(rows[0], new RegExp(`${scanner.findings.critical}\\s+Critical\\s+${scanner.findings.high}\\s+High`), 'the numbers of the Scanner');
  assert.match(await admin.page.getByRole('table', { name: 'ClusterScanners' }).innerText(), /platform[\s\S]*3 with their own Scanner, 1 excluded/);
  await admin.page.getByRole('link', { name: 'shop', exact: true }).click();
  await admin.page.getByRole('heading', { name: 'Actions in shop' }).waitFor();
  await admin.leave();
});

test('a member sees only the namespace that it may see', async () => {
  const member = await Person.signedIn('member', '/namespaces');
  await member.settled();
  assert.deepEqual((await member.page.locator('tbody tr').allInnerTexts()).map((row) => row.split(/\s/)[0]), ['shop']);
  assert.match(await member.text(), /Namespaces that are not scanned are left out/);
  await member.leave();
});
