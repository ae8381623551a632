// Keeps pages of the web UI open while the manager's replicas are replaced: see test/scenario/webui.go. It prints a line once they are open. When
// its input ends, the replicas are replaced, and an image runs that did not before. The pages must show that, have never been loaded again, and never
// have shown an error.
import assert from 'node:assert/strict';
import { close, fixture, Person } from './person.mjs';

// opened returns somebody who keeps a page open. What it shows of errors, of signing in, and as the manager's version, is in window.seen.
async function opened(path, options) {
  const person = await Person.signedIn('viewer', path, options);
  await person.settled();
  await person.page.locator('.fresh.live').waitFor();
  await person.page.evaluate(() => {
    window.seen = { errors: [], versions: [] };
    const add = (list, text) => { if (text && list.at(-1) !== text) list.push(text); };
    const record = () => {
      document.querySelectorAll('[role=alert], .signin h1, .fresh.lost').forEach((e) => add(window.seen.errors, e.textContent));
      add(window.seen.versions, document.evaluate("//dt[.='Manager']/following-sibling::dd", document).iterateNext()?.textContent);
    };
    new MutationObserver(record).observe(document, { subtree: true, childList: true, characterData: true, attributes: true });
    record();
  });
  return person;
}

// leave returns what the page has shown since it was opened: nothing of that is left if it was loaded again.
async function leave(person) {
  const seen = await person.page.evaluate(() => window.seen);
  assert.ok(seen, 'the page was loaded again');
  assert.deepEqual(seen.errors, [], 'errors on the page');
  await person.leave();
  return seen;
}

try {
  const images = await opened(`/images?namespace=${fixture.namespace}`);
  const operator = await opened('/operator');
  console.log('open');
  const image = images.page.locator('tbody tr', { hasText: fixture.image });
  assert.equal(await image.count(), 0);
  for await (const _ of process.stdin);
  await image.waitFor();
  const replicas = async () => (await operator.json('/api/v1/operator')).replicas.map((r) => r.name);
  const shown = () => operator.page.getByRole('table', { name: 'Replicas' }).locator('tbody td:first-child').allInnerTexts();
  await operator.eventually(async () => (await shown()).join() === (await replicas()).join(), 60_000);
  await leave(images);
  const { versions } = await leave(operator);
  assert.ok(versions.some((v) => v !== versions[0]) && versions.at(-1) === versions[0], `versions that the page has shown: ${versions}`);
} finally {
  await close();
}
