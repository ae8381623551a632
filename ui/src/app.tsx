// The frame around all pages: navigation, search, namespace, session and keys.
import { useEffect, useRef, useState } from 'preact/hooks';
import type { Session } from './api.gen';
import { ApiError, get, onSignedOut, post } from './api';
import { date, timeOfDay } from './format';
import { goLive, useFreshness } from './live';
import { Failure, Title } from './parts';
import { href, navigate, setQuery, usePlace, type Place } from './router';
import { SessionContext, SignIn, signOut, takeCode, useNamespace } from './session';
import { ChangesPage } from './pages/changes';
import { CoveragePage } from './pages/coverage';
import { ExceptionsPage } from './pages/exceptions';
import { ImagePage } from './pages/image';
import { ImagesPage } from './pages/images';
import { NamespacesPage } from './pages/namespaces';
import { OperatorPage } from './pages/operator';
import { OverviewPage } from './pages/overview';
import { ScannerPage } from './pages/scanner';
import { SearchPage } from './pages/search';
import { VulnerabilityPage } from './pages/vulnerability';
import { VulnerabilitiesPage } from './pages/vulnerabilities';
import { WorkloadPage } from './pages/workload';
import { WorkloadsPage } from './pages/workloads';

// menu are the pages of the navigation. Pages about the whole cluster are only for users who see all namespaces.
const menu = [
  { route: '/', label: 'Actions' },
  { route: '/vulnerabilities', label: 'Vulnerabilities' },
  { route: '/images', label: 'Images' },
  { route: '/workloads', label: 'Workloads' },
  { route: '/exceptions', label: 'Exceptions' },
  { route: '/coverage', label: 'Coverage' },
  { route: '/operator', label: 'Operator', clusterWide: true },
];

function sectionOf(route: string): string {
  if (route.includes('/workloads')) return '/workloads';
  if (route.includes('/images')) return '/images';
  if (route.startsWith('/vulnerabilities')) return '/vulnerabilities';
  if (route === '/namespaces/{namespace}' || route === '/changes') return '/';
  return route.includes('scanners') || route === '/namespaces' ? '/coverage' : route;
}

function Page({ place }: { place: Place }) {
  switch (place.route) {
    case '/namespaces': return <NamespacesPage />;
    case '/namespaces/{namespace}':
    case '/': return <OverviewPage />;
    case '/vulnerabilities': return <VulnerabilitiesPage />;
    case '/vulnerabilities/{id}': return <VulnerabilityPage />;
    case '/images': return <ImagesPage />;
    case '/namespaces/{namespace}/images/{name}': return <ImagePage />;
    case '/namespaces/{namespace}/workloads/{kind}/{name}': return <WorkloadPage />;
    case '/workloads': return <WorkloadsPage />;
    case '/search': return <SearchPage />;
    case '/changes': return <ChangesPage />;
    case '/operator': return <OperatorPage />;
    case '/exceptions': return <ExceptionsPage />;
    case '/coverage': return <CoveragePage />;
    case '/namespaces/{namespace}/scanners/{name}': return <ScannerPage />;
    case '/clusterscanners/{name}': return <ScannerPage />;
  }
  return <><Title text="Not found" /><p>There is no such page. <a href={href('/')}>Actions</a></p></>;
}

export function App() {
  const [session, setSession] = useState<Session>();
  const [state, setState] = useState<'loading' | 'in' | 'out' | 'ended'>('loading');
  const [error, setError] = useState<ApiError>();
  const [refused, setRefused] = useState<ApiError>();
  // A code signs in only where nobody is: a link of somebody else must not replace a session.
  const [first] = useState(takeCode);
  const code = useRef(first);
  const enter = (found: Session) => {
    code.current = undefined;
    setRefused(undefined);
    setSession(found);
    setState('in');
  };
  const leave = () => setState((old) => (old === 'in' || old === 'ended' ? 'ended' : 'out'));
  // redeem signs in with the code of the address, and returns false if there is none.
  const redeem = () => {
    if (code.current === undefined) return false;
    post('/api/v1/session', { code: code.current }).then(enter, (failure: unknown) => {
      if (failure instanceof ApiError) setRefused(failure);
      leave();
    });
    code.current = undefined;
    return true;
  };
  const load = () => {
    setError(undefined);
    get('/api/v1/session', {}, {}).then(enter, (failure: unknown) => { if (failure instanceof ApiError && failure.status !== 401) setError(failure); });
  };
  useEffect(() => {
    const stop = onSignedOut(() => { if (!redeem()) leave(); });
    load();
    return stop;
  }, []);
  const out = state === 'out' || state === 'ended';
  useEffect(() => {
    // The link of a code that is pasted over this page's address loads no document.
    const change = () => {
      const found = takeCode();
      if (!out) return;
      code.current = found;
      redeem();
    };
    addEventListener('hashchange', change);
    return () => removeEventListener('hashchange', change);
  }, [out]);
  const eventID = state === 'in' ? session?.eventID : undefined;
  useEffect(() => (eventID ? goLive(eventID) : undefined), [eventID]);
  if (out) return <SignIn key={refused?.message} ended={state === 'ended'} refused={refused} onSession={enter} />;
  if (error) return <main><Failure error={error} reload={load} /></main>;
  if (state === 'loading' || !session) return <main><p class="mute loading">Loading…</p></main>;
  return <SessionContext.Provider value={session}><Frame session={session} /></SessionContext.Provider>;
}

function Frame({ session }: { session: Session }) {
  const place = usePlace();
  const namespace = useNamespace();
  const help = useRef<HTMLDialogElement>(null);
  useKeys(() => help.current?.showModal());
  // A new page begins at its heading, for people who do not see it change.
  const path = location.pathname;
  const first = useRef(path);
  useEffect(() => {
    if (first.current === path) return;
    first.current = path;
    if (!(document.activeElement instanceof HTMLInputElement)) document.querySelector('h1')?.focus();
  }, [path]);
  const section = sectionOf(place.route);
  return <>
    <a class="skip" href="#main" onClick={(e) => { e.preventDefault(); document.getElementById('main')?.focus(); }}>Skip to the content</a>
    <header>
      <a class="brand" href={href('/', {}, { namespace })}>Scanner Operator{session.cluster && <span class="cluster" title={session.cluster}> {session.cluster}</span>}</a>
      <nav aria-label="Pages">{menu.filter((m) => !m.clusterWide || session.allNamespaces).map((m) =>
        <a key={m.route} href={href(m.route, {}, { namespace })} aria-current={section === m.route ? 'page' : undefined}>{m.label}</a>)}</nav>
      <Search />
      <div class="who">
        <FreshnessLine />
        <NamespaceChoice session={session} namespace={namespace} />
        <Menu session={session} onHelp={() => help.current?.showModal()} />
      </div>
    </header>
    <NewBuild />
    <main id="main" tabIndex={-1}><Page place={place} key={place.route + JSON.stringify(place.parameters)} /></main>
    <dialog ref={help} aria-labelledby="keys">
      <h2 id="keys">Keys</h2>
      <dl class="keys">
        <div><dt><kbd>/</kbd> <kbd>⌘K</kbd></dt><dd>Search</dd></div><div><dt><kbd>j</kbd> <kbd>k</kbd></dt><dd>Next and previous row</dd></div>
        <div><dt><kbd>Enter</kbd></dt><dd>Open the row</dd></div><div><dt><kbd>?</kbd></dt><dd>This list</dd></div>
      </dl>
      <form method="dialog"><button>Close</button></form>
    </dialog>
  </>;
}

// FreshnessLine says how soon the page shows what has changed.
function FreshnessLine() {
  const { state, since } = useFreshness();
  const words = { live: 'live', polling: 'every 30 s', lost: `not connected since ${timeOfDay(since)}` };
  const titles = {
    live: 'Changes appear within seconds.', polling: 'There is no live connection to the manager. The page loads again every 30 s.',
    lost: 'The manager does not answer. The page tries again.',
  };
  return <span class={`fresh ${state}`} role="status" title={titles[state]}>{words[state]}</span>;
}

function NewBuild() {
  if (!useFreshness().outdated) return null;
  return <div class="notice warn newbuild" role="status"><p>A new version is there. <button type="button" onClick={() => location.reload()}>Reload</button></p></div>;
}

function NamespaceChoice({ session, namespace }: { session: Session; namespace: string | undefined }) {
  const { parameters } = usePlace();
  const choose = (value: string) => (parameters.namespace ? navigate(href('/images', {}, { namespace: value })) : setQuery({ namespace: value }));
  return <label class="namespace"><span>Namespace</span> <select value={namespace ?? ''} onChange={(e) => choose(e.currentTarget.value)}>
    {session.namespaces.length !== 1 && <option value="">all namespaces</option>}
    {namespace && !session.namespaces.includes(namespace) && <option value={namespace}>{namespace}</option>}
    {session.namespaces.map((name) => <option value={name} key={name}>{name}</option>)}
  </select></label>;
}

const themes = ['system', 'light', 'dark'];

function Menu({ session, onHelp }: { session: Session; onHelp: () => void }) {
  const [theme, setTheme] = useState(() => localStorage.getItem('theme') ?? 'system');
  useEffect(() => {
    localStorage.setItem('theme', theme);
    document.documentElement.style.colorScheme = theme === 'system' ? '' : theme;
  }, [theme]);
  const [error, setError] = useState<ApiError>();
  const leave = () => signOut().catch((failure: unknown) => { if (failure instanceof ApiError) setError(failure); });
  const name = session.user.replace(/^system:serviceaccount:.*:/, '');
  return <details class="menu"><summary>{name}</summary><div>
    <p>Signed in as <b>{session.user}</b>{session.expirationTime && <>, until {date(session.expirationTime)}</>}</p>
    <label>Colors <select value={theme} onChange={(e) => setTheme(e.currentTarget.value)}>{themes.map((t) => <option key={t}>{t}</option>)}</select></label>
    <button type="button" onClick={onHelp}>Keys</button>
    {session.cookie && <button type="button" onClick={() => void leave()}>Sign out</button>}
    {error && <Failure error={error} />}
    <p class="mute">Version {session.version}</p>
  </div></details>;
}

// Search leads to the results in all namespaces, whatever namespace is chosen. The text stays in the field.
function Search() {
  const { route, query } = usePlace();
  const given = route === '/search' ? query.get('text') ?? '' : undefined;
  const field = useRef<HTMLInputElement>(null);
  useEffect(() => { if (field.current && given !== undefined) field.current.value = given; }, [given]);
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    const input = (event.currentTarget as HTMLFormElement).elements.namedItem('search') as HTMLInputElement;
    const text = input.value.trim();
    if (text === '') return;
    input.blur();
    navigate(href('/search', {}, { text }));
  };
  return <form role="search" onSubmit={submit}><input name="search" type="search" ref={field} placeholder="CVE or workload   /" aria-label="Search for a vulnerability or a workload" maxLength={128} /></form>;
}

function useKeys(onHelp: () => void): void {
  useEffect(() => {
    const press = (event: KeyboardEvent) => {
      const target = event.target as HTMLElement;
      const search = document.querySelector<HTMLInputElement>('[role=search] input');
      if ((event.metaKey || event.ctrlKey) && event.key === 'k') {
        event.preventDefault();
        search?.focus();
        return;
      }
      if (event.metaKey || event.ctrlKey || event.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(target.tagName)) return;
      if (event.key === '/') {
        event.preventDefault();
        search?.focus();
      } else if (event.key === '?') {
        onHelp();
      } else if (event.key === 'j' || event.key === 'k') {
        const rows = [...document.querySelectorAll<HTMLElement>('a.row')];
        const at = rows.indexOf(document.activeElement as HTMLElement);
        rows[event.key === 'j' ? Math.min(at + 1, rows.length - 1) : Math.max(at - 1, 0)]?.focus();
      }
    };
    addEventListener('keydown', press);
    return () => removeEventListener('keydown', press);
  }, [onHelp]);
}
