// Opens the web UI of the demo, and compares the numbers on its pages with those of the REST API: see test/scenario/webui.go. It also makes the
// screenshots that "make ui-pictures" turns into the pictures of the documents.
import assert from 'node:assert/strict';
import { close, fixture, Person } from './person.mjs';

const { findings, coverage, actions } = fixture.overview;

async function compare(person) {
  await person.visit('/');
  const landing = await person.text();
  assert.ok(actions.length > 0, 'the demo ends with something to update');
  assert.ok(landing.includes(`${findings.critical} Critical · ${findings.high} High`), landing);
  assert.match(landing, new RegExp(`Images with a result\\s+${coverage.scanned}\\b`));
  assert.ok(landing.includes(actions[0].actions[0].package), landing);
  await person.visit(`/images?namespace=${fixture.namespace}`);
  const { total } = await (await person.page.request.get(`${fixture.url}/api/v1/namespaces/${fixture.namespace}/imagescans`)).json();
  assert.ok(total >= coverage.scanned, 'images whose pods have ended are kept for a while');
  assert.equal(await person.page.getByRole('row').count() - 1, total, 'a row for each image');
}

// A vulnerability in two packages of one container. Not every engine finds it.
async function countContainers(person) {
  const id = 'CVE-2023-4911';
  const { items } = await (await person.page.request.get(`${fixture.url}/api/v1/vulnerabilities/${id}/workloads?namespace=${fixture.namespace}`)).json();
  if (items.length === 0) return;
  await person.visit(`/vulnerabilities/${id}`);
  const containers = new Set(items.map((w) => `${w.kind}/${w.name}/${w.container}`)).size;
  assert.match(await person.text('.answer'), new RegExp(`^${containers} containers? runs? it in `));
}

async function photograph(person, look) {
  const show = async (name, path) => {
    await person.visit(path);
    await person.page.screenshot({ path: `${fixture.output}/ui-${name}-${look}.png`, fullPage: true });
  };
  const links = (selector) => person.page.locator(selector).evaluateAll((found) => found.map((a) => a.getAttribute('href')));
  await show('actions', '/');
  // A vulnerability that is in one package only.
  const ids = await links('main a[href*="/vulnerabilities/"]');
  await show('vulnerability', ids.find((id) => ids.indexOf(id) === ids.lastIndexOf(id)));
  await show('images', `/images?namespace=${fixture.namespace}`);
  const [running] = await links('main tr:has-text("Deployment/web") a.row');
  await show('image', running);
}

try {
  for (const look of ['light', 'dark']) {
    const person = await Person.signedIn('viewer', '/', { colorScheme: look });
    await compare(person);
    await countContainers(person);
    await photograph(person, look);
    await person.leave();
  }
  console.log(`${findings.critical} Critical, ${findings.high} High, ${coverage.scanned} images: as the Scanner has them`);
} finally {
  await close();
}
