// What has changed in a namespace since a time: the words are those of the messages.
import { now, useGet } from '../api';
import type { Change, ChangeKind, ChangeList } from '../api.gen';
import { count, number } from '../format';
import { Choose, Exploited, Foreign, gapsOf, NotCovered, SeverityMark, Suppressed, Table, Time, Title, View } from '../parts';
import { href, usePlace } from '../router';
import { useNamespace, useSession } from '../session';

const periods = [{ value: '', label: '7 days' }, { value: '1', label: '24 hours' }, { value: '30', label: '30 days' }, { value: '90', label: '90 days' }];

export function ChangesPage() {
  const namespace = useNamespace();
  const { namespaces } = useSession();
  if (namespace) return <ChangesOf namespace={namespace} />;
  return <>
    <Title text="Changes" />
    <p>Choose a namespace.</p><ul class="plain columns">{namespaces.map((name) => <li key={name}><a class="row" href={href('/changes', {}, { namespace: name })}>{name}</a></li>)}</ul>
  </>;
}

function ChangesOf({ namespace }: { namespace: string }) {
  const days = Number(periods.find((p) => p.value === usePlace().query.get('days'))?.value) || 7;
  // The start moves on each hour: the manager refuses one that is 90 days ago, and each request with another one is another list. A minute is left for
  // the difference of the clocks.
  const hour = Math.ceil((now() + 60_000) / 3_600_000);
  const since = new Date(hour * 3_600_000 - days * 86_400_000).toISOString();
  const changes = useGet('/api/v1/namespaces/{namespace}/changes', { namespace }, { since });
  return <>
    <Title text={`Changes in ${namespace}`}><a href={href('/', {}, { namespace })}>Actions</a></Title>
    <div class="filters"><Choose name="days" label="Within" choices={periods} /></div>
    <View of={changes}>{(list) => <>
      <p>{number(list.new)} new · {number(list.fixAvailable)} with a fix now · {number(list.fixed)} fixed</p>
      <NotCovered coverage={list.coverage} scope={`in ${namespace}`} />
      {list.unknown.length > 0 && <p class="stale">What is fixed is not known yet of {count(list.unknown.length, 'repository', 'repositories')} with an image that has no result or only a partial one, or data with an anomaly: {list.unknown.slice(0, 5).join(', ')}{list.unknown.length > 5 && ` and ${list.unknown.length - 5} more`}</p>}
      {kinds.map((kind) => <Part key={kind.change} kind={kind} list={list} namespace={namespace} />)}
      {list.items.length === 0 && <p class="mute">{list.unknown.length > 0 || gapsOf(list.coverage.notCovered) ? 'No change is known.' : 'Nothing has changed.'}</p>}
    </>}</View>
  </>;
}

// maxRows of each kind keep the page small enough for a slow computer.
const maxRows = 25;

type Kind = { change: ChangeKind; title: string; total: (list: ChangeList) => number };

const kinds: Kind[] = [
  { change: 'New', title: 'New', total: (list) => list.new },
  { change: 'FixAvailable', title: 'Fix available', total: (list) => list.fixAvailable },
  { change: 'Fixed', title: 'Fixed', total: (list) => list.fixed },
];

function Part({ kind: { change, title, total }, list, namespace }: { kind: Kind; list: ChangeList; namespace: string }) {
  const rows = list.items.filter((c) => c.change === change).slice(0, maxRows);
  if (rows.length === 0) return null;
  return <><h2>{title}</h2>
    <Table label={title} rows={rows} id={(c) => [c.repository, c.id, c.package.name].join(' ')} columns={columns(namespace)} />
    {rows.length < total(list) && <p class="mute">{rows.length} of {number(total(list))}, the worst first</p>}</>;
}

const columns = (namespace: string) => [
  { name: 'Vulnerability', cell: (c: Change) => <><a class="row" href={href('/vulnerabilities/{id}', { id: c.id }, { namespace })}>{c.id}</a> {c.knownExploited && <Exploited />} <Suppressed exception={c.exception} /></> },
  { name: 'Severity', cell: (c: Change) => <SeverityMark severity={c.severity} /> },
  { name: 'Package', cell: (c: Change) => <><Foreign text={c.package.name} /> <span class="mute"><Foreign text={c.package.version} />{c.fixable && <> → <Foreign text={(c.fixVersions ?? []).join(', ')} /></>}</span></> },
  { name: 'In', cell: (c: Change) => <a href={href('/images', {}, { namespace, text: c.repository })}><Foreign text={c.repository} /></a> },
  { name: 'When', cell: (c: Change) => <Time at={c.time} /> },
];
