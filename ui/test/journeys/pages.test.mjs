// Every page in every look: axe finds nothing, nothing is cut off, and a person can look at the screenshots.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { after, test } from 'node:test';
import { Person, addressOf, close, fixture } from '../person.mjs';

after(close);
const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

async function pages(person) {
  const image = async (name) => addressOf(person, 'shop', name);
  const [web, listed, basket] = [await image('vulnerable-web'), await addressOf(person, 'depot', 'listed'), await addressOf(person, 'depot', 'evolving')];
  return {
    actions: '/', 'actions-namespace': '/?namespace=shop', 'actions-none': '/?namespace=blog', 'actions-all': '/?all=true',
    vulnerabilities: '/vulnerabilities', 'vulnerabilities-none': '/vulnerabilities?namespace=blog',
    vulnerability: '/vulnerabilities/CVE-2024-0001', 'vulnerability-nobody': '/vulnerabilities/CVE-2020-0000?namespace=blog', 'vulnerability-unsure': '/vulnerabilities/CVE-2020-0000',
    images: '/images', 'images-namespace': '/images?namespace=shop', 'images-none': '/images?namespace=blog&phase=Failed',
    image: web, 'image-many': await addressOf(person, 'depot', 'riddled'), 'image-hostile': await image('hostile'), 'image-failed': await image('failing'),
    'image-downloads': `${web}?tab=downloads`, 'image-changes': `${web}?tab=changes`, 'image-gone': `${web}?tab=changes&change=gone`,
    'image-packages': `${listed}?tab=packages`, 'image-compare': `${basket}?tab=compare`, 'image-other': `${web}?tab=other`,
    'image-missing': '/namespaces/shop/images/nothing', 'image-clean': await image('frontend'),
    workloads: '/workloads', 'workloads-namespace': '/workloads?namespace=shop', 'workloads-none': '/workloads?text=nothing', 'workloads-empty': '/workloads?namespace=news',
    workload: '/namespaces/shop/workloads/Pod/riddled-api', 'workload-pending': '/namespaces/shop/workloads/Pod/slow-import',
    'workload-clean': '/namespaces/shop/workloads/Pod/frontend', 'workload-missing': '/namespaces/shop/workloads/Deployment/nothing',
    search: '/search?text=riddled', 'search-none': '/search?text=nothing-1', 'search-unknown': '/search?text=cve%202020%200001', 'vulnerability-unknown': '/vulnerabilities/CVE-2020-0001', 'vulnerability-no-id': '/vulnerabilities/nginx-1', 'coverage-problem': '/coverage?problem=NoReceiver',
    exceptions: '/exceptions', 'exceptions-none': '/exceptions?namespace=blog',
    'exception-new': '/exceptions?new=true&namespace=shop&vulnerability=CVE-2024-0001', 'exception-new-empty': '/exceptions?new=true', 'exception-new-many': '/exceptions?new=true&package=*&namespace=shop',
    changes: '/changes?namespace=shop', 'changes-none': '/changes?namespace=blog', namespaces: '/namespaces', operator: '/operator', clusterscanner: '/clusterscanners/platform', coverage: '/coverage', scanner: '/namespaces/shop/scanners/default', 'scanner-messages': '/namespaces/news/scanners/default',
  };
}

// withErrors are the pages that are also looked at while every request fails: one of each route.
const withErrors = ['actions', 'vulnerabilities', 'vulnerability', 'images-namespace', 'image', 'workload', 'workloads', 'exceptions', 'exception-new', 'changes', 'namespaces', 'operator', 'clusterscanner', 'coverage', 'scanner'];
const refusal = { title: 'Service Unavailable', status: 503, reason: 'Unavailable', detail: 'the data cannot be read at the moment' };

const looks = {
  light: { colorScheme: 'light' }, dark: { colorScheme: 'dark' }, narrow: { colorScheme: 'light', viewport: { width: 360, height: 740 } },
};

for (const [look, options] of Object.entries(looks)) {
  test(`every page is accessible and whole in ${look}`, async (t) => {
    // axe is a script of its own, which the policy would not run.
    const person = await Person.withBrowser({ bypassCSP: true, ...options });
    await person.page.goto(fixture.url);
    await person.page.getByLabel('Token').waitFor();
    await check(person, 'signin', look);
    await person.signIn('administrator');
    await person.settled();
    for (const [name, path] of Object.entries(await pages(person))) {
      await t.test(`${name} (${path})`, async () => {
        await person.visit(path);
        await check(person, name, look);
      });
    }
    const paths = await pages(person);
    assert.deepEqual(person.problems, [], 'errors in the console');
    await person.page.route(/\/api\/v1\/(?!session|events)/, (route) => route.fulfill({ status: 503, contentType: 'application/problem+json', body: JSON.stringify(refusal) }));
    for (const name of withErrors) {
      await t.test(`${name} while requests fail`, async () => {
        await person.visit(paths[name]);
        assert.match(await person.text('main'), /the data cannot be read at the moment/);
        await check(person, `${name}-error`, look);
      });
    }
    person.problems.length = 0; // that requests failed was wanted
    await person.leave();
  });
}

async function check(person, name, look) {
  await person.page.screenshot({ path: `${fixture.output}/${name}-${look}.png`, fullPage: name !== 'image-many' });
  await person.page.evaluate(axe);
  const { violations } = await person.page.evaluate(() => window.axe.run());
  assert.deepEqual(violations.map((v) => `${v.id}: ${v.help}: ${v.nodes.slice(0, 3).map((n) => n.html).join(' ')}`), [], `axe, ${name} in ${look}`);
  const sideways = await person.page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
  assert.ok(sideways <= 0, `${name} in ${look} scrolls sideways by ${sideways} px`);
  const nodes = await person.page.evaluate(() => document.querySelectorAll('*').length);
  assert.ok(nodes <= 1500, `${name} in ${look} has ${nodes} elements, want at most 1500`);
}
