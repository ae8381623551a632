// The manager is stopped while a page is open. These journeys are the last.
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { Person, close, fixture } from '../person.mjs';

after(close);

test('a page stays readable while the manager does not answer, says how old it is, and recovers', async () => {
  const member = await Person.signedIn('member', '/images?namespace=shop');
  await member.settled();
  process.kill(fixture.manager, 'SIGSTOP');
  try {
    await member.context.setOffline(true);
    await member.page.getByLabel('Phase').selectOption('Scanned');
    await member.page.getByRole('alert').waitFor();
    assert.match(await member.text('[role=alert]'), /does not answer/);
  } finally {
    process.kill(fixture.manager, 'SIGCONT');
    await member.context.setOffline(false);
  }
  await member.page.getByRole('button', { name: 'Try again' }).click();
  await member.page.locator('tbody tr').first().waitFor();
  assert.equal(await member.page.getByRole('alert').count(), 0);
  member.problems.length = 0; // that the connection failed was wanted
  await member.leave();
});
