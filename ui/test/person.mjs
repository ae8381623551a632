// What the journeys share: the fixture that test/ui made, a browser, and a person who is signed in.
import assert from 'node:assert/strict';
import { mkdirSync, readFileSync } from 'node:fs';
import { chromium } from 'playwright-core';

if (!process.env.UI_TEST) throw new Error('UI_TEST names no file: run "make ui-test"');
export const fixture = JSON.parse(readFileSync(process.env.UI_TEST, 'utf8'));
mkdirSync(fixture.output, { recursive: true });

let browser;

export async function open() {
  browser ??= await chromium.launch({
    executablePath: fixture.browser,
    args: ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync'],
  });
  return browser;
}

export async function close() {
  await browser?.close();
  browser = undefined;
}

// Person is somebody with a browser window. problems has everything that must not happen on any page.
export class Person {
  static async withBrowser(options = {}) {
    const person = new Person();
    const context = await (await open()).newContext({
      ignoreHTTPSErrors: true, viewport: { width: 1280, height: 800 }, locale: 'en-GB', timezoneId: 'UTC', ...options,
    });
    person.context = context;
    person.problems = [];
    person.requests = [];
    person.page = await context.newPage();
    await person.page.addInitScript(() => {
      document.addEventListener('securitypolicyviolation', (e) => console.error(`policy violation: ${e.violatedDirective} ${e.blockedURI} ${e.sample}`));
    });
    person.page.on('console', (message) => {
      const expected = /status of 40[134]|status of 409|ERR_CONNECTION/.test(message.text());
      if (message.type() === 'error' && !expected) person.problems.push(message.text());
    });
    person.page.on('pageerror', (error) => person.problems.push(error.stack ?? String(error)));
    person.page.on('request', (request) => person.requests.push(`${request.method()} ${new URL(request.url()).pathname}${new URL(request.url()).search}`));
    return person;
  }

  // signedIn returns somebody who has signed in as a user and looks at a path.
  static async signedIn(user, path = '/', options = {}) {
    const person = await Person.withBrowser(options);
    await person.page.goto(fixture.url + path);
    await person.signIn(user);
    return person;
  }

  async signIn(user) {
    await this.page.getByLabel('Token').fill(fixture.tokens[user]);
    await this.page.getByRole('button', { name: 'Sign in' }).click();
    await this.page.locator('header, main [role=alert]').first().waitFor();
    assert.equal(await this.page.locator('header').count(), 1, await this.text());
  }

  async visit(path) {
    await this.page.goto(fixture.url + path);
    await this.settled();
  }

  // settled waits until the page shows something other than that it loads.
  async settled() {
    await this.page.locator('h1').waitFor();
    await this.page.waitForFunction(() => !document.querySelector('.loading'));
  }

  text(selector = 'main') {
    return this.page.locator(selector).innerText();
  }

  // json returns the response to a request with the person's cookie; empty if it is refused.
  async json(path) {
    const response = await this.page.request.get(fixture.url + path);
    return response.ok() ? response.json() : {};
  }

  // eventually waits until a condition holds.
  async eventually(holds, limit = 20_000) {
    const end = Date.now() + limit;
    while (!await holds()) {
      assert.ok(Date.now() < end, `not after ${limit} ms: ${holds}`);
      await this.page.waitForTimeout(100);
    }
  }

  async leave() {
    await this.context.close();
    assert.deepEqual(this.problems, [], 'errors in the console');
  }
}

// addressOf returns the address of the page of an image, by a part of its reference.
export async function addressOf(person, namespace, part) {
  const { items } = await person.json(`/api/v1/namespaces/${namespace}/imagescans?limit=500`);
  return `/namespaces/${namespace}/images/${items.find((scan) => scan.references[0].includes(part)).name}`;
}

// withHealth shows overviews with these problems, and else as the manager answers.
export async function withHealth(person, health) {
  await person.page.route('**/api/v1/overview*', async (route) => {
    const response = await route.fetch();
    await route.fulfill({ response, json: { ...await response.json(), health: { scanners: [], unscannedNamespaces: 0, ...health } } });
  });
}
