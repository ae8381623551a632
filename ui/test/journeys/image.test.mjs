// One image: its packages, what another digest would change, reports of other tools, and scanning it again.
import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { after, test } from 'node:test';
import { Person, addressOf, close, fixture } from '../person.mjs';

after(close);

test('packages come from the SBOM, in pages, and a text finds one', async () => {
  const keeper = await Person.signedIn('keeper', '/images?namespace=depot');
  await keeper.visit(await addressOf(keeper, 'depot', 'listed-scales'));
  assert.ok(!keeper.requests.some((r) => r.includes('/sbom')), 'the SBOM is read only when it is needed');
  await keeper.page.getByRole('link', { name: 'Packages' }).click();
  await keeper.page.getByText('100 of 250 packages').waitFor();
  assert.equal(await keeper.page.locator('tbody tr').count(), 100);
  assert.match(await keeper.page.locator('tbody tr').first().innerText(), /=cmd\|' \/C calc'!A0/);
  await keeper.page.getByRole('link', { name: 'Next page' }).click();
  await keeper.page.getByRole('link', { name: 'Next page' }).click();
  await keeper.page.getByText('50 of 250 packages').waitFor();
  await keeper.page.getByLabel('Package, version or type').fill('package-007');
  await keeper.page.getByText('1 package', { exact: true }).waitFor();
  await keeper.leave();
});

test('without an SBOM, the packages with findings are listed, and the page says so', async () => {
  const keeper = await Person.signedIn('keeper', '/images?namespace=depot');
  await keeper.visit(`${await addressOf(keeper, 'depot', 'vulnerable-door')}?tab=packages`);
  await keeper.page.getByText('There is no SBOM of this image').waitFor();
  assert.deepEqual((await keeper.page.locator('td[data-name=Package]').allInnerTexts()).map((t) => t.trim()), ['openssl', 'zlib']);
  await keeper.leave();
});

test('an image and its findings say whose claim the list of packages is', async () => {
  const keeper = await Person.signedIn('keeper', '/images?namespace=depot');
  const address = await addressOf(keeper, 'depot', 'vulnerable-door');
  // The fake engine has no attested SBOMs, so the answers of the API are changed on their way.
  const sbom = { source: 'Attestation', signer: 'https://github.com/acme/shop/.github/workflows/release.yaml@refs/heads/main' };
  await keeper.page.route((url) => url.pathname.includes('/imagescans/'), async (route) => {
    const response = await route.fetch();
    const json = await response.json();
    if (json.report) json.report.sbom = sbom; else json.sbom = sbom;
    await route.fulfill({ response, json });
  });
  await keeper.visit(address);
  await keeper.page.getByText('Matched by').waitFor();
  assert.match(await keeper.text('dl.facts'), /List of packages\s+the publisher's claim, signed by https:\/\/github\.com\/acme\/shop/);
  assert.match(await keeper.text(), /Matched by [^\n]* · the list of packages is the publisher's claim, signed by https:\/\/github\.com\/acme\/shop/);
  await keeper.page.screenshot({ path: `${fixture.output}/image-origin.png`, fullPage: true });
  Object.assign(sbom, { source: 'Upload', signer: undefined, uploader: 'system:serviceaccount:depot:ci', uploadTime: new Date().toISOString(), message: 'NodeCredentialsOnly: …' });
  await keeper.visit(address);
  await keeper.page.getByText('Matched by').waitFor();
  assert.match(await keeper.text('dl.facts'), /the claim of system:serviceaccount:depot:ci, who uploaded it .* ago since the image was not cataloged: NodeCredentialsOnly/);
  await keeper.page.screenshot({ path: `${fixture.output}/image-upload.png`, fullPage: true });
  await keeper.leave();
});

test('comparing with another digest of the repository says what would end and what would come', async () => {
  const keeper = await Person.signedIn('keeper', '/images?namespace=depot');
  const { items } = await keeper.json('/api/v1/namespaces/depot/imagescans');
  const [old, fixed] = [2, 3].map((stage) => items.find((s) => s.digest.startsWith(`sha256:${stage}0000`)).name);
  await keeper.visit(`/namespaces/depot/images/${old}?tab=compare`);
  await keeper.page.getByText('1 finding would end').waitFor();
  assert.match(await keeper.text(), /1 finding would end \(1 Critical\) and 0 would come \(none\)\. 2 findings are in both/);
  assert.match(await keeper.text('tbody'), /CVE-2025-100001[\s\S]*openssl/);
  await keeper.visit(`/namespaces/depot/images/${fixed}?tab=compare`);
  await keeper.page.getByLabel('Show').selectOption({ label: 'what would come' });
  await keeper.page.waitForURL(/show=come/);
  assert.match(await keeper.text('tbody'), /CVE-2025-100001/);
  await keeper.visit(`${await addressOf(keeper, 'depot', 'vulnerable-door')}?tab=compare`);
  assert.match(await keeper.text(), /has no result for another digest of this repository in depot/);
  await keeper.leave();
});

test('changes are findings that are new since a date, or gone', async () => {
  const keeper = await Person.signedIn('keeper', '/images?namespace=depot');
  const address = await addressOf(keeper, 'depot', 'vulnerable-door');
  await keeper.visit(`${address}?tab=changes`);
  assert.equal(await keeper.page.locator('tbody tr').count(), 2);
  await keeper.visit(`${address}?tab=changes&since=2199-01-01`);
  assert.match(await keeper.text(), /No finding is new since 2199-01-01/);
  await keeper.page.getByLabel(/^Change/).selectOption({ label: 'no longer found' });
  await keeper.page.getByText('No finding is gone.').waitFor();
  await keeper.leave();
});

test('a report of another tool is shown with its source, and its document can be downloaded', async () => {
  const keeper = await Person.signedIn('keeper', '/images?namespace=depot');
  const address = await addressOf(keeper, 'depot', 'vulnerable-door');
  await keeper.visit(`${address}?tab=other`);
  assert.match(await keeper.text(), /No other tool has saved a report/);
  const { digest } = await keeper.json(`/api/v1${address.replace('/images/', '/imagescans/')}`);
  const saved = await keeper.page.request.put(`${fixture.url}/api/v1/namespaces/depot/images/${digest}/reports/pipeline`, {
    headers: { 'Content-Type': 'application/vnd.cyclonedx+json', Authorization: `Bearer ${fixture.tokens.keeper}` },
    data: JSON.stringify({
      bomFormat: 'CycloneDX', specVersion: '1.6', version: 1, metadata: { timestamp: '2026-01-02T03:04:05Z', tools: { components: [{ type: 'application', name: 'crane', version: '7' }] } },
      components: [{ type: 'library', 'bom-ref': 'a', name: 'busybox', version: '1.36' }],
      vulnerabilities: [{ id: 'CVE-2021-0042', ratings: [{ severity: 'high', method: 'other' }], affects: [{ ref: 'a' }] }],
    }),
  });
  assert.ok(saved.ok(), `${saved.status()} ${await saved.text()}`);
  await keeper.page.reload();
  await keeper.settled();
  assert.match(await keeper.text('tbody'), /pipeline[\s\S]*crane[\s\S]*by system:serviceaccount:.*keeper/);
  const [download] = await Promise.all([keeper.page.waitForEvent('download'), keeper.page.getByRole('link', { name: 'CycloneDX' }).click()]);
  assert.match(download.suggestedFilename(), /\.pipeline\.cdx\.json$/);
  await keeper.page.getByRole('link', { name: 'pipeline' }).click();
  await keeper.page.getByText('Matched by external:pipeline').waitFor();
  assert.match(await keeper.text('tbody'), /CVE-2021-0042[\s\S]*High[\s\S]*busybox/);
  await keeper.visit(address);
  assert.ok(!(await keeper.text('tbody')).includes('CVE-2021-0042'), "a report of another tool is not among the engine's findings");
  await keeper.leave();
});

test('findings can be downloaded as CSV with the filters of the page, and as SARIF', async () => {
  const keeper = await Person.signedIn('keeper', '/images?namespace=depot');
  const address = await addressOf(keeper, 'depot', 'vulnerable-door');
  const downloaded = async (link) => {
    const [download] = await Promise.all([keeper.page.waitForEvent('download'), keeper.page.getByRole('link', { name: link, exact: true }).click()]);
    return { name: download.suggestedFilename(), text: await readFile(await download.path(), 'utf8') };
  };
  await keeper.visit(`${address}?text=openssl`);
  const csv = await downloaded('CSV');
  assert.match(csv.name, /^findings-depot-.*-\d{4}-\d\d-\d\d\.csv$/);
  assert.match(csv.text, /^id,aliases,severity,[^\r]*\r\nCVE-/);
  assert.ok(csv.text.includes(',openssl,') && !csv.text.includes(',zlib,'), csv.text);
  await keeper.visit(`${address}?tab=downloads`);
  const log = JSON.parse((await downloaded('SARIF 2.1.0')).text);
  assert.equal(log.version, '2.1.0');
  assert.deepEqual(log.runs[0].results.map((r) => r.ruleId).sort(), (await keeper.json(`/api/v1${address.replace('/images/', '/imagescans/')}/findings`)).items.map((f) => f.id).sort());
  await keeper.leave();
});

test('an SBOM can be downloaded in the formats that are stored, and the page names the others', async () => {
  const keeper = await Person.signedIn('keeper', '/images?namespace=depot');
  await keeper.visit(`${await addressOf(keeper, 'depot', 'listed-scales')}?tab=downloads`);
  const sbom = async (link) => {
    const [download] = await Promise.all([keeper.page.waitForEvent('download'), keeper.page.getByRole('link', { name: link, exact: true }).click()]);
    return { name: download.suggestedFilename(), ...JSON.parse(await readFile(await download.path(), 'utf8')) };
  };
  const [syft, cyclonedx] = [await sbom('Syft JSON'), await sbom('CycloneDX 1.6, all packages')];
  assert.match(syft.name, /\.syft\.json$/);
  assert.match(cyclonedx.name, /\.sbom\.cdx\.json$/);
  assert.equal(cyclonedx.specVersion, '1.6');
  assert.deepEqual(cyclonedx.components.map((c) => c.name), syft.artifacts.map((a) => a.name));
  assert.equal(await keeper.page.getByRole('link', { name: 'SPDX 2.3' }).count(), 0);
  assert.ok((await keeper.text('main')).includes('Not stored: spdx-json.'));
  await keeper.leave();
});

test('lists can be downloaded as CSV with the filters of the page', async () => {
  const keeper = await Person.signedIn('keeper', '/vulnerabilities?namespace=depot&minSeverity=High');
  await keeper.settled();
  for (const [link, page, name] of [['CSV', '', /^vulnerabilities-depot-/], ['CSV of findings', '', /^findings-depot-/], ['CSV', '/workloads?namespace=depot', /^workloads-depot-/], ['CSV', '/images?namespace=depot', /^images-depot-/]]) {
    if (page) await keeper.visit(page);
    const [download] = await Promise.all([keeper.page.waitForEvent('download'), keeper.page.getByRole('link', { name: link, exact: true }).click()]);
    assert.match(download.suggestedFilename(), name);
    const [header, ...rows] = (await readFile(await download.path(), 'utf8')).trimEnd().split('\r\n');
    assert.ok(header.includes(',') && rows.length > 0, `${name}: ${header}`);
    if (!page) assert.equal(rows.find((row) => !/,(Critical|High),/.test(row)), undefined);
  }
  await keeper.leave();
});

test('only those who may scan again see the button, and the result stays meanwhile', async () => {
  const visitor = await Person.signedIn('visitor', '/images?namespace=depot');
  const address = await addressOf(visitor, 'depot', 'vulnerable-door');
  await visitor.visit(address);
  assert.equal(await visitor.page.getByRole('button', { name: 'Scan again' }).count(), 0);
  const refused = await visitor.page.evaluate(async (path) => (await fetch(path, { method: 'DELETE' })).status, `/api/v1${address.replace('/images/', '/imagescans/')}/report`);
  assert.equal(refused, 403);
  await visitor.leave();
  const keeper = await Person.signedIn('keeper', address);
  await keeper.settled();
  await keeper.page.getByRole('button', { name: 'Scan again' }).click();
  await keeper.page.getByText('It is going to be scanned again.').waitFor();
  assert.match(await keeper.text('tbody'), /CVE-2024-0001/);
  await keeper.eventually(async () => {
    const scan = await keeper.json(`/api/v1${address.replace('/images/', '/imagescans/')}`);
    return scan.phase === 'Scanned' && scan.findings;
  });
  await keeper.visit(address);
  assert.match(await keeper.text('tbody'), /CVE-2024-0001/);
  await keeper.leave();
});
