// Finding out what is wrong and what to do.
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { Person, close, fixture, withHealth } from '../person.mjs';

after(close);

test('a member of shop opens the link of a message and sees who runs the vulnerability', async () => {
  const member = await Person.signedIn('member', '/vulnerabilities/CVE-2024-0001');
  await member.settled();
  assert.match(await member.text('.answer'), /1 container runs it in 1 namespace/);
  assert.match(await member.text('table'), /vulnerable-web[\s\S]*registry\.example\.com\/shop\/vulnerable-web:1\.4\.2[\s\S]*openssl[\s\S]*3\.0\.1[\s\S]*Critical/);
  assert.ok(!(await member.text()).includes('infra'), 'a namespace that the member may not see');
  await member.leave();
});

test('nobody runs it is said only where every image has a complete result', async () => {
  const admin = await Person.signedIn('administrator', '/vulnerabilities/CVE-2020-0000?namespace=blog');
  await admin.settled();
  assert.match(await admin.text('.answer.good'), /Nobody runs it in blog\.[\s\S]*2 images were asked; 0 pending, 0 failed, 0 not covered/);
  await admin.visit('/vulnerabilities/CVE-2020-0000?namespace=shop');
  assert.match(await admin.text('.answer.warn'), /Nobody is known to run it in shop[\s\S]*4 images have results[\s\S]*1 image pending, 1 image failed/);
  await admin.visit('/vulnerabilities/CVE-2020-0000');
  assert.match(await admin.text('.answer.warn'), /Nobody is known to run it in all namespaces that are scanned/);
  assert.equal(await admin.page.locator('.answer.good').count(), 0);
  await admin.visit('/vulnerabilities/CVE-2020-0001?namespace=blog');
  assert.match(await admin.text('.answer.warn'), /CVE-2020-0001 is not known in the vulnerability data/);
  // The engine of a namespace may not say which ids its data have.
  await admin.page.route('**/api/v1/vulnerabilities/CVE-2020-0002/workloads?**', async (route) => {
    const response = await route.fetch();
    await route.fulfill({ response, json: { ...await response.json(), known: 'NotChecked' } });
  });
  await admin.visit('/vulnerabilities/CVE-2020-0002?namespace=blog');
  assert.match(await admin.text('.answer.warn'), /Nobody is known to run it in blog\.[\s\S]*The engine does not say whether its vulnerability data have this id/);
  assert.equal(await admin.page.locator('.answer.good').count(), 0);
  await admin.leave();
});

test('the landing page says what to update, in which repository, and what it ends', async () => {
  const member = await Person.signedIn('member');
  await member.settled();
  const rows = await member.page.locator('tbody tr').allInnerTexts();
  assert.match(rows[0], /<img src=x onerror=[\s\S]*shop\/hostile[\s\S]*known exploited[\s\S]*1 Critical[\s\S]*CVE-2024-6660/);
  assert.match(await member.text('.answer'), /There may be more\. Not covered: 1 image pending, 1 image failed/);
  const riddled = rows.filter((r) => r.includes('shop/riddled-api'));
  assert.equal(riddled.length, 3, 'a repository with many updates leaves room for others');
  assert.match(riddled[2], /and \d+ less urgent updates of this repository/);
  await member.page.getByRole('link', { name: 'All actions in 3 repositories' }).click();
  await member.page.getByRole('heading', { name: 'All actions' }).waitFor();
  await member.settled();
  const all = await member.page.locator('tbody tr').allInnerTexts();
  assert.ok(all.some((r) => /openssl\s+3\.0\.0 to 3\.0\.1[\s\S]*shop\/vulnerable-web[\s\S]*Pod\/vulnerable-web[\s\S]*1 Critical[\s\S]*CVE-2024-0001/.test(r)), all.join('\n'));
  assert.ok(!all.some((r) => r.includes('zlib')), 'what an exception suppresses needs no action');
  assert.ok(all.length > rows.length, 'all actions of a repository');
  await member.page.getByRole('link', { name: /shop\/vulnerable-web/ }).click();
  await member.page.waitForURL(/\/images\?namespace=shop&text=registry/);
  await member.settled();
  assert.equal(await member.page.locator('tbody tr').count(), 1);
  await member.leave();
});

test('the landing page says how many findings there were to act on before', async () => {
  const admin = await Person.signedIn('administrator', '/?namespace=shop');
  await admin.settled();
  const { history } = await (await admin.page.request.get(`${fixture.url}/api/v1/overview?namespace=shop`)).json();
  const date = (day) => new Date(day).toLocaleDateString('en-GB', { day: 'numeric', month: 'long', timeZone: 'UTC' });
  const trend = await admin.text('.trend');
  assert.ok(trend.includes(`, ${history[0].toActOn} on ${date(history[0].day)}`) && trend.includes(`To act on: ${history.at(-1).toActOn} `), trend);
  // The days without a record are a gap and not zeros.
  const path = await admin.page.locator('.trend path').getAttribute('d');
  assert.equal(path.match(/M/g).length, 1 + history.filter((d, i) => i > 0 && Date.parse(d.day) - Date.parse(history[i - 1].day) > 86_400_000).length, path);
  assert.ok(path.match(/M/g).length > 1, path);
  await admin.visit('/?namespace=blog');
  assert.equal(await admin.page.locator('.trend').count(), 0, 'fewer than two days');
  await admin.leave();
});

test('the numbers on the page are those of the API', async () => {
  const admin = await Person.signedIn('administrator', '/?namespace=shop');
  await admin.settled();
  const { items: [scanner] } = await (await admin.page.request.get(`${fixture.url}/api/v1/scanners?namespace=shop`)).json();
  const text = await admin.text('.answer');
  const { findings } = scanner;
  assert.ok(text.includes(`${findings.knownExploited} known exploited · ${findings.critical} Critical · ${findings.high} High`), text);
  assert.equal(await admin.page.locator('.answer.good').count(), 0, 'not green while something is pending or failed');
  await withHealth(admin, {});
  await admin.visit('/?namespace=blog');
  assert.match(await admin.text('.answer.good'), /Nothing to update in blog/);
  await admin.visit('/coverage?namespace=shop');
  const { images } = scanner;
  assert.ok((await admin.text('.card')).includes(`${images.total} images: ${images.scanned} scanned · ${images.pending} pending · ${images.failed} failed`));
  await admin.leave();
});

test('the landing page is not green while urgent findings have no fix', async () => {
  const admin = await Person.signedIn('administrator', '/?namespace=blog');
  let counts = { critical: 2, knownExploited: 1 };
  await admin.page.route('**/api/v1/overview?*', async (route) => {
    const response = await route.fetch(), overview = await response.json();
    await route.fulfill({ response, json: { ...overview, findings: { ...overview.findings, ...counts }, health: { scanners: [], unscannedNamespaces: 0 } } });
  });
  await admin.visit('/?namespace=blog');
  assert.match(await admin.text('.answer.warn'), /Nothing to update in blog\.[\s\S]*There is no fix yet: 1 known exploited · 2 Critical · 0 High\./);
  assert.equal(await admin.page.locator('.answer.good').count(), 0);
  counts = { medium: 3, fixable: 3 };
  await admin.visit('/?namespace=blog');
  assert.match(await admin.text('.answer'), /Updates would end 3 findings, none of them known exploited, Critical or High\./);
  await admin.leave();
});

test('conditions that are only there while something is wrong are not hidden', async () => {
  const admin = await Person.signedIn('administrator', '/coverage');
  await admin.page.route('**/api/v1/clusterscanners?*', async (route) => {
    const response = await route.fetch(), list = await response.json();
    for (const type of ['Overlap', 'NamespacesNotWatched', 'NamespacesUnknown', 'Stalled', 'Reconciling']) {
      list.items[0].conditions.push({ type, status: 'True', reason: type, message: `message of ${type}`, lastTransitionTime: new Date().toISOString() });
    }
    await route.fulfill({ response, json: list });
  });
  await admin.visit('/coverage');
  const notices = (await admin.page.locator('.card .notice.warn').allInnerTexts()).join('\n');
  for (const type of ['Overlap', 'NamespacesNotWatched', 'NamespacesUnknown', 'Stalled']) assert.ok(notices.includes(`message of ${type}`), `${type} in ${notices}`);
  assert.ok(!notices.includes('Reconciling'), notices);
  await admin.leave();
});

test('a text filter keeps the spaces that are typed, and says how many images it leaves out', async () => {
  const member = await Person.signedIn('member', '/images?namespace=shop');
  await member.settled();
  const all = /^(\d+) images$/.exec(await member.text('.pages'))[1];
  await member.page.getByLabel('Name, digest or workload').pressSequentially('vulnerable-web ');
  await member.page.waitForURL(/text=vulnerable-web/);
  await member.page.getByText(`1 of ${all} images`).waitFor();
  assert.equal(await member.page.getByLabel('Name, digest or workload').inputValue(), 'vulnerable-web ');
  await member.leave();
});

test('vulnerabilities are listed worst first, and a filter with nothing in it is not an all-clear', async () => {
  const admin = await Person.signedIn('administrator', '/vulnerabilities');
  await admin.settled();
  const first = await admin.page.locator('tbody tr').first().innerText();
  assert.match(first, /CVE-2024-6660[\s\S]*known exploited[\s\S]*Critical/);
  assert.match(await admin.text('.notice.warn'), /Not covered: 1 image pending, 1 image failed/);
  await admin.page.getByLabel('Exploited').selectOption({ label: 'known' });
  await admin.page.waitForURL(/knownExploited=true/);
  await admin.page.getByText('2 vulnerabilities', { exact: true }).waitFor();
  await admin.page.getByLabel('Id').fill('CVE-1999');
  await admin.page.getByText('No vulnerability passes these filters.').waitFor();
  assert.match(await admin.text('.notice.warn'), /Not covered: 1 image pending, 1 image failed/, 'what the filters could not ask');
  assert.equal(await admin.page.locator('.answer.good').count(), 0);
  await admin.visit('/vulnerabilities?namespace=blog');
  assert.match(await admin.text('.answer.good'), /No image that runs has a known vulnerability in blog\.[\s\S]*2 images were asked/);
  await admin.visit('/vulnerabilities?namespace=shop');
  await admin.page.getByRole('link', { name: 'CVE-2024-0001' }).click();
  await admin.page.getByRole('heading', { name: 'Who runs it' }).waitFor();
  assert.match(await admin.text(), /1 container runs it in shop/);
  await admin.leave();
});

test('failed images come first, with the reason', async () => {
  const member = await Person.signedIn('member', '/images');
  await member.settled();
  assert.match(await member.page.locator('tbody tr').first().innerText(), /failing-job[\s\S]*Failed[\s\S]*ImageNotFound/);
  await member.page.getByLabel('Phase').selectOption('Scanned');
  await member.page.waitForURL(/phase=Scanned/);
  await member.settled();
  assert.ok(!(await member.text('tbody')).includes('failing-job'));
  await member.leave();
});

test('filters of findings are in the address, and Back undoes them', async () => {
  const member = await Person.signedIn('member', '/images?namespace=shop');
  await member.settled();
  await member.page.getByRole('link', { name: /riddled-api/ }).click();
  await member.page.getByText('of 200 findings').waitFor();
  await member.page.getByRole('link', { name: 'Next page' }).click();
  await member.page.waitForURL(/continue=/);
  await member.page.goBack();
  await member.page.getByLabel('Severity').selectOption('Critical');
  await member.page.waitForURL(/minSeverity=Critical/);
  await member.page.getByText('34 findings', { exact: true }).waitFor();
  await member.page.getByLabel('Vulnerability, package or text').fill('library-2');
  await member.page.waitForURL(/text=library-2/);
  await member.page.reload();
  await member.settled();
  assert.equal(await member.page.getByLabel('Vulnerability, package or text').inputValue(), 'library-2');
  const packages = await member.page.locator('td[data-name=Package]').allInnerTexts();
  assert.ok(packages.length > 0 && packages.every((p) => p.startsWith('library-2')), packages.join());
  await member.leave();
});

test('a suppressed finding says so, with its reason', async () => {
  const member = await Person.signedIn('member', '/vulnerabilities/CVE-2024-0002');
  await member.settled();
  const mark = member.page.locator('tbody .mark', { hasText: 'suppressed' });
  await mark.waitFor();
  assert.match(await mark.getAttribute('title'), /zlib-not-reachable: No request reaches the decompression/);
  await member.leave();
});

test('texts of a hostile image stay texts', async () => {
  const member = await Person.signedIn('member', '/images?namespace=shop');
  await member.settled();
  await member.page.getByRole('link', { name: /hostile/ }).click();
  await member.page.getByText('<img src=x onerror=').first().waitFor();
  for (const summary of await member.page.getByText('Details').all()) await summary.click();
  assert.equal(await member.page.locator('main img, main script').count(), 0);
  const links = await member.page.locator('main a').evaluateAll((all) => all.map((a) => a.protocol));
  assert.ok(links.every((protocol) => protocol === 'https:' || protocol === 'http:'), links.join());
  assert.ok(!(await member.page.title()).includes('hacked'));
  await member.leave();
});

test('the landing page is amber while something is wrong, and links what it counts', async () => {
  const admin = await Person.signedIn('administrator', '/?namespace=blog');
  await admin.settled();
  assert.match(await admin.text('.answer.warn'), /Nothing known to update in blog/);
  assert.equal(await admin.page.locator('.answer.good').count(), 0);
  await admin.page.getByRole('link', { name: '1 scanner has no receiver' }).click();
  await admin.page.waitForURL(/\/coverage\?problem=NoReceiver&namespace=blog/);
  await admin.settled();
  assert.match(await admin.text('.card'), /blog\/default[\s\S]*No receiver/);
  await admin.visit('/coverage?problem=DataOutdated&namespace=blog');
  assert.equal(await admin.page.locator('.card').count(), 0);
  await admin.leave();
});

test('every problem has words and a link, for one scanner and for several', async () => {
  const admin = await Person.signedIn('administrator', '/?namespace=blog');
  const kinds = ['Stalled', 'Suspended', 'EngineUnavailable', 'DataOutdated', 'FailedImages', 'MessagesFailing', 'NoReceiver'];
  await withHealth(admin, { scanners: kinds.map((problem, i) => ({ problem, scanners: i % 2, clusterScanners: 1 })), unscannedNamespaces: 12 });
  await admin.visit('/?namespace=blog');
  assert.deepEqual(await admin.page.locator('.problems a').evaluateAll((links) => links.map((a) => new URL(a.href).searchParams.get('problem'))), [...kinds, null]);
  assert.match(await admin.text('.problems'), /1 scanner cannot continue[\s\S]*2 scanners are suspended[\s\S]*1 scanner has an engine[\s\S]*2 scanners use vulnerability data that is outdated or has an anomaly[\s\S]*12 namespaces are not scanned/);
  await admin.page.screenshot({ path: `${fixture.output}/actions-problems-light.png`, fullPage: true });
  await admin.page.emulateMedia({ colorScheme: 'dark' });
  await admin.page.screenshot({ path: `${fixture.output}/actions-problems-dark.png`, fullPage: true });
  await admin.leave();
});

// cleanPages are those that are green if nothing is missing.
const cleanPages = ['/?namespace=blog', '/vulnerabilities?namespace=blog', '/vulnerabilities/CVE-2020-0000?namespace=blog', '/namespaces/blog/workloads/Pod/web'];

// withCoverage changes what each response says about its coverage.
const withCoverage = (person, change) => person.page.route(/\/api\/v1\/(overview|vulnerabilities|namespaces\/blog\/workloads)/, async (route) => {
  const response = await route.fetch(), body = await response.json();
  if (body.notCovered || body.coverage) change(body.coverage ?? body);
  await route.fulfill({ response, json: { ...body, ...(body.health && { health: { scanners: [], unscannedNamespaces: 0 } }) } });
});

test('no page is green while results may be outdated', async () => {
  const admin = await Person.signedIn('administrator');
  await withCoverage(admin, (coverage) => { coverage.notCovered.staleScanners = 1; });
  for (const path of cleanPages) {
    await admin.visit(path);
    assert.match(await admin.text('.answer.warn'), /1 scanner with results that may be outdated/, path);
    assert.equal(await admin.page.locator('.answer.good').count(), 0, path);
  }
  await admin.visit('/changes?namespace=blog');
  await admin.visit('/vulnerabilities/CVE-2020-0000?namespace=blog');
  await admin.page.screenshot({ path: `${fixture.output}/vulnerability-stale-light.png`, fullPage: true });
  await admin.page.emulateMedia({ colorScheme: 'dark' });
  await admin.page.screenshot({ path: `${fixture.output}/vulnerability-stale-dark.png`, fullPage: true });
  await admin.leave();
});

test('images that are excluded, and a namespace in which none runs, are no all-clear', async () => {
  const admin = await Person.signedIn('administrator');
  await withCoverage(admin, (coverage) => { coverage.excluded = 3; });
  for (const path of cleanPages.slice(0, 3)) {
    await admin.visit(path);
    assert.match(await admin.text('.answer'), /known[\s\S]*3 images are excluded by the settings of scanners: nothing is known about them/, path);
    assert.equal(await admin.page.locator('.answer.good').count(), 0, path);
  }
  await admin.page.screenshot({ path: `${fixture.output}/vulnerability-excluded-light.png`, fullPage: true });
  await admin.page.unrouteAll();
  await withHealth(admin, {});
  for (const path of ['/?namespace=news', '/vulnerabilities?namespace=news', '/vulnerabilities/CVE-2020-0000?namespace=news']) {
    await admin.visit(path);
    assert.match(await admin.text('.answer'), /Unknown: no image has a result in news/, path);
    assert.equal(await admin.page.locator('.answer.good').count(), 0, path);
  }
  await admin.leave();
});

test('a filter that hides all vulnerabilities is no all-clear, however the address has it', async () => {
  const admin = await Person.signedIn('administrator');
  for (const filters of ['text=&fixable=', 'text=&minSeverity=Critical', 'knownExploited=', 'text=nothing-has-this']) {
    await admin.visit(`/vulnerabilities?namespace=blog&${filters}`);
    assert.match(await admin.text(), /No vulnerability passes these filters/, filters);
    assert.equal(await admin.page.locator('.answer').count(), 0, filters);
  }
  await admin.leave();
});

test('images that do not run come last, grey, and are not counted', async () => {
  const member = await Person.signedIn('member', '/images?namespace=shop');
  await member.page.route('**/namespaces/shop/imagescans?*', async (route) => {
    const response = await route.fetch(), list = await response.json();
    list.items.find((s) => s.references?.[0].includes('failing')).unusedSinceTime = '2026-01-02T03:04:05Z';
    await route.fulfill({ response, json: { ...list, notRunning: 1 } });
  });
  await member.visit('/images?namespace=shop&phase=');
  const last = member.page.locator('tbody tr').last();
  assert.match(await last.innerText(), /failing[\s\S]*not running since 2 Jan 2026/);
  assert.match(await member.text(), /5 images run\. 1 does not run and is not counted elsewhere/);
  const colors = await last.locator('td, td *').evaluateAll((cells) => [...new Set(cells.map((c) => getComputedStyle(c).color))]);
  assert.equal(colors.length, 1, `all of the row is grey: ${colors}`);
  await member.page.screenshot({ path: `${fixture.output}/images-unused-light.png`, fullPage: true });
  await member.page.emulateMedia({ colorScheme: 'dark' });
  await member.page.screenshot({ path: `${fixture.output}/images-unused-dark.png`, fullPage: true });
  await member.leave();
});

test('a search has the results of all namespaces, keeps what was typed, and never takes a name for an id', async () => {
  const admin = await Person.signedIn('administrator', '/images?namespace=shop');
  await admin.settled();
  const search = async (text) => {
    await admin.page.getByRole('searchbox', { name: 'Search for' }).fill(text);
    await admin.page.keyboard.press('Enter');
  };
  await search('frontend-1');
  await admin.page.getByRole('heading', { name: 'Search for frontend-1' }).waitFor();
  await admin.settled();
  assert.match(await admin.text('main'), /No workload that runs a scanned image has this text/);
  assert.equal(await admin.page.locator('.answer').count(), 0, 'no answer about who runs it');
  assert.equal(await admin.page.getByRole('searchbox', { name: 'Search for' }).inputValue(), 'frontend-1');
  assert.match(await admin.page.getByRole('link', { name: 'depot', exact: true }).getAttribute('href'), /text=frontend-1/);
  await search('riddled');
  await admin.page.getByRole('heading', { name: 'Search for riddled' }).waitFor();
  await admin.settled();
  assert.match(await admin.text('table[aria-label^="Workloads"]'), /shop[\s\S]*depot|depot[\s\S]*shop/);
  await admin.page.screenshot({ path: `${fixture.output}/search-light.png`, fullPage: true });
  await admin.page.emulateMedia({ colorScheme: 'dark' });
  await admin.page.screenshot({ path: `${fixture.output}/search-dark.png`, fullPage: true });
  await admin.page.emulateMedia({ colorScheme: 'light' });
  const found = async (text, name) => {
    await search(text);
    await admin.page.getByRole('heading', { name: `Search for ${text}` }).waitFor();
    await admin.settled();
    await admin.page.screenshot({ path: `${fixture.output}/search-${name}-light.png`, fullPage: true });
  };
  await found('openssl', 'package');
  assert.match(await admin.text('table[aria-label="Findings in packages"]'), /CVE-2024-0001[\s\S]*openssl[\s\S]*vulnerable-web:1\.4\.2\s+shop/);
  await found('openss', 'nothing');
  assert.match(await admin.text('main'), /No finding is in a package of exactly this name/);
  assert.equal(await admin.page.locator('main table').count(), 0, 'a part of the name of a package finds nothing');
  await found('2024 0001', 'parts');
  assert.match(await admin.text('main table'), /CVE-2024-0001/);
  for (const typed of ['cve-2024-0001', ' cve 2024 0001 ', 'CVE\u20132024\u20130001']) {
    await search(typed);
    await admin.page.waitForURL(/\/vulnerabilities\/CVE-2024-0001$/);
    await admin.visit('/images');
  }
  await search('ghsa AAAA bbbb 0000');
  await admin.page.getByRole('heading', { name: 'Search for ghsa AAAA bbbb 0000' }).waitFor();
  await admin.settled();
  assert.match(await admin.text('.answer.warn'), /GHSA-aaaa-bbbb-0000 is not known in the vulnerability data/);
  assert.equal(await admin.page.getByRole('searchbox', { name: 'Search for' }).inputValue(), 'ghsa AAAA bbbb 0000');
  await admin.visit('/vulnerabilities/nginx-1?namespace=blog');
  assert.match(await admin.text('.answer.warn'), /not known in the vulnerability data/);
  await admin.page.getByRole('link', { name: 'Search for this text' }).click();
  await admin.page.getByRole('heading', { name: 'Search for nginx-1' }).waitFor();
  await admin.leave();
});

test('keys: search for a vulnerability, walk through rows, open one', async () => {
  const member = await Person.signedIn('member', '/images?namespace=shop');
  await member.settled();
  await member.page.keyboard.press('j');
  await member.page.keyboard.press('j');
  await member.page.keyboard.press('k');
  assert.match(await member.page.evaluate(() => document.activeElement.textContent), /failing-job/);
  await member.page.keyboard.press('Enter');
  await member.page.waitForURL(/\/namespaces\/shop\/images\//);
  await member.page.keyboard.press('/');
  await member.page.keyboard.type('cve-2024-0001');
  await member.page.keyboard.press('Enter');
  await member.page.waitForURL(/\/vulnerabilities\/CVE-2024-0001/);
  await member.page.getByRole('heading', { name: 'CVE-2024-0001' }).waitFor();
  await member.page.keyboard.press('?');
  await member.page.getByRole('heading', { name: 'Keys' }).waitFor();
  await member.leave();
});

test('a hidden tab sends no request', async () => {
  const member = await Person.withBrowser();
  await member.page.clock.install();
  await member.page.goto(fixture.url);
  await member.signIn('member');
  await member.settled();
  await member.page.evaluate(() => {
    Object.defineProperty(document, 'hidden', { value: true, configurable: true });
    document.dispatchEvent(new Event('visibilitychange'));
  });
  member.requests.length = 0;
  await member.page.clock.runFor(120_000);
  assert.deepEqual(member.requests, []);
  await member.page.evaluate(() => {
    delete document.hidden;
    document.dispatchEvent(new Event('visibilitychange'));
  });
  await member.page.waitForTimeout(500);
  const asked = member.requests.filter((r) => !r.includes('/api/v1/events'));
  assert.equal(asked.length, 1, 'shown again, the page asks once');
  await member.leave();
});

test('a clock of the browser that is a day off makes no difference to ages', async () => {
  const member = await Person.withBrowser();
  await member.page.clock.install({ time: Date.now() + 86_400_000 });
  await member.page.goto(fixture.url);
  await member.signIn('member');
  await member.page.getByRole('link', { name: 'Images', exact: true }).click();
  await member.settled();
  const ages = await member.page.locator('tbody time').allInnerTexts();
  assert.ok(ages.length > 0 && ages.every((age) => /^\d+ (s|min) ago$/.test(age)), ages.join());
  await member.leave();
});

test('a path that does not exist is 404 and never the document', async () => {
  const member = await Person.signedIn('member');
  for (const path of ['/assets/index.js', '/nothing', '/favicon.ico']) {
    const response = await member.page.request.get(fixture.url + path);
    assert.equal(response.status(), 404, path);
    assert.ok(!(await response.text()).includes('<html'), path);
  }
  await member.leave();
});
