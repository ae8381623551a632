// One image: what runs it, its findings, its packages, what another digest would change, and its documents.
import { useState } from 'preact/hooks';
import { ApiError, remove, urlOf, useGet } from '../api';
import type { ExternalReport, ImageScan, SBOMFormat } from '../api.gen';
import { compare, packagesOf, useRead, type ListedFinding, type ListedPackage } from '../documents';
import { count, date, repositoryOf, severities, shortDigest } from '../format';
import { Choose, Command, Conditions, Copy, CopyPage, Counts, Exploited, Facts, Failure, Foreign, ListOrigin, Pages, PhaseMark, SeverityMark, Table, TextFilter, Time, Title, View } from '../parts';
import { href, queryOf, usePlace } from '../router';
import { Findings } from './image_findings';
import { nameOf } from './images';
import { WorkloadLinks } from './workload';

const tabs = [['', 'Findings'], ['changes', 'Changes'], ['packages', 'Packages'], ['compare', 'Compare'], ['other', 'Other tools'], ['downloads', 'Downloads']] as const;

export function ImagePage() {
  const { parameters, query } = usePlace();
  const key = { namespace: parameters.namespace ?? '', name: parameters.name ?? '' };
  const scan = useGet('/api/v1/namespaces/{namespace}/imagescans/{name}', key, {});
  const tab = query.get('tab') ?? '';
  if (scan.data === undefined) return <><Title text={key.name} /><View of={scan}>{() => null}</View></>;
  return <View of={scan}>{(image) => <>
    <Title text={nameOf(image)}><CopyPage name={nameOf(image)} /> {image.mayRescan && <ScanAgain key={`${image.scanTime} ${image.attempts}`} image={image} />}</Title>
    {image.unusedSinceTime && <div class="notice"><p><b>Not running since {date(image.unusedSinceTime)}.</b> Its findings are not counted.</p></div>}
    <Facts facts={[
      ['Phase', <PhaseMark phase={image.phase} />], ['Findings', <Counts counts={image.findings} notCovered={image.notCovered} />], ['With a fix', image.findings && String(image.findings.fixable)],
      ['Suppressed', image.findings && image.findings.suppressed > 0 && String(image.findings.suppressed)],
      ['Scanned', image.scanTime && <Time at={image.scanTime} />], ['By', `${image.scanner.kind} ${image.scanner.name}${image.engine ? `, ${image.engine}` : ''}`],
      ['Namespace', <a href={href('/images', {}, { namespace: image.namespace })}>{image.namespace}</a>], ['Platform', image.platform],
      ['Digest', <><code title={image.digest}>{shortDigest(image.digest)}</code> <Copy text={image.digest} what="the digest" /></>],
      ['Workloads', image.workloadCount > 0 ? <WorkloadLinks namespace={image.namespace} workloads={image.workloads ?? []} total={image.workloadCount} /> : 'none now'],
      ['List of packages', image.sbom && <ListOrigin origin={image.sbom} />],
      ['Not covered', image.notCovered && <span class="stale"><Foreign text={image.notCovered.join(', ')} /></span>], ['Next attempt', image.nextAttemptTime && date(image.nextAttemptTime)],
    ]} />
    {(image.phase === 'Failed' || image.conditions.some((c) => c.type === 'ReceiverNotAllowed')) && <Conditions conditions={image.conditions} />}
    <nav class="tabs" aria-label="Parts of this image">{tabs.map(([value, label]) => <a key={value} href={location.pathname + queryOf({ tab: value })} aria-current={tab === value ? 'page' : undefined}>{label}</a>)}</nav>
    <Part tab={tab} image={image} />
  </>}</View>;
}

function Part({ tab, image }: { tab: string; image: ImageScan }) {
  switch (tab) {
    case 'changes': return <Findings image={image} changes />;
    case 'packages': return <PackagesOf image={image} />;
    case 'compare': return <Compare image={image} />;
    case 'other': return <OtherTools image={image} />;
    case 'downloads': return <Downloads image={image} />;
  }
  return <Findings image={image} />;
}

// ScanAgain is shown only to those who may.
function ScanAgain({ image }: { image: ImageScan }) {
  const [state, setState] = useState<'' | 'asked' | ApiError>('');
  const scan = () => {
    setState('asked');
    remove('/api/v1/namespaces/{namespace}/imagescans/{name}/report', { namespace: image.namespace, name: image.name })
      .catch((error: unknown) => { if (error instanceof ApiError) setState(error); });
  };
  if (state instanceof ApiError) return <Failure error={state} reload={scan} />;
  if (state === 'asked') return <span role="status" class="mute">It is going to be scanned again. This result stays until then.</span>;
  return <button type="button" class="again" onClick={scan}>Scan again</button>;
}

// listSize is the number of packages or findings that a page of a document shows.
const listSize = 100;

// pageOf returns a page of a list that is complete here. The position in the address is the number of items before it.
function pageOf<T>(items: T[], query: URLSearchParams): { shown: T[]; next: string | undefined } {
  const position = Math.max(0, Number(query.get('continue')) || 0), end = position + listSize;
  return { shown: items.slice(position, end), next: end < items.length ? String(end) : undefined };
}

function PackagesOf({ image }: { image: ImageScan }) {
  const { query } = usePlace();
  const packages = useRead(image.findings && [image.name, image.scanTime].join(), (signal) => packagesOf(image, signal));
  const text = (query.get('text') ?? '').toLowerCase();
  if (!image.findings) return <p>There is no result yet.</p>;
  return <>
    <div class="filters"><TextFilter name="text" label="Package, version or type" /></div>
    <View of={packages}>{({ all, items }) => {
      const passing = items.filter((p) => text === '' || `${p.name} ${p.version} ${p.type}`.toLowerCase().includes(text));
      const { shown, next } = pageOf(passing, query);
      return <>
        {!all && <p class="stale">There is no SBOM of this image: these are only the packages with findings.</p>}
        {shown.length === 0 ? <p class="mute">{text ? 'No package has this text.' : 'No package.'}</p>
          : <Table label="Packages" rows={shown.map((p, i) => ({ ...p, i }))} id={(p) => String(p.i)} columns={packageColumns} />}
        <Pages shown={shown.length} total={passing.length} next={next} what="package" />
      </>;
    }}</View>
  </>;
}

const packageColumns = [
  { name: 'Package', cell: (p: ListedPackage) => <a class="row" href={location.pathname + queryOf({ text: p.name.slice(0, 128) })}><Foreign text={p.name} /></a> },
  { name: 'Version', cell: (p: ListedPackage) => <Foreign text={p.version} /> },
  { name: 'Type', cell: (p: ListedPackage) => <Foreign text={p.type} /> },
];

function Compare({ image }: { image: ImageScan }) {
  const { query } = usePlace();
  const scans = useGet('/api/v1/namespaces/{namespace}/imagescans', { namespace: image.namespace }, { scanner: image.scanner.name, scannerKind: image.scanner.kind, limit: 500 });
  const repositories = (s: ImageScan) => (s.references ?? []).map(repositoryOf);
  if (!image.findings) return <p>There is no result yet.</p>;
  return <View of={scans}>{(list) => {
    const others = list.items.filter((s) => s.name !== image.name && s.findings && repositories(s).some((r) => repositories(image).includes(r)));
    const other = others.find((s) => s.name === query.get('with')) ?? others[0];
    if (!other) return <p>{image.scanner.name} has no result for another digest of this repository in {image.namespace}{list.continue && ', among the first 500 images'}. Run the other image there, and it can be compared.</p>;
    return <>
      <div class="filters">
        <Choose name="with" label="With" choices={others.map((s, i) => ({ value: i === 0 ? '' : s.name, label: `${nameOf(s)} (${shortDigest(s.digest)}, ${s.platform})` }))} />
        <Choose name="show" label="Show" choices={[{ value: '', label: 'what would end' }, { value: 'come', label: 'what would come' }]} />
      </div>
      <Compared image={image} other={other} />
    </>;
  }}</View>;
}

function Compared({ image, other }: { image: ImageScan; other: ImageScan }) {
  const { query } = usePlace();
  const compared = useRead([image.name, image.scanTime, other.name, other.scanTime].join(), (signal) => compare(image, other, signal));
  return <View of={compared}>{({ ended, come, both }) => {
    const listed = query.get('show') === 'come' ? come : ended;
    const { shown, next } = pageOf(listed, query);
    return <>
      <p>With <code>{shortDigest(other.digest)}</code> instead of <code>{shortDigest(image.digest)}</code>, <b>{count(ended.length, 'finding')} would end</b> ({bySeverity(ended)}) and <b>{come.length} would come</b> ({bySeverity(come)}). {count(both, 'finding')} {both === 1 ? 'is' : 'are'} in both. Findings that exceptions suppress count, too.</p>
      {shown.length === 0 ? <p class="mute">None.</p> : <Table label="Compared findings" rows={shown} id={(f) => [f.id, f.package, f.version].join('/')} columns={comparedColumns} />}
      <Pages shown={shown.length} total={listed.length} next={next} what="finding" />
    </>;
  }}</View>;
}

function bySeverity(findings: ListedFinding[]): string {
  const counted = severities.map((s) => [findings.filter((f) => f.severity === s).length, s] as const).filter(([n]) => n > 0);
  return counted.map(([n, s]) => `${n} ${s}`).join(', ') || 'none';
}

const comparedColumns = [
  { name: 'Vulnerability', cell: (f: ListedFinding) => <><a class="row" href={href('/vulnerabilities/{id}', { id: f.id })}>{f.id}</a> {f.knownExploited && <Exploited />}</> },
  { name: 'Severity', cell: (f: ListedFinding) => <SeverityMark severity={f.severity} /> },
  { name: 'Package', cell: (f: ListedFinding) => <><Foreign text={f.package} /> <span class="mute"><Foreign text={f.version} /></span></> },
  { name: 'Fixed in', cell: (f: ListedFinding) => (f.fixed.length > 0 ? <Foreign text={f.fixed.join(', ')} /> : <span class="mute">no fix</span>) },
];

// OtherTools lists the reports that other programs have saved about the image, or shows the findings of one.
function OtherTools({ image }: { image: ImageScan }) {
  const { query } = usePlace();
  const source = query.get('source') ?? undefined;
  const reports = useGet('/api/v1/namespaces/{namespace}/images/{digest}/reports', { namespace: image.namespace, digest: image.digest }, {});
  const addressOf = (r: ExternalReport) => urlOf('/api/v1/namespaces/{namespace}/images/{digest}/reports/{source}', { namespace: image.namespace, digest: image.digest, source: r.source }, { platform: r.platform });
  if (source) return <><p>Findings in the report of <b>{source}</b>. <a href={location.pathname + queryOf({ tab: 'other' })}>All reports</a></p><Findings image={image} source={source} /></>;
  return <View of={reports}>{(list) => list.items.length === 0 ? <p class="mute">No other tool has saved a report on this image in {image.namespace}.</p>
    : <Table label="Reports of other tools" rows={list.items} id={(r) => `${r.source} ${r.platform ?? ''}`} columns={[
      { name: 'Source', cell: (r) => <a class="row" href={location.pathname + queryOf({ tab: 'other', source: r.source })}>{r.source}</a> },
      { name: 'Tool', cell: (r) => <Foreign text={r.tool ?? ''} /> }, { name: 'Platform', cell: (r) => r.platform ?? 'all' },
      { name: 'Findings', cell: (r) => r.findings, class: 'number' }, { name: 'Made', cell: (r) => <Time at={r.documentTime} /> },
      { name: 'Saved', cell: (r) => <><Time at={r.savedTime} /> <span class="mute break">by {r.user}</span></> },
      { name: 'Document', cell: (r) => <a href={addressOf(r)} download={`${image.namespace}-${image.name}.${r.source}.cdx.json`}>CycloneDX</a> },
    ]} />}</View>;
}

const sbomFormats: { format: SBOMFormat; name: string; file: string }[] = [
  { format: 'syft-json', name: 'Syft JSON', file: 'syft.json' },
  { format: 'cyclonedx-json', name: 'CycloneDX 1.6, all packages', file: 'sbom.cdx.json' },
  { format: 'spdx-json', name: 'SPDX 2.3', file: 'spdx.json' },
];

const documents = [
  { path: '/api/v1/namespaces/{namespace}/imagescans/{name}/cyclonedx', name: 'Findings', format: 'CycloneDX 1.6', file: 'cdx.json' },
  { path: '/api/v1/namespaces/{namespace}/imagescans/{name}/sarif', name: 'Findings for code scanning', format: 'SARIF 2.1.0', file: 'sarif' },
  { path: '/api/v1/namespaces/{namespace}/imagescans/{name}/findings.csv', name: 'Findings for a spreadsheet', format: 'CSV', file: 'csv' },
  { path: '/api/v1/namespaces/{namespace}/imagescans/{name}/openvex', name: 'Exceptions', format: 'OpenVEX 0.2.0', file: 'openvex.json' },
];

function Downloads({ image }: { image: ImageScan }) {
  if (!image.findings) return <p>There is no result yet. {count(image.attempts ?? 0, 'attempt')} so far.</p>;
  return <><SBOMs image={image} />{documents.map((d) => {
    const url = urlOf(d.path, { namespace: image.namespace, name: image.name }, { ...(image.phase === 'Failed' && { outdated: true }) });
    return <section key={d.name}><h2>{d.name}</h2><Download image={image} url={url} text={d.format} file={d.file} /></section>;
  })}</>;
}

// SBOMs links the SBOM in each format that is stored, and says how to get the others.
function SBOMs({ image }: { image: ImageScan }) {
  const isStored = ({ format }: { format: SBOMFormat }) => image.sbomFormats?.includes(format);
  const missing = sbomFormats.filter((f) => !isStored(f)).map((f) => f.format);
  return <section><h2>SBOM</h2>
    {sbomFormats.filter(isStored).map((f) => {
      const url = urlOf('/api/v1/namespaces/{namespace}/imagescans/{name}/sbom', { namespace: image.namespace, name: image.name }, { format: f.format });
      return <Download key={f.format} image={image} url={url} text={f.name} file={f.file} />;
    })}
    {!image.sbomFormats ? <p class="mute">There is no SBOM. Grype makes one, Clair does not.</p>
      : missing.length > 0 && <p class="mute">Not stored: {missing.join(', ')}. Once the operator's configuration names a format (<code>grype.catalog.additionalFormats</code>), images that are scanned again have it.</p>}
  </section>;
}

function Download({ image, url, text, file }: { image: ImageScan; url: string; text: string; file: string }) {
  return <><p><a href={url} download={`${image.namespace}-${image.name}.${file}`}>{text}</a></p>
    <Command text={`curl --cacert ca.crt -H "Authorization: Bearer $TOKEN" '${location.origin}${url}'`} /></>;
}
