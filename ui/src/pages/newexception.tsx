// An exception that does not exist yet: what it would suppress, and its YAML to copy.
import { useState } from 'preact/hooks';
import type { ExceptionPreview, PreviewedFinding } from '../api.gen';
import { now, useGet } from '../api';
import { count, endOfDay, zone, zonedDate } from '../format';
import { Copy, Counts, Exploited, Foreign, NotCovered, SeverityMark, Suppressed, Table, TextFilter, Title, View } from '../parts';
import { href, usePlace } from '../router';

// Selection is what the exception applies to. It is in the address; the rest of the form is not.
type Selection = { vulnerability: string[]; package: string; packageVersion: string; packageType: string; image: string[] };

export function NewException({ namespace }: { namespace: string | undefined }) {
  const { query } = usePlace();
  const text = (name: string) => (query.get(name) ?? '').trim();
  const list = (name: string) => text(name).split(',').map((part) => part.trim()).filter(Boolean);
  const selection = { vulnerability: list('vulnerability'), package: text('package'), packageVersion: text('packageVersion'), packageType: text('packageType'), image: list('image') };
  const isComplete = selection.vulnerability.length > 0 || Boolean(selection.package || selection.packageVersion || selection.packageType);
  return <>
    <Title text={namespace ? `New exception in ${namespace}` : 'New exception for the cluster'}><a href={href('/exceptions', {}, { namespace })}>All exceptions</a></Title>
    <p class="mute">{namespace ? `A VulnerabilityException, for ${namespace} only.` : 'A ClusterVulnerabilityException, for all namespaces. Choose a namespace for an exception of its own.'} Nothing is created here.</p>
    <h2>What it applies to</h2>
    <div class="filters">
      <TextFilter name="vulnerability" label="Vulnerabilities, by comma" /><TextFilter name="package" label="Package, such as linux-*" />
      <TextFilter name="packageVersion" label="Its version" /><TextFilter name="packageType" label="Its type, such as deb" /><TextFilter name="image" label="Images, such as */shop/web*" />
    </div>
    {isComplete ? <><Preview namespace={namespace} selection={selection} /><Manifest namespace={namespace} selection={selection} /></> : <p class="mute">Name a vulnerability or a package.</p>}
  </>;
}

// maxRows keeps the page small enough for a slow computer.
const maxRows = 50;

function Preview({ namespace, selection: s }: { namespace: string | undefined; selection: Selection }) {
  const preview = useGet('/api/v1/exceptions/preview', {}, {
    ...(namespace && { namespace }), ...(s.vulnerability.length > 0 && { vulnerability: s.vulnerability }), ...(s.package && { package: s.package }),
    ...(s.packageVersion && { packageVersion: s.packageVersion }), ...(s.packageType && { packageType: s.packageType }), ...(s.image.length > 0 && { image: s.image }),
  });
  return <View of={preview}>{(found) => <>
    <Answer found={found} />
    <NotCovered coverage={found.coverage} scope={namespace && `in ${namespace}`} />
    {found.items.length > 0 && <Table label="Findings that it would suppress" rows={found.items.slice(0, maxRows)} id={(f) => [f.repository, f.id, f.package.name].join(' ')} columns={columns} />}
    {found.total > maxRows && <p class="mute">{maxRows} of {count(found.total, 'finding')}, the worst first</p>}
  </>}</View>;
}

function Answer({ found }: { found: ExceptionPreview }) {
  const { total, alreadySuppressed, partly } = found;
  return <div class="answer warn">
    <p class="big">{total === 0 ? 'It would suppress nothing that runs now.' : `It would suppress ${count(total, 'finding')}.`}</p>
    {total > 0 && <p><Counts counts={found.findings} /> {found.findings.knownExploited > 0 && <><Exploited /> {found.findings.knownExploited}</>}</p>}
    {alreadySuppressed > 0 && <p>Other exceptions suppress {alreadySuppressed === total ? 'all' : alreadySuppressed} of them already.</p>}
    {partly > 0 && <p>{count(partly, 'finding')} would stay, since the exception does not apply to all images of the repository.</p>}
  </div>;
}

const columns = [
  { name: 'Vulnerability', cell: (f: PreviewedFinding) => <><a class="row" href={href('/vulnerabilities/{id}', { id: f.id })}>{f.id}</a> {f.knownExploited && <Exploited />} <Suppressed exception={f.exception} /></> },
  { name: 'Severity', cell: (f: PreviewedFinding) => <SeverityMark severity={f.severity} /> },
  { name: 'Package', cell: (f: PreviewedFinding) => <><Foreign text={f.package.name} /> <span class="mute"><Foreign text={f.package.version} /> · {f.package.type}</span></> },
  { name: 'In', cell: (f: PreviewedFinding) => <Foreign text={f.repository} /> },
  { name: 'Containers', cell: (f: PreviewedFinding) => f.containers, class: 'number' },
];

const statuses = { not_affected: 'not affected', affected: 'affected: the risk is accepted', fixed: 'fixed, which the version does not show', under_investigation: 'under investigation' };
const justifications = ['vulnerable_code_not_in_execute_path', 'vulnerable_code_not_present', 'component_not_present', 'vulnerable_code_cannot_be_controlled_by_adversary', 'inline_mitigations_already_exist'];

type Decision = { name: string; status: keyof typeof statuses | ''; justification: string; reason: string; action: string; until: string };

function Manifest({ namespace, selection }: { namespace: string | undefined; selection: Selection }) {
  const [decision, setDecision] = useState<Decision>({ name: '', status: '', justification: '', reason: '', action: '', until: '' });
  const set = (values: Partial<Decision>) => setDecision((old) => ({ ...old, ...values }));
  const end = endOfDay(decision.until), missing = missingOf(decision), yaml = yamlOf(namespace, selection, decision);
  return <>
    <h2>Why, and until when</h2>
    <div class="filters">
      <label class="filter">Status <select value={decision.status} onChange={(e) => set({ status: e.currentTarget.value as Decision['status'] })}><option value="">choose</option>{Object.entries(statuses).map(([value, label]) => <option key={value} value={value}>{label}</option>)}</select></label>
      {decision.status === 'not_affected' && <label class="filter">Justification <select value={decision.justification} onChange={(e) => set({ justification: e.currentTarget.value })}><option value="">choose</option>{justifications.map((j) => <option key={j} value={j}>{j.replaceAll('_', ' ')}</option>)}</select></label>}
      <label class="filter">Reason, for people <input value={decision.reason} maxLength={1024} onInput={(e) => set({ reason: e.currentTarget.value })} /></label>
      {decision.status === 'affected' && <label class="filter">What is done about it <input value={decision.action} maxLength={1024} onInput={(e) => set({ action: e.currentTarget.value })} /></label>}
      <label class="filter">Ends after the day, {zone} <input type="date" value={decision.until} onInput={(e) => set({ until: e.currentTarget.value })} /></label>
      <label class="filter">Name <input value={decision.name} placeholder={nameOf(selection)} maxLength={63} onInput={(e) => set({ name: e.currentTarget.value })} /></label>
    </div>
    {end && <p>It ends {zonedDate(end)}, which is {end} in UTC.</p>}
    {missing.length > 0 ? <p class="stale">Still needed: {missing.join(', ')}.</p>
      : <><div class="title"><h2>YAML</h2><Copy text={yaml} what="the YAML" /> <Copy text={decision.name || nameOf(selection)} what="of the exception" label="Copy name" /></div><pre class="yaml" tabIndex={0}>{yaml}</pre>
        <p class="mute">Save it as exception.yaml, then run <code>kubectl apply -f exception.yaml</code>. It needs the ClusterRole <code>scanner-operator-except</code>{!namespace && ' in the whole cluster'}.</p></>}
  </>;
}

// missingOf names what the API server would refuse the exception without.
function missingOf({ name, status, justification, reason, action, until }: Decision): string[] {
  const must = status === 'affected' || status === 'under_investigation', end = endOfDay(until);
  return [
    status === '' && 'a status', status === 'not_affected' && justification === '' && 'a justification', reason.trim() === '' && 'a reason', status === 'affected' && action.trim() === '' && 'what is done about it', must && until === '' && 'an end', end !== undefined && Date.parse(end) <= now() && 'an end that is not over',
    !/^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$/.test(name) && 'a name of lower case letters, digits and -',
  ].filter((text) => text !== false);
}

// nameOf suggests a name of the characters that Kubernetes allows.
function nameOf({ vulnerability, package: name }: Selection): string {
  return (vulnerability[0] ?? name).toLowerCase().replace(/[^a-z0-9]+/g, '-').replace(/^-+/, '').slice(0, 63).replace(/-+$/, '') || 'exception';
}

// yamlOf returns the exception as YAML. Texts are quoted as in JSON, which is YAML too.
function yamlOf(namespace: string | undefined, { vulnerability, package: name, packageVersion: version, packageType: type, image }: Selection, d: Decision): string {
  const field = (key: string, value: string) => (value.trim() ? [`${key}: ${JSON.stringify(value.trim())}`] : []);
  const all = (key: string, values: string[]) => (values.length > 0 ? [`  ${key}:`, ...values.map((value) => `  - ${JSON.stringify(value)}`)] : []);
  const selector = [...field('name', name), ...field('version', version), ...field('type', type)];
  return [
    'apiVersion: scanner-operator.io/v1alpha1', `kind: ${namespace ? 'VulnerabilityException' : 'ClusterVulnerabilityException'}`,
    'metadata:', `  name: ${JSON.stringify(d.name || nameOf({ vulnerability, package: name } as Selection))}`, ...(namespace ? [`  namespace: ${JSON.stringify(namespace)}`] : []),
    'spec:', `  status: ${d.status}`, ...(d.status === 'not_affected' ? [`  justification: ${d.justification}`] : []),
    ...[...field('reason', d.reason), ...(d.status === 'affected' ? field('action', d.action) : [])].map((line) => '  ' + line),
    ...all('vulnerabilities', vulnerability), ...(selector.length > 0 ? ['  packages:', ...selector.map((line, i) => (i === 0 ? '  - ' : '    ') + line)] : []), ...all('images', image),
    ...(d.until ? [`  expirationTime: "${endOfDay(d.until)}"`] : []),
  ].join('\n') + '\n';
}
