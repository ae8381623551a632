// The vulnerabilities of the images that run, worst first.
import { urlOf, useGet } from '../api';
import type { Vulnerability } from '../api.gen';
import { percent, severities } from '../format';
import { Choose, CSV, Exploited, NotCovered, Pages, SeverityMark, Table, TextFilter, Time, Title, View, yesOrNo } from '../parts';
import { href, usePlace } from '../router';
import { useNamespace } from '../session';

export function VulnerabilitiesPage() {
  const { query } = usePlace();
  const namespace = useNamespace();
  const flag = (name: string) => (query.has(name) ? { [name]: query.get(name) === 'true' } : {});
  const text = query.get('text'), position = query.get('continue'), percentage = Number(query.get('minEPSSPercent'));
  const minSeverity = severities.find((s) => s === query.get('minSeverity'));
  const ofFindings = { ...(namespace && { namespace }), ...flag('fixable'), ...flag('knownExploited'), ...(minSeverity && { minSeverity }) };
  const filters = { ...ofFindings, ...(text && { text }), ...(percentage > 0 && { minEPSSPercent: percentage }) };
  const vulnerabilities = useGet('/api/v1/vulnerabilities', {}, { ...filters, ...(position && { continue: position }), limit: 100 });
  const isFiltered = Object.keys(filters).some((name) => name !== 'namespace');
  return <>
    <Title text={namespace ? `Vulnerabilities in ${namespace}` : 'Vulnerabilities'} />
    <div class="filters">
      <TextFilter name="text" label="Id" />
      <Choose name="minSeverity" label="Severity" choices={[{ value: '', label: 'all' }, ...severities.slice(0, 5).map((s) => ({ value: s, label: s === 'Critical' ? s : `${s} and worse` }))]} />
      <Choose name="fixable" label="Fix" choices={yesOrNo('available', 'none')} />
      <Choose name="knownExploited" label="Exploited" choices={yesOrNo('known', 'not known')} />
      <Choose name="minEPSSPercent" label="EPSS" choices={[{ value: '', label: 'all' }, ...['1', '10', '50'].map((n) => ({ value: n, label: `at least ${n} %` }))]} />
      <CSV of="these vulnerabilities" to={urlOf('/api/v1/vulnerabilities.csv', {}, filters)} />
      {!text && percentage <= 0 && <CSV of="all findings of these vulnerabilities" to={urlOf('/api/v1/findings.csv', {}, ofFindings)} label="CSV of findings" />}
    </div>
    <View of={vulnerabilities}>{(list) => <>
      {(list.items.length > 0 || isFiltered) && <NotCovered coverage={list.coverage} scope={namespace && `in ${namespace}`} />}
      {list.items.length > 0 && <VulnerabilityTable rows={list.items} namespace={namespace} />}
      {list.items.length === 0 && isFiltered && <p class="mute">No vulnerability passes these filters.</p>}
      {list.items.length === 0 && !isFiltered && !position && <NotCovered coverage={list.coverage} scope={namespace && `in ${namespace}`} clear="No image that runs has a known vulnerability" unsure="No vulnerability known" />}
      <Pages shown={list.items.length} total={list.total} next={list.continue} what="vulnerability" many="vulnerabilities" />
    </>}</View>
  </>;
}

export function VulnerabilityTable({ rows, namespace }: { rows: Vulnerability[]; namespace: string | undefined }) {
  return <Table label="Vulnerabilities" rows={rows} id={(v) => v.id} columns={columnsOf(namespace)} />;
}

const columnsOf = (namespace: string | undefined) => [
  { name: 'Vulnerability', cell: (v: Vulnerability) => <><a class="row" href={href('/vulnerabilities/{id}', { id: v.id }, { namespace })}>{v.id}</a> {v.knownExploited && <Exploited />}</> },
  { name: 'Severity', cell: (v: Vulnerability) => <SeverityMark severity={v.severity} /> },
  { name: 'Fix', cell: (v: Vulnerability) => (v.fixable ? 'available' : <span class="mute">none</span>) },
  { name: 'Images', cell: (v: Vulnerability) => v.images, class: 'number' },
  ...(namespace ? [] : [{ name: 'Namespaces', cell: (v: Vulnerability) => v.namespaces, class: 'number' }]),
  { name: 'CVSS', cell: (v: Vulnerability) => v.cvss?.toFixed(1) ?? '', class: 'number' },
  { name: 'EPSS', cell: (v: Vulnerability) => (v.epss === undefined ? '' : percent(v.epss)), class: 'number' },
  { name: 'First seen', cell: (v: Vulnerability) => <Time at={v.firstSeenTime} /> },
];
