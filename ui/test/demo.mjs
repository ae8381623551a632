// Opens the web UI of the demo, and compares the numbers on its pages with those of the REST API: see test/scenario/webui.go.
import assert from 'node:assert/strict';
import { close, fixture, Person } from './person.mjs';

const { findings, coverage, actions } = fixture.overview;
try {
  const person = await Person.signedIn('viewer');
  await person.visit('/');
  const landing = await person.text();
  assert.ok(actions.length > 0, 'the demo ends with something to update');
  assert.ok(landing.includes(`${findings.critical} Critical · ${findings.high} High`), landing);
  assert.match(landing, new RegExp(`Images with a result\\s+${coverage.scanned}\\b`));
  assert.ok(landing.includes(actions[0].actions[0].package), landing);
  await person.page.screenshot({ path: `${fixture.output}/web-ui.png` });

  await person.visit(`/images?namespace=${fixture.namespace}`);
  assert.equal(await person.page.getByRole('row').count() - 1, coverage.scanned + coverage.notCovered.failed + coverage.notCovered.pending, 'a row for each image');
  await person.leave();
  console.log(`${findings.critical} Critical, ${findings.high} High, ${coverage.scanned} images: as the Scanner has them`);
} finally {
  await close();
}
