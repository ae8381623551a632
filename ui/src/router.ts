// The address is the state of the UI: the page, each filter and the position in a list are in the URL.
import { useEffect, useState } from 'preact/hooks';
import routes from '../routes.json';

// base is the path of the UI, "" or one that begins with a slash.
export const base = document.documentElement.dataset.base ?? '';

export type Place = { route: string; parameters: Record<string, string>; query: URLSearchParams };

// placeOf returns the page of an address. An unknown path has the route "".
export function placeOf(pathname: string, search: string): Place {
  const path = pathname.startsWith(base) ? pathname.slice(base.length) || '/' : pathname;
  const parts = path.split('/');
  const query = new URLSearchParams(search);
  for (const route of routes) {
    const names = route.split('/');
    if (names.length !== parts.length) continue;
    const parameters: Record<string, string> = {};
    const matches = names.every((name, i) => {
      const part = parts[i] ?? '';
      if (!name.startsWith('{')) return name === part;
      parameters[name.slice(1, -1)] = decode(part);
      return part !== '';
    });
    if (matches) return { route, parameters, query };
  }
  return { route: '', parameters: {}, query };
}

function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

type Values = Record<string, string | number | boolean | undefined>;

// href returns the address of a page. Parameters without a value are left out.
export function href(route: string, parameters: Record<string, string> = {}, query: Values = {}): string {
  const path = route.replace(/\{(\w+)\}/g, (_match, name: string) => encodeURIComponent(parameters[name] ?? ''));
  return base + path + queryOf(query);
}

// queryOf returns a query with its question mark, or nothing.
export function queryOf(query: Values): string {
  const set = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) if (value !== undefined && value !== '') set.set(name, String(value));
  const text = set.toString();
  return text && '?' + text;
}

const changed = 'place-changed';

// navigate shows another page. replace leaves no entry in the browser's history, for a filter that changes with each key.
export function navigate(to: string, replace = false): void {
  if (to === location.pathname + location.search) return;
  history[replace ? 'replaceState' : 'pushState'](null, '', to);
  if (!replace) scrollTo(0, 0);
  dispatchEvent(new Event(changed));
}

// setQuery changes some parameters of the address. A filter that changes begins at the first page of its list.
export function setQuery(values: Values, replace = false): void {
  const query: Values = Object.fromEntries(new URLSearchParams(location.search));
  delete query.continue;
  navigate(location.pathname + queryOf({ ...query, ...values }), replace);
}

// usePlace returns the current page, again after each navigation.
export function usePlace(): Place {
  const [place, setPlace] = useState(() => placeOf(location.pathname, location.search));
  useEffect(() => {
    const update = () => setPlace(placeOf(location.pathname, location.search));
    const follow = (event: MouseEvent) => {
      const link = (event.target as Element).closest?.('a');
      const plain = event.button === 0 && !event.metaKey && !event.ctrlKey && !event.shiftKey && !event.altKey;
      if (!link || !plain || event.defaultPrevented || link.target || link.hasAttribute('download') || link.origin !== location.origin) return;
      if (placeOf(link.pathname, '').route === '') return;
      event.preventDefault();
      navigate(link.pathname + link.search);
    };
    addEventListener('popstate', update);
    addEventListener(changed, update);
    document.addEventListener('click', follow);
    return () => {
      removeEventListener('popstate', update);
      removeEventListener(changed, update);
      document.removeEventListener('click', follow);
    };
  }, []);
  return place;
}
