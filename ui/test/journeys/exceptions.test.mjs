// Exceptions: which findings need no action.
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { Person, close, fixture } from '../person.mjs';

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
  assert.match(await member.text('.stale'), /Still needed: a status, a reason\./);
  await member.page.getByLabel('Status').selectOption('not_affected');
  assert.match(await member.text('.stale'), /Still needed: a justification, a reason\./, 'nothing is preselected');
  await member.page.getByLabel('Status').selectOption('affected');
  assert.match(await member.text('.stale'), /Still needed: a reason, what is done about it, an end\./);
  await member.page.getByLabel('Reason').fill('Only "admin" reaches it: behind the VPN.');
  await member.page.getByLabel('What is done about it').fill('Update in June.');
  await member.page.getByLabel('Ends after the day').fill('2020-06-30');
  assert.match(await member.text('.stale'), /an end that is not over/);
  await member.page.getByLabel('Ends after the day').fill('2030-06-30');
  assert.match(await member.text('main'), /It ends 30 Jun 2030, 23:59 UTC, which is 2030-06-30T23:59:59Z in UTC/);
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
  expirationTime: "2030-06-30T23:59:59Z"
`);
  await member.page.getByLabel('Images').fill('*/other');
  await member.page.getByText('It would suppress nothing that runs now.').waitFor();
  await member.leave();
});

test('an exception ends with the day of the person who decides, whose zone is shown', async () => {
  const member = await Person.signedIn('member', '/exceptions?new=true&namespace=shop&vulnerability=CVE-2024-0001', { timezoneId: 'America/New_York' });
  await member.settled();
  await member.page.getByLabel('Status').selectOption('fixed');
  await member.page.getByLabel('Reason').fill('Patched.');
  await member.page.getByLabel('Ends after the day, America/New_York').fill('2030-03-10'); // the clocks change on this day
  assert.match(await member.text('.yaml'), /expirationTime: "2030-03-11T03:59:59Z"/);
  await member.page.screenshot({ path: `${fixture.output}/exception-filled-light.png`, fullPage: true });
  await member.page.emulateMedia({ colorScheme: 'dark' });
  await member.page.screenshot({ path: `${fixture.output}/exception-filled-dark.png`, fullPage: true });
  await member.leave();
});
