// The namespaces with what there is to act on in each, and the ClusterScanners, for people who look after several.
import { useGet } from '../api';
import type { ClusterScanner, NamespaceDetails } from '../api.gen';
import { duration, number } from '../format';
import { Choose, CountsOfImages, gapsOf, Known, Pages, Table, Title, View, yesOrNo } from '../parts';
import { href, usePlace } from '../router';
import { useSession } from '../session';
import { unknownOf } from './coverage';

export function NamespacesPage() {
  const { query } = usePlace();
  const { allNamespaces } = useSession();
  const position = query.get('continue'), scanned = query.get('scanned'), excluded = query.get('excluded');
  const namespaces = useGet('/api/v1/namespaces', {}, { ...(scanned && { scanned: scanned === 'true' }), ...(excluded && { excluded: excluded === 'true' }), ...(position && { continue: position }), limit: 100 });
  return <>
    <Title text="Namespaces" />
    <View of={namespaces}>{(list) => <>
      {list.allNamespaces && <div class="filters"><Choose name="scanned" label="Scanned" choices={[{ value: '', label: 'all' }, { value: 'true', label: 'scanned' }, { value: 'false', label: 'not scanned' }]} />
        <Choose name="excluded" label="Excluded" choices={yesOrNo('excluded', 'not excluded')} /></div>}
      {list.items.length === 0 ? <p class="mute">{emptyOf(list.allNamespaces, scanned, excluded)}</p>
        : <Table label="Namespaces, those with most to act on first" rows={list.items} id={(n) => n.name} columns={columns} />}
      <Pages shown={list.items.length} total={list.total} next={list.continue} what="namespace" />
      {!list.allNamespaces && <p class="mute">Namespaces that are not scanned are left out. They are shown to users who may list namespaces and imagescans in the whole cluster.</p>}
    </>}</View>
    {allNamespaces && !position && <ClusterScanners />}
  </>;
}

// emptyOf says what it means that no namespace passes the filters. Who does not see all namespaces does not learn that each is scanned.
function emptyOf(all: boolean, scanned: string | null, excluded: string | null): string {
  if (!all && scanned === 'false') return 'Which namespaces are not scanned is shown only to users who see all.';
  if (scanned === 'false') return excluded ? `Every namespace that is ${excluded === 'true' ? '' : 'not '}excluded is scanned.` : 'Every namespace is scanned.';
  return excluded ? 'No namespace passes these filters.' : 'No namespace is scanned.';
}

const columns = [
  { name: 'Namespace', cell: (n: NamespaceDetails) => (n.scanners.length > 0 ? <a class="row" href={href('/', {}, { namespace: n.name })}>{n.name}</a> : n.name) },
  { name: 'Known exploited', cell: (n: NamespaceDetails) => (n.findings.knownExploited > 0 ? <b class="severity Critical">{number(n.findings.knownExploited)}</b> : <Known n={0} scanned={n.coverage.scanned} />), class: 'number' },
  { name: 'Findings', cell: (n: NamespaceDetails) => (n.scanners.length > 0 ? <CountsOfImages counts={n.findings} scanned={n.coverage.scanned} gaps={gapsOf(n.coverage.notCovered)} /> : <span class="mute">–</span>) },
  { name: 'With a fix', cell: (n: NamespaceDetails) => <Known n={n.findings.fixable} scanned={n.coverage.scanned} />, class: 'number' },
  { name: 'Images', cell: (n: NamespaceDetails) => <Images of={n} /> },
  { name: 'Scanned by', cell: (n: NamespaceDetails) => n.scanners.map((s) => <div key={s.kind + s.name}><a href={s.kind === 'Scanner'
    ? href('/namespaces/{namespace}/scanners/{name}', { namespace: n.name, name: s.name }) : href('/clusterscanners/{name}', { name: s.name })}>{s.kind} {s.name}</a></div>) },
];

function Images({ of: n }: { of: NamespaceDetails }) {
  if (n.scanners.length === 0) return <span class="stale">not scanned</span>;
  const gaps = gapsOf(n.coverage.notCovered);
  return <><a href={href('/images', {}, { namespace: n.name })}>{number(n.coverage.scanned)} scanned</a>{gaps && <div class="stale">{gaps}</div>}{n.coverage.excluded > 0 && <div class="mute">{n.coverage.excluded} excluded</div>}</>;
}

function ClusterScanners() {
  const scanners = useGet('/api/v1/clusterscanners', {}, { limit: 100 });
  if (scanners.error?.status === 403 || scanners.data?.items.length === 0) return null;
  return <><h2>ClusterScanners</h2><View of={scanners}>{(list) => <>
    <Table label="ClusterScanners" rows={list.items} id={(s) => s.name} columns={scannerColumns} />
    {list.continue && <p class="mute">{list.items.length} of {list.total}</p>}
  </>}</View></>;
}

const scannerColumns = [
  { name: 'ClusterScanner', cell: (s: ClusterScanner) => <><a class="row" href={href('/clusterscanners/{name}', { name: s.name })}>{s.name}</a> {s.suspended && <span class="mark">suspended</span>}</> },
  { name: 'Namespaces', cell: (s: ClusterScanner) => <>{s.namespaces.covered} of {s.namespaces.selected}<div class="mute">{othersOf(s)}</div></> },
  { name: 'Images', cell: (s: ClusterScanner) => <>{number(s.images.scanned)} scanned{s.images.pending + s.images.failed > 0 && <div class="stale">{s.images.pending} pending, {s.images.failed} failed</div>}</> },
  { name: 'Findings', cell: (s: ClusterScanner) => <CountsOfImages counts={s.findings} scanned={s.images.scanned} gaps={unknownOf(s)} /> },
  { name: 'Data', cell: (s: ClusterScanner) => (s.vulnerabilityData ? `${s.engine}, built ${duration(s.vulnerabilityData.ageSeconds)} ago` : `${s.engine}, none yet`) },
];

// othersOf says why selected namespaces are not covered.
function othersOf({ namespaces: { own, excluded, terminating, notWatched } }: ClusterScanner): string {
  return [own > 0 && `${own} with their own Scanner`, excluded > 0 && `${excluded} excluded`, terminating > 0 && `${terminating} terminating`, notWatched > 0 && `${notWatched} not watched`].filter(Boolean).join(', ');
}
