// One image: what runs it, its findings, and its documents.
import { urlOf, useGet } from '../api';
import type { Finding, FindingList, ImageScan } from '../api.gen';
import { count, date, percent, severities, shortDigest, visible } from '../format';
import { Choose, Command, Conditions, Copy, Counts, Details, Exploited, Facts, Foreign, Pages, PhaseMark, SeverityMark, Suppressed, Table, TextFilter, Time, Title, View, WebLink, yesOrNo } from '../parts';
import { href, queryOf, usePlace } from '../router';
import { nameOf } from './images';

const tabs = [['', 'Findings'], ['gone', 'No longer found'], ['downloads', 'Downloads']] as const;

export function ImagePage() {
  const { parameters, query } = usePlace();
  const key = { namespace: parameters.namespace ?? '', name: parameters.name ?? '' };
  const scan = useGet('/api/v1/namespaces/{namespace}/imagescans/{name}', key, {});
  const tab = query.get('tab') ?? '';
  if (scan.data === undefined) return <><Title text={key.name} /><View of={scan}>{() => null}</View></>;
  return <View of={scan}>{(image) => <>
    <Title text={nameOf(image)}><Copy text={location.href} what="the link to this page" /></Title>
    <Facts facts={[
      ['Phase', <PhaseMark phase={image.phase} />], ['Findings', <Counts counts={image.findings} />], ['With a fix', image.findings && String(image.findings.fixable)],
      ['Suppressed', image.findings && image.findings.suppressed > 0 && String(image.findings.suppressed)],
      ['Scanned', image.scanTime && <Time at={image.scanTime} />], ['By', `${image.scanner.kind} ${image.scanner.name}${image.engine ? `, ${image.engine}` : ''}`],
      ['Namespace', <a href={href('/images', {}, { namespace: image.namespace })}>{image.namespace}</a>], ['Platform', image.platform],
      ['Digest', <><code title={image.digest}>{shortDigest(image.digest)}</code> <Copy text={image.digest} what="the digest" /></>],
      ['Workloads', image.workloadCount > 0 ? <span class="break">{(image.workloads ?? []).join(', ')}{image.workloadCount > (image.workloads ?? []).length && ` and ${image.workloadCount - (image.workloads ?? []).length} more`}</span> : 'none now'],
      ['Not analyzed', (image.notCovered ?? []).join(', ')], ['Next attempt', image.nextAttemptTime && date(image.nextAttemptTime)],
    ]} />
    {image.phase === 'Failed' && <Conditions conditions={image.conditions} />}
    <nav class="tabs" aria-label="Parts of this image">{tabs.map(([value, label]) => <a key={value} href={location.pathname + queryOf({ tab: value })} aria-current={tab === value ? 'page' : undefined}>{label}</a>)}</nav>
    {tab === 'downloads' ? <Downloads image={image} /> : <Findings image={image} gone={tab === 'gone'} />}
  </>}</View>;
}

// pageSize keeps the page small enough for a slow computer.
const pageSize = 50;

function Findings({ image, gone }: { image: ImageScan; gone: boolean }) {
  const { query } = usePlace();
  const flag = (name: string) => (query.has(name) ? { [name]: query.get(name) === 'true' } : {});
  const text = query.get('text'), position = query.get('continue');
  const minSeverity = severities.find((s) => s === query.get('minSeverity'));
  const findings = useGet('/api/v1/namespaces/{namespace}/imagescans/{name}/findings', { namespace: image.namespace, name: image.name }, {
    ...flag('fixable'), ...flag('knownExploited'), ...flag('suppressed'), ...(text && { text }), ...(minSeverity && { minSeverity }),
    ...(gone && { gone }), ...(image.phase === 'Failed' && { outdated: true }), ...(position && { continue: position }), limit: pageSize,
  });
  return <>
    <div class="filters">
      <TextFilter name="text" label="Vulnerability, package or text" />
      <Choose name="minSeverity" label="Severity" choices={[{ value: '', label: 'all' }, ...severities.slice(0, 5).map((s) => ({ value: s, label: s === 'Critical' ? s : `${s} and worse` }))]} />
      <Choose name="fixable" label="Fix" choices={yesOrNo('available', 'none')} />
      <Choose name="knownExploited" label="Exploited" choices={yesOrNo('known', 'not known')} />
      <Choose name="suppressed" label="Exception" choices={yesOrNo('suppressed', 'not suppressed')} />
    </div>
    <View of={findings}>{(list) => <>
      <ReportLine list={list} />
      {list.items.length === 0 ? <p class="mute">{list.total === 0 && query.size <= (gone ? 1 : 0) ? 'No finding.' : 'No finding passes these filters.'}</p>
        : <Table label="Findings" rows={list.items} id={(f) => [f.id, f.package.name, f.package.version, f.package.type].join('/')} columns={gone ? [...columns.slice(0, 4), goneColumn] : columns} />}
      <Pages shown={list.items.length} total={list.total} next={list.continue} what="finding" />
    </>}</View>
  </>;
}

// ReportLine says how current the findings are.
function ReportLine({ list }: { list: FindingList }) {
  const { current, engine, matchTime, distro, phase } = list.report;
  return <p class={current && phase !== 'Failed' ? 'mute' : 'stale'}>Matched by {engine} <Time at={matchTime} />{distro && ` · ${distro}`}
    {!current && ' · waits to be matched with newer vulnerability data'}{phase === 'Failed' && ' · the last attempt failed, and this is the result of an earlier one'}</p>;
}

const columns = [
  { name: 'Vulnerability', cell: (f: Finding) => <><a class="row" href={href('/vulnerabilities/{id}', { id: f.id })}>{f.id}</a> {f.knownExploited && <Exploited since={f.knownExploitedSinceTime} />} <Suppressed exception={f.exception} />
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
      ['Exception', f.exception && `${f.exception.name}: ${f.exception.reason}`], ['Source', f.url && <WebLink to={f.url} />],
    ]} />
  </div>;
}

const documents = [
  { path: '/api/v1/namespaces/{namespace}/imagescans/{name}/sbom', name: 'SBOM', format: 'Syft JSON', file: 'syft.json' },
  { path: '/api/v1/namespaces/{namespace}/imagescans/{name}/cyclonedx', name: 'Findings', format: 'CycloneDX 1.6', file: 'cdx.json' },
  { path: '/api/v1/namespaces/{namespace}/imagescans/{name}/openvex', name: 'Exceptions', format: 'OpenVEX 0.2.0', file: 'openvex.json' },
];

function Downloads({ image }: { image: ImageScan }) {
  if (!image.findings) return <p>There is no result yet. {count(image.attempts ?? 0, 'attempt')} so far.</p>;
  return <>{documents.map((d) => {
    const url = urlOf(d.path, { namespace: image.namespace, name: image.name });
    return <section key={d.name}><h2>{d.name}</h2><p><a href={url} download={`${image.namespace}-${image.name}.${d.file}`}>{d.format}</a></p>
      <Command text={`curl --cacert ca.crt -H "Authorization: Bearer $TOKEN" ${location.origin}${url}`} /></section>;
  })}</>;
}
