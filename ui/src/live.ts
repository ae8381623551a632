// Live updates: a stream of hints that something has changed. What has changed is loaded again with ordinary requests, and those are repeated
// every 30 s while there is no stream. A hidden tab has no stream.
import { useEffect, useState } from 'preact/hooks';
import type { Hint, HintKind, Event as Message } from './api.gen';
import { base, queryOf } from './router';

export type Freshness = {
  state: 'live' | 'polling' | 'lost';
  // since is when the manager answered last, in milliseconds, if the state is lost.
  since: number;
  // outdated means that the manager serves another build of this page.
  outdated: boolean;
};

// How often a page that is visible loads again without being told to. With a stream it is only a safety net, unless the last request failed: the
// hint that it was for does not come again. No hint says that a replica of the manager has come or gone.
export const reloadInterval = (path: string | undefined, isFailed: boolean) => (freshness.state === 'live' && !isFailed && path !== '/api/v1/operator' ? 300_000 : 30_000);

const openTimeout = 10_000; // a proxy that collects what is sent delivers no first hint
const silence = 50_000; // the manager sends something every 20 s
const shortestRetry = 1_000, firstRetry = 10_000, longestRetry = 60_000;

let freshness: Freshness = { state: 'polling', since: 0, outdated: false };
let answered = 0;
const observers = new Set<(f: Freshness) => void>();

function set(change: Partial<Freshness>): void {
  const next = { ...freshness, ...change };
  if (next.state === freshness.state && next.since === freshness.since && next.outdated === freshness.outdated) return;
  freshness = next;
  observers.forEach((observer) => observer(next));
}

export function useFreshness(): Freshness {
  const [value, setValue] = useState(freshness);
  useEffect(() => {
    setValue(freshness);
    observers.add(setValue);
    return () => { observers.delete(setValue); };
  }, []);
  return value;
}

// reached records whether the manager has answered a request.
export function reached(isReached: boolean): void {
  if (isReached) {
    answered = Date.now();
    if (freshness.state === 'lost') set({ state: 'polling', since: 0 });
  } else if (freshness.state !== 'lost') {
    close();
    retryLater();
    set({ state: 'lost', since: answered });
  }
}

// timedOut records that a request had no answer in time. While the stream lives, the manager is there, and only slow.
export function timedOut(): void {
  if (freshness.state !== 'live') reached(false);
}

// A listener gets the changes of a hint, or nothing if anything may have changed.
type Listener = (changes?: Hint[]) => void;
const listeners = new Set<Listener>();

export function onChange(listener: Listener): () => void {
  listeners.add(listener);
  return () => { listeners.delete(listener); };
}

const kindsOf: [RegExp, HintKind[]][] = [
  [/scanners(\/|$)/, ['Scanner', 'ClusterScanner']],
  [/imagescans|\/images/, ['Findings', 'ImageScan', 'VulnerabilityException', 'ClusterVulnerabilityException']],
];

// concerns returns whether a response can be another one after a change.
export function concerns(change: Hint, path: string, namespace: string | undefined): boolean {
  if (namespace && change.namespace && change.namespace !== namespace) return false;
  const kinds = kindsOf.find(([pattern]) => pattern.test(path))?.[1];
  return !kinds || kinds.includes(change.kind);
}

let source: EventSource | undefined;
let last: string | undefined; // the id of the last hint; undefined while nobody is signed in
let timer: ReturnType<typeof setTimeout> | undefined;
let failures = 0;

function close(): void {
  source?.close();
  source = undefined;
  clearTimeout(timer);
  if (freshness.state === 'live') set({ state: 'polling' });
}

function watchdog(after: number): void {
  clearTimeout(timer);
  timer = setTimeout(() => { close(); retryLater(); }, after);
}

// retryLater opens the stream again after a time that doubles with each failure. Browsers must not all come at once.
function retryLater(after?: number): void {
  const longest = Math.min(longestRetry, firstRetry * 2 ** failures++);
  clearTimeout(timer);
  timer = setTimeout(open, after ?? shortestRetry + Math.random() * (longest - shortestRetry));
}

function open(): void {
  close();
  if (last === undefined || document.hidden) return;
  const opened = new EventSource(base + '/api/v1/events' + queryOf({ since: last }));
  source = opened;
  watchdog(openTimeout);
  opened.onerror = () => { if (source === opened) { close(); retryLater(); } };
  opened.onmessage = (message: MessageEvent<string>) => {
    if (source !== opened) return;
    watchdog(silence);
    receive(JSON.parse(message.data) as Message);
  };
}

function receive(hint: Message): void {
  if (hint.id) last = hint.id;
  switch (hint.type) {
    case 'hello': {
      const { build } = document.documentElement.dataset;
      failures = 0;
      answered = Date.now();
      // What could not be loaded while the manager did not answer can be loaded now.
      if (freshness.state === 'lost') listeners.forEach((listener) => listener());
      set({ state: 'live', since: 0, outdated: !!build && !!hint.build && build !== hint.build });
      break;
    }
    case 'changed': listeners.forEach((listener) => listener(hint.changes ?? [])); break;
    case 'reset': listeners.forEach((listener) => listener()); break;
    case 'bye':
      close();
      retryLater(hint.retryAfterMs);
      // The response to a request says that the session has ended.
      if (hint.reason === 'Unauthorized') listeners.forEach((listener) => listener());
  }
}

// goLive opens the stream at a position while the page is visible, until the function that it returns is called.
export function goLive(eventID: string): () => void {
  last = eventID;
  const follow = () => (document.hidden ? close() : open());
  document.addEventListener('visibilitychange', follow);
  open();
  return () => {
    document.removeEventListener('visibilitychange', follow);
    last = undefined;
    close();
  };
}
