// Exceptions: which findings need no action.
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { Person, close } from '../person.mjs';

after(close);

test('a member sees which exceptions apply to shop, and what they suppress', async () => {
  const member = await Person.signedIn('member', '/');
  await member.settled();
  await member.page.getByRole('link', { name: 'Exceptions', exact: true }).click();
  await member.page.getByRole('heading', { name: 'Exceptions in shop' }).waitFor();
  await member.settled();
  assert.match(await member.text('tbody'), /zlib-not-reachable[\s\S]*in force[\s\S]*never ends[\s\S]*\d+[\s\S]*CVE-2024-0002[\s\S]*not_affected[\s\S]*No request reaches the decompression\./);
  assert.match(await member.text(), /ClusterVulnerabilityExceptions are not in this list/);
  await member.page.getByLabel('State').selectOption({ label: 'ended' });
  await member.page.getByText('No exception is ended.').waitFor();
  await member.leave();
});

test('a member sees what an exception would suppress before it exists, and copies its YAML', async () => {
  const member = await Person.signedIn('member', '/vulnerabilities/CVE-2024-0001?namespace=shop');
  await member.settled();
  await member.page.getByRole('link', { name: 'New exception' }).click();
  await member.page.getByRole('heading', { name: 'New exception in shop' }).waitFor();
  await member.settled();
  assert.match(await member.text('.answer'), /It would suppress 1 finding\./);
  assert.match(await member.text('tbody'), /CVE-2024-0001[\s\S]*Critical[\s\S]*openssl[\s\S]*shop\/vulnerable-web/);
  assert.match(await member.text(), /1 image pending, 1 image failed/);
  assert.match(await member.text('.stale'), /Still needed: a reason\./);
  await member.page.getByLabel('Status').selectOption('affected');
  assert.match(await member.text('.stale'), /Still needed: a reason, what is done about it, an end\./);
  await member.page.getByLabel('Reason').fill('Only "admin" reaches it: behind the VPN.');
  await member.page.getByLabel('What is done about it').fill('Update in June.');
  await member.page.getByLabel('Ends on').fill('2030-06-30');
  await member.page.getByLabel('Images').fill('*/shop/vulnerable-web*');
  await member.page.waitForURL(/image=/);
  assert.equal(await member.page.locator('.yaml').textContent(), `apiVersion: scanner-operator.io/v1alpha1
kind: VulnerabilityException
metadata:
  name: "cve-2024-0001"
  namespace: "shop"
spec:
  status: affected
  reason: "Only \\"admin\\" reaches it: behind the VPN."
  action: "Update in June."
  vulnerabilities:
  - "CVE-2024-0001"
  images:
  - "*/shop/vulnerable-web*"
  expirationTime: "2030-06-30T00:00:00Z"
`);
  await member.page.getByLabel('Images').fill('*/other');
  await member.page.getByText('It would suppress nothing that runs now.').waitFor();
  await member.leave();
});
