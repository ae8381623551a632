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
