// What a text stands for, in all namespaces: the id of a vulnerability, or a part of ids, of names of workloads and of their images, or a package.
import { useEffect } from 'preact/hooks';
import { useGet } from '../api';
import type { RunningFinding } from '../api.gen';
import { count } from '../format';
import { Exploited, Foreign, NotCovered, SeverityMark, Suppressed, Table, Title, View } from '../parts';
import { href, navigate, usePlace } from '../router';
import { useSession } from '../session';
import { VulnerabilityTable } from './vulnerabilities';
import { Elsewhere, NotKnown } from './vulnerability';
import { WorkloadTable } from './workloads';

// shown is how many results of each kind the page has. The lists that it links have all.
const shown = 20;

// printable matches what may be an id. The manager decides whether it is one, and how its publisher writes it.
const printable = /^[ -~\u2010-\u2015]{1,128}$/;

export function SearchPage() {
  const text = (usePlace().query.get('text') ?? '').trim();
  const exact = useGet(printable.test(text) ? '/api/v1/vulnerabilities/{id}/workloads' : undefined, { id: text }, { limit: 1 });
  const id = exact.data && exact.data.known !== 'NotKnown' && exact.data.known !== 'NotAnID' ? exact.data.id : undefined;
  useEffect(() => {
    if (id !== undefined) navigate(href('/vulnerabilities/{id}', { id }), true);
  }, [id]);
  if (text === '') return <><Title text="Search" /><p class="mute">Type the id of a vulnerability, a part of the name of a workload or of its image, or the name of a package.</p></>;
  if (id !== undefined || printable.test(text) && !exact.data && !exact.error) return <><Title text={`Search for ${text}`} /><p class="mute loading">Loading…</p></>;
  return <Results text={text} unknown={exact.data?.known === 'NotKnown' ? exact.data.id : undefined} />;
}

// Results has what has a text as a part. unknown is the id that the text stands for if the vulnerability data do not have it.
function Results({ text, unknown }: { text: string; unknown: string | undefined }) {
  const { namespaces } = useSession();
  const vulnerabilities = useGet('/api/v1/vulnerabilities', {}, { text, limit: shown });
  const workloads = useGet('/api/v1/workloads', {}, { text, limit: shown });
  const findings = useGet('/api/v1/findings', {}, { package: text, limit: shown });
  return <>
    <Title text={`Search for ${text}`} />
    {unknown && <NotKnown id={unknown}><Elsewhere id={unknown} url={undefined} /></NotKnown>}
    <p class="mute">Workloads and vulnerabilities with this text as a part, and findings in packages of exactly this name, in {namespaces.length === 1 ? 'the namespace' : `all ${count(namespaces.length, 'namespace')}`} that you may see.</p>
    <h2>Workloads</h2>
    <View of={workloads}>{({ items, total, coverage }) => <>
      <NotCovered coverage={coverage} />
      {items.length === 0 ? <p class="mute">No workload that runs a scanned image has this text in its name or in that of its image.</p> : <WorkloadTable rows={items} namespace={undefined} />}
      {total > items.length && <p><a href={href('/workloads', {}, { text })}>All {count(total, 'workload')}</a></p>}
    </>}</View>
    <h2>Vulnerabilities</h2>
    <View of={vulnerabilities}>{({ items, total }) => <>
      {items.length === 0 ? <p class="mute">No vulnerability of an image that runs has this text in its id.</p> : <VulnerabilityTable rows={items} namespace={undefined} />}
      {total > items.length && <p><a href={href('/vulnerabilities', {}, { text })}>All {count(total, 'vulnerability', 'vulnerabilities')}</a></p>}
    </>}</View>
    <h2>Packages</h2>
    <View of={findings}>{({ items, continue: next }) => <>
      {items.length === 0 ? <p class="mute">{next ? 'The first images have no finding in a package of exactly this name.' : 'No finding is in a package of exactly this name.'}</p>
        : <Table label="Findings in packages" rows={items} id={(f) => [f.namespace, f.imageScan, f.engine, f.finding.id, f.finding.package.version].join('/')} columns={findingColumns} />}
      {next && <p class="mute">There may be more: {items.length < shown ? 'not all images were read' : `these are the first ${count(items.length, 'finding')}`}. All: <code>kubectl scanner findings -A --package={text}</code></p>}
    </>}</View>
    {namespaces.length > 0 && <><h2>Images</h2><p>Images, also those that do not run, by namespace:</p>
      <ul class="plain columns">{namespaces.slice(0, 200).map((name) => <li key={name}><a href={href('/images', {}, { namespace: name, text })}>{name}</a></li>)}</ul></>}
  </>;
}

const findingColumns = [
  { name: 'Vulnerability', cell: ({ finding: f }: RunningFinding) => <><a class="row" href={href('/vulnerabilities/{id}', { id: f.id })}>{f.id}</a> {f.knownExploited && <Exploited since={f.knownExploitedSinceTime} />} <Suppressed exception={f.exception} /></> },
  { name: 'Severity', cell: ({ finding: f }: RunningFinding) => <SeverityMark severity={f.severity} /> },
  { name: 'Package', cell: ({ finding: f }: RunningFinding) => <><Foreign text={f.package.name} /> <span class="mute"><Foreign text={f.package.version} /></span></> },
  { name: 'Fixed in', cell: ({ finding: f }: RunningFinding) => (f.fixable ? <Foreign text={(f.fixVersions ?? []).join(', ')} /> : <span class="mute">no fix</span>) },
  { name: 'Image', cell: (f: RunningFinding) => <><a href={href('/namespaces/{namespace}/images/{name}', { namespace: f.namespace, name: f.imageScan })}><Foreign text={f.image} /></a> <span class="mute">{f.namespace}</span></> },
];
