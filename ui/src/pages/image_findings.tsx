// The findings of one image, and how current they are.
import { urlOf, useGet, now } from '../api';
import type { Finding, FindingList, ImageScan } from '../api.gen';
import { date, percent, severities, visible } from '../format';
import { Choose, CSV, Details, exceptionName, Exploited, Facts, Foreign, ListOrigin, Pages, SeverityMark, Suppressed, Table, TextFilter, Time, View, WebLink, yesOrNo } from '../parts';
import { href, usePlace } from '../router';

// pageSize keeps the page small enough for a slow computer.
const pageSize = 50;

// Findings lists the findings that count for the image, or those in the report of another tool. changes lists those that are new instead, or gone.
export function Findings({ image, changes = false, source }: { image: ImageScan; changes?: boolean; source?: string | undefined }) {
  const { query } = usePlace();
  const flag = (name: string) => (query.has(name) ? { [name]: query.get(name) === 'true' } : {});
  const gone = changes && query.get('change') === 'gone';
  const since = query.get('since') ?? dayBefore(7);
  const text = query.get('text'), position = query.get('continue');
  const minSeverity = severities.find((s) => s === query.get('minSeverity'));
  const key = { namespace: image.namespace, name: image.name };
  const filters = {
    ...flag('fixable'), ...flag('knownExploited'), ...flag('suppressed'), ...(text && { text }), ...(minSeverity && { minSeverity }),
    ...(gone && { gone }), ...(changes && !gone && { firstSeenSince: `${since}T00:00:00Z` }), ...(source && { source }), ...(image.phase === 'Failed' && { outdated: true }),
  };
  const findings = useGet('/api/v1/namespaces/{namespace}/imagescans/{name}/findings', key, { ...filters, ...(position && { continue: position }), limit: pageSize });
  return <>
    <div class="filters">
      {changes && <Choose name="change" label="Change" choices={[{ value: '', label: 'new' }, { value: 'gone', label: 'no longer found' }]} />}
      {changes && !gone && <Choose name="since" label="Since" choices={sinceChoices(query.get('since'))} />}
      <TextFilter name="text" label="Vulnerability, package or text" />
      <Choose name="minSeverity" label="Severity" choices={[{ value: '', label: 'all' }, ...severities.slice(0, 5).map((s) => ({ value: s, label: s === 'Critical' ? s : `${s} and worse` }))]} />
      <Choose name="fixable" label="Fix" choices={yesOrNo('available', 'none')} />
      <Choose name="knownExploited" label="Exploited" choices={yesOrNo('known', 'not known')} />
      <Choose name="suppressed" label="Exception" choices={yesOrNo('suppressed', 'not suppressed')} />
      <CSV of="these findings" to={urlOf('/api/v1/namespaces/{namespace}/imagescans/{name}/findings.csv', key, filters)} />
    </div>
    <View of={findings}>{(list) => <>
      <ReportLine list={list} />
      {list.items.length === 0 ? <p class="mute">{[...query.keys()].every((name) => unfiltered.has(name)) ? emptyText(changes, gone, since) : 'No finding passes these filters.'}</p>
        : <Table label="Findings" rows={list.items} id={(f) => [f.id, f.package.name, f.package.version, f.package.type].join('/')} columns={gone ? [...columns.slice(0, 4), goneColumn] : columns} />}
      <Pages shown={list.items.length} total={list.total} next={list.continue} what="finding" />
    </>}</View>
  </>;
}

// unfiltered are the parameters of the address that hide no finding.
const unfiltered = new Set(['tab', 'source', 'change', 'since']);

function emptyText(changes: boolean, gone: boolean, since: string): string {
  if (!changes) return 'No finding.';
  return gone ? 'No finding is gone.' : `No finding is new since ${since}.`;
}

// dayBefore returns a date before today's, by the manager's clock.
function dayBefore(days: number): string {
  return new Date(now() - days * 86_400_000).toISOString().slice(0, 10);
}

// sinceChoices has the date of the address, too: the address may be older.
function sinceChoices(given: string | null) {
  const choices = [{ value: '', label: 'a week ago' }, { value: dayBefore(1), label: 'yesterday' }, { value: dayBefore(30), label: '30 days ago' }];
  return given && choices.every((c) => c.value !== given) ? [...choices, { value: given, label: given }] : choices;
}

// ReportLine says how current the findings are.
function ReportLine({ list }: { list: FindingList }) {
  const { current, engine, matchTime, distro, phase, sbom } = list.report;
  return <p class={current && phase !== 'Failed' ? 'mute' : 'stale'}>Matched by {engine} <Time at={matchTime} />{distro && ` · ${distro}`}
    {!current && ' · waits to be matched with newer vulnerability data'}{phase === 'Failed' && ' · the last attempt failed, and this is the result of an earlier one'}
    {sbom && sbom.source !== 'Image' && <> · the list of packages is <ListOrigin origin={sbom} /></>}</p>;
}

const columns = [
  { name: 'Vulnerability', cell: (f: Finding) => <><a class="row" href={href('/vulnerabilities/{id}', { id: f.id })}>{f.id}</a> {f.knownExploited && <Exploited since={f.knownExploitedSinceTime} />} <Suppressed exception={f.exception} /> {f.source && <span class="mute">found by {f.source}</span>}
    <Details summary="Details">{() => <More finding={f} />}</Details></> },
  { name: 'Severity', cell: (f: Finding) => <SeverityMark severity={f.severity} /> },
  { name: 'Package', cell: (f: Finding) => <><Foreign text={f.package.name} /> <span class="mute"><Foreign text={f.package.version} /> · {f.package.type}</span></> },
  { name: 'Fixed in', cell: (f: Finding) => (f.fixable ? <Foreign text={(f.fixVersions ?? []).join(', ')} /> : <span class="mute">{f.fixState === 'wont-fix' ? 'will not be fixed' : 'no fix'}</span>) },
  { name: 'EPSS', cell: (f: Finding) => (f.epss === undefined ? '' : percent(f.epss)), class: 'number' },
  { name: 'First seen', cell: (f: Finding) => <Time at={f.firstSeenTime} /> },
];

const goneColumn = { name: 'Gone', cell: (f: Finding) => (f.fixedTime ? <>fixed <Time at={f.fixedTime} /></> : <>last seen <Time at={f.lastSeenTime} /></>) };

function More({ finding: f }: { finding: Finding }) {
  const before = (f.severitiesBefore ?? []).map((s) => `${s.severity} until ${date(s.endTime)}`).join(', ');
  return <div class="details">
    {f.description && <p class="text" tabIndex={0}><bdi>{visible(f.description ?? '')}</bdi></p>}
    <Facts facts={[
      ['Aliases', (f.aliases ?? []).join(', ')], ['CVSS', f.cvss === undefined ? '' : String(f.cvss)], ['Earlier severities', before],
      ['Fix known since', f.fixSinceTime && date(f.fixSinceTime)], ['Where', (f.paths ?? []).length > 0 && <><Foreign text={(f.paths ?? []).slice(0, 5).join(', ')} />{(f.paths ?? []).length > 5 && ` and ${(f.paths ?? []).length - 5} more`}</>],
      ['Exception', f.exception && `${exceptionName(f.exception)}: ${f.exception.reason}`], ['Source', f.url && <WebLink to={f.url} />],
    ]} />
  </div>;
}
