// Requests to the REST API. Their types come from its OpenAPI document.
import { useCallback, useEffect, useRef, useState } from 'preact/hooks';
import type { Delete, Get, Post, Problem } from './api.gen';
import { concerns, onChange, reached, reloadInterval, timedOut } from './live';
import { base, queryOf } from './router';

// ApiError is a response that is not a success, or no response at all (status 0).
export class ApiError extends Error {
  readonly status: number;
  readonly problem: Partial<Problem>;

  constructor(status: number, problem: Partial<Problem>) {
    super(problem.detail ?? `The manager answered with status ${status}.`);
    this.status = status;
    this.problem = problem;
  }
}

type Query = Record<string, string | number | boolean | string[] | undefined>;

// urlOf returns the address of an operation. Lists are separated by commas.
export function urlOf(path: string, parameters: Record<string, string> = {}, query: Query = {}): string {
  const filled = path.replace(/\{(\w+)\}/g, (_match, name: string) => encodeURIComponent(parameters[name] ?? ''));
  const flat = Object.fromEntries(Object.entries(query).map(([name, value]) => [name, Array.isArray(value) ? value.join(',') : value]));
  return base + filled + queryOf(flat);
}

// clockOffset is how much the manager's clock is ahead of the browser's, in milliseconds. Ages are those of the manager's clock.
let clockOffset = 0;

export function now(): number {
  return Date.now() + clockOffset;
}

// The listeners of responses that say that the session has ended. There is one reaction to it, and no retry.
const signedOut = new Set<() => void>();

export function onSignedOut(listener: () => void): () => void {
  signedOut.add(listener);
  return () => signedOut.delete(listener);
}

async function request(method: string, url: string, init: RequestInit, signal?: AbortSignal): Promise<Response> {
  let response: Response;
  try {
    response = await fetch(url, { method, headers: { Accept: 'application/json' }, signal: signal ?? null, ...init });
  } catch (error) {
    if (signal?.aborted) throw error;
    reached(false);
    throw new ApiError(0, { detail: 'The manager does not answer. It may be starting, or the connection to it has ended.' });
  }
  reached(true);
  const date = Date.parse(response.headers.get('Date') ?? '');
  // The header has whole seconds: a smaller difference is no difference.
  if (!Number.isNaN(date)) clockOffset = Math.abs(date - Date.now()) > 2000 ? date - Date.now() : 0;
  return response;
}

async function refuse(response: Response, method: string): Promise<never> {
  const content: unknown = await response.json().catch(() => ({}));
  if (response.status === 401 && method === 'GET') signedOut.forEach((listener) => listener());
  throw new ApiError(response.status, content as Partial<Problem>);
}

async function send(method: string, url: string, body?: unknown, signal?: AbortSignal): Promise<unknown> {
  const headers = { Accept: 'application/json', 'Content-Type': 'application/json' };
  const response = await request(method, url, body === undefined ? {} : { body: JSON.stringify(body), headers }, signal);
  if (!response.ok) return refuse(response, method);
  const isJSON = (response.headers.get('Content-Type') ?? '').includes('json');
  // A response that ends too early is no response.
  return isJSON ? response.json().catch(() => { throw new ApiError(0, { detail: 'The response of the manager ended too early.' }); }) : undefined;
}

export function get<P extends keyof Get>(path: P, parameters: Get[P]['path'], query: Get[P]['query'], signal?: AbortSignal): Promise<Get[P]['response']> {
  return send('GET', urlOf(path, parameters, query), undefined, signal) as Promise<Get[P]['response']>;
}

export function post<P extends keyof Post>(path: P, body: Post[P]['body']): Promise<Post[P]['response']> {
  return send('POST', urlOf(path), body) as Promise<Post[P]['response']>;
}

export function remove<P extends keyof Delete>(path: P, parameters: Delete[P]['path']): Promise<Delete[P]['response']> {
  return send('DELETE', urlOf(path, parameters)) as Promise<Delete[P]['response']>;
}

// download returns a document of at most this many bytes, as it is after decompression.
export async function download(url: string, maxBytes: number, signal: AbortSignal): Promise<unknown> {
  const response = await request('GET', url, {}, signal);
  if (!response.ok) return refuse(response, 'GET');
  const reader = (response.body as ReadableStream<Uint8Array>).getReader();
  const decoder = new TextDecoder();
  let text = '', size = 0;
  for (;;) {
    const { done, value } = await reader.read().catch(() => { throw new ApiError(0, { detail: 'The document ended too early.' }); });
    if (done) return JSON.parse(text + decoder.decode());
    size += value.length;
    if (size > maxBytes) {
      await reader.cancel();
      throw new ApiError(0, { title: 'Too large to show', detail: `The document has more than ${maxBytes >> 20} MiB. Download it instead.` });
    }
    text += decoder.decode(value, { stream: true });
  }
}

// Loaded is what is known of an operation's response. data stays while it is loaded again, and while an error lasts.
export type Loaded<T> = { data?: T; error?: ApiError; loading: boolean; time: number; reload: () => void };

// reloadPause is the shortest time between two requests because of hints. The request comes up to reloadSpread later: many browsers get the same hint.
const reloadPause = 2_000, reloadSpread = 300;

// patience is how long a request may take. It is shorter than the interval of requests without a stream, so that each of these can fail.
const patience = 28_000;

// useGet sends a GET request, and again when a hint says that its response may have changed and in intervals, while the page is visible. Without a
// path it sends nothing.
export function useGet<P extends keyof Get>(path: P | undefined, parameters: Get[P]['path'], query: Get[P]['query']): Loaded<Get[P]['response']> {
  type State = { url?: string | undefined; data?: Get[P]['response']; error?: ApiError | undefined; loading: boolean; time: number };
  const url = path && urlOf(path, parameters as Record<string, string>, query as Query);
  const [state, setState] = useState<State>({ loading: true, time: 0 });
  const [round, setRound] = useState(0);
  // When the last request began or ended, and how it is.
  const last = useRef(0), isBusy = useRef(false), isFailed = useRef(false);
  const reload = useCallback(() => setRound((n) => n + 1), []);
  useEffect(() => {
    if (url === undefined) return;
    const abort = new AbortController();
    last.current = Date.now();
    isBusy.current = true;
    const end = (failed: boolean) => {
      clearTimeout(timer);
      last.current = Date.now();
      isBusy.current = false;
      isFailed.current = failed;
    };
    // Data of another address must not be shown as if it was that of this one.
    setState((old) => (old.url === url ? { ...old, loading: true } : { url, loading: true, time: 0 }));
    const fail = (error: ApiError) => {
      end(true);
      // What somebody may not see any more does not stay.
      setState(({ data, ...old }) => ({ ...old, ...(error.status !== 403 && { data }), error, loading: false }));
    };
    // A connection that is cut off without a word lets a request wait for many minutes.
    const timer = setTimeout(() => {
      abort.abort();
      timedOut();
      fail(new ApiError(0, { detail: `The manager has not answered within ${patience / 1000} s.` }));
    }, patience);
    send('GET', url, undefined, abort.signal).then(
      (data) => {
        if (abort.signal.aborted) return;
        end(false);
        setState({ url, data: data as Get[P]['response'], loading: false, time: now() });
      },
      (error: unknown) => {
        if (!abort.signal.aborted && error instanceof ApiError) fail(error);
      },
    );
    return () => { clearTimeout(timer); abort.abort(); };
  }, [url, round]);
  useEffect(() => {
    const due = () => {
      if (!document.hidden && Date.now() - last.current >= reloadInterval(path, isFailed.current)) reload();
    };
    const timer = setInterval(due, 5_000);
    document.addEventListener('visibilitychange', due);
    return () => {
      clearInterval(timer);
      document.removeEventListener('visibilitychange', due);
    };
  }, [path, reload]);
  const namespace = (parameters as Record<string, string>).namespace ?? (query as Query).namespace as string | undefined;
  useEffect(() => {
    if (path === undefined) return;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const stop = onChange((changes) => {
      if (timer !== undefined || changes && !changes.some((change) => concerns(change, path, namespace))) return;
      // A request under way is not sent again: changes that come faster than responses would let none arrive.
      const load = () => {
        timer = isBusy.current ? setTimeout(load, reloadPause) : undefined;
        if (timer !== undefined) return;
        // A hidden page sends nothing. The request is due when it is shown.
        if (document.hidden) last.current = 0;
        else reload();
      };
      timer = setTimeout(load, Math.max(0, last.current + reloadPause - Date.now()) + Math.random() * reloadSpread);
    });
    return () => { clearTimeout(timer); stop(); };
  }, [path, namespace, reload]);
  const current = state.url === url ? state : { loading: true, time: 0 };
  return { ...current, reload } as Loaded<Get[P]['response']>;
}
