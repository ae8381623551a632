// One workload: its images, its findings, and what of it is not scanned.
import { useGet } from '../api';
import type { WorkloadDetails, WorkloadFinding, WorkloadImage } from '../api.gen';
import { count, percent, shortDigest } from '../format';
import { CopyPage, Counts, Exploited, Foreign, gapsOf, PhaseMark, SeverityMark, Suppressed, Table, Time, Title, View } from '../parts';
import { href, usePlace } from '../router';

export function WorkloadPage() {
  const { parameters: { namespace = '', kind = '', name = '' } } = usePlace();
  const workload = useGet('/api/v1/namespaces/{namespace}/workloads/{kind}/{name}', { namespace, kind, name }, {});
  return <>
    <Title text={`${kind}/${name}`}><CopyPage name={`${kind}/${name}`} /> <a href={href('/images', {}, { namespace })}>Images in {namespace}</a></Title>
    <View of={workload}>{(found) => <>
      <Answer found={found} namespace={namespace} />
      <Table label="Images" rows={found.images} id={(i) => [i.container, i.image, i.digest, i.platform, i.scanner?.kind, i.scanner?.name].join(' ')} columns={imageColumns(namespace)} />
      {found.items.length > 0 && <><h2>Findings</h2><Table label="Findings" rows={found.items} id={(f) => [f.id, f.package.type, f.package.name].join(' ')} columns={findingColumns(namespace)} /></>}
      {found.total > 0 && <p class="mute">{found.items.length < found.total ? `${found.items.length} of ${count(found.total, 'finding')}, the worst first. Each image has all of its own.` : count(found.total, 'finding')}</p>}
    </>}</View>
  </>;
}

// Answer is green only if every image has a complete result and there is no finding.
function Answer({ found: { findings, total, notCovered }, namespace }: { found: WorkloadDetails; namespace: string }) {
  const gaps = gapsOf(notCovered), { ecosystems } = notCovered;
  const open = total - findings.suppressed;
  const headline = open > 0 ? `${count(open, 'finding')}${findings.knownExploited > 0 ? `, ${findings.knownExploited} known exploited` : ''}` : gaps ? 'No finding is known.' : findings.suppressed > 0 ? 'No finding that needs action.' : 'No finding.';
  return <div class={`answer ${open > 0 ? 'bad' : gaps ? 'warn' : 'good'}`}>
    <p class="big">{headline}</p>
    {open > 0 && <p><Counts counts={findings} /> · {findings.fixable} with a fix</p>}
    {findings.suppressed > 0 && <p>Exceptions suppress {count(findings.suppressed, 'finding')}.</p>}
    {gaps && <p>{open > 0 && 'There may be more. '}Not covered: {gaps}.{ecosystems && ecosystems.length > 0 && ` No engine covers ${ecosystems.join(', ')}.`} <a href={href('/coverage', {}, { namespace })}>Coverage</a></p>}
  </div>;
}

const imageColumns = (namespace: string) => [
  { name: 'Image', cell: (i: WorkloadImage) => <>{i.imageScan ? <a class="row" href={href('/namespaces/{namespace}/images/{name}', { namespace, name: i.imageScan })}><Foreign text={i.image} /></a> : <Foreign text={i.image} />}
    <div class="mute">{shortDigest(i.digest)} · {i.platform}{i.scanner && ` · ${i.scanner.kind} ${i.scanner.name}`}</div></> },
  { name: 'Container', cell: (i: WorkloadImage) => i.container },
  { name: 'Phase', cell: (i: WorkloadImage) => <><PhaseMark phase={i.phase} />{i.scanReason && i.scanReason !== i.phase && <div class="mute">{i.scanReason}</div>}{i.notCovered && <div class="mute">not covered: <Foreign text={i.notCovered.join(', ')} /></div>}</> },
  { name: 'Findings', cell: (i: WorkloadImage) => <Counts counts={i.findings} notCovered={i.notCovered} /> },
  { name: 'Scanned', cell: (i: WorkloadImage) => <Time at={i.scanTime} /> },
];

const findingColumns = (namespace: string) => [
  { name: 'Vulnerability', cell: (f: WorkloadFinding) => <><a class="row" href={href('/vulnerabilities/{id}', { id: f.id }, { namespace })}>{f.id}</a> {f.knownExploited && <Exploited />} <Suppressed exception={f.exception} /></> },
  { name: 'Severity', cell: (f: WorkloadFinding) => <SeverityMark severity={f.severity} /> },
  { name: 'Package', cell: (f: WorkloadFinding) => <><Foreign text={f.package.name} /> <span class="mute"><Foreign text={f.package.version} /> · {f.package.type}</span></> },
  { name: 'Fixed in', cell: (f: WorkloadFinding) => (f.fixable ? <Foreign text={(f.fixVersions ?? []).join(', ')} /> : <span class="mute">no fix</span>) },
  { name: 'EPSS', cell: (f: WorkloadFinding) => (f.epss === undefined ? '' : percent(f.epss)), class: 'number' },
  { name: 'Containers', cell: (f: WorkloadFinding) => f.containers.join(', ') },
];

// WorkloadLink is the name of a workload, with the link to its page.
export function WorkloadLink({ namespace, kind, name }: { namespace: string; kind: string; name: string }) {
  return <a class="break" href={href('/namespaces/{namespace}/workloads/{kind}/{name}', { namespace, kind, name })}>{kind}/{name}</a>;
}

// WorkloadLinks are some workloads, given as Deployment/web, with how many more there are.
export function WorkloadLinks({ namespace, workloads, total }: { namespace: string; workloads: string[]; total: number }) {
  return <span class="break">{workloads.map((text, i) => {
    const [kind = '', name = ''] = text.split('/');
    return <>{i > 0 && ', '}<WorkloadLink key={text} namespace={namespace} kind={kind} name={name} /></>;
  })}{total > workloads.length && ` and ${total - workloads.length} more`}</span>;
}
