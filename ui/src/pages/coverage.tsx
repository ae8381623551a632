// Which Scanners there are, and what they cover.
import { useGet } from '../api';
import type { ClusterScanner, Scanner, ScannerProblem } from '../api.gen';
import { duration } from '../format';
import { Choose, Conditions, CountsOfImages, Coverage, Facts, Known, Pages, Title, View } from '../parts';
import { href, usePlace } from '../router';
import { useSession } from '../session';

// problems are the choices of the filter by what is wrong.
const problems: Record<ScannerProblem, string> = {
  Stalled: 'cannot continue', Suspended: 'suspended', EngineUnavailable: 'engine does not work', DataOutdated: 'outdated data, or an anomaly', FailedImages: 'failed images',
  MessagesFailing: 'messages failing', NoReceiver: 'no receiver',
};

// hasProblem filters scanners by the problem in the address.
function hasProblem({ problems: present }: Scanner | ClusterScanner, problem: string | null): boolean {
  return !problem || present.some((p) => p === problem);
}

// unknownOf says why a scanner's counts may lack findings, or nothing if they are complete and current.
export function unknownOf({ images: { pending, failed }, problems: present }: Scanner | ClusterScanner): string {
  const stale = present.filter((p) => p !== 'FailedImages' && p !== 'MessagesFailing' && p !== 'NoReceiver').map((p) => problems[p]);
  return [pending > 0 && `${pending} pending`, failed > 0 && `${failed} failed`, ...stale].filter(Boolean).join(', ');
}

export function CoveragePage() {
  const { query } = usePlace();
  const { allNamespaces } = useSession();
  const namespace = query.get('namespace') ?? undefined;
  const position = query.get('continue');
  const scanners = useGet('/api/v1/scanners', {}, { ...(namespace && { namespace }), ...(position && { continue: position }), limit: 500 });
  const problem = query.get('problem');
  return <>
    <Title text={namespace ? `Coverage of ${namespace}` : 'Coverage'}><a href={href('/namespaces')}>Namespaces</a></Title>
    <div class="filters"><Choose name="problem" label="Problem" choices={[{ value: '', label: 'all scanners' }, ...Object.entries(problems).map(([value, label]) => ({ value, label }))]} /></div>
    <View of={scanners}>{(list) => <>
      {list.items.length === 0 ? <p>{namespace ? `There is no Scanner in ${namespace}.` : 'There is no Scanner that you may see.'}</p>
        : !list.items.some((s) => hasProblem(s, problem)) && <p class="mute">No Scanner {list.items.length < list.total && 'on this page '}has this problem.</p>}
      <div class="cards">{list.items.filter((s) => hasProblem(s, problem)).map((s) => <Card key={s.namespace + '/' + s.name} scanner={s} to={href('/namespaces/{namespace}/scanners/{name}', { namespace: s.namespace, name: s.name })} name={`${s.namespace}/${s.name}`} />)}</div>
      {list.items.length < list.total && <Pages shown={list.items.length} total={list.total} next={list.continue} what="Scanner" />}
    </>}</View>
    {allNamespaces && !position && <ClusterScanners namespace={namespace} problem={problem} />}
  </>;
}

function ClusterScanners({ namespace, problem }: { namespace: string | undefined; problem: string | null }) {
  const scanners = useGet('/api/v1/clusterscanners', {}, { ...(namespace && { namespace }), limit: 500 });
  if (scanners.error?.status === 403 || scanners.data?.items.some((s) => hasProblem(s, problem)) === false) return null;
  return <><h2>ClusterScanners</h2><View of={scanners}>{(list) =>
    <div class="cards">{list.items.filter((s) => hasProblem(s, problem)).map((s) => <Card key={s.name} scanner={s} to={href('/clusterscanners/{name}', { name: s.name })} name={s.name} />)}</div>}</View></>;
}

export function Card({ scanner, to, name }: { scanner: Scanner | ClusterScanner; to: string; name: string }) {
  return <section class="card"><h2><a class="row" href={to}>{name}</a></h2><ScannerFacts scanner={scanner} /></section>;
}

export function ScannerFacts({ scanner }: { scanner: Scanner | ClusterScanner }) {
  const data = scanner.vulnerabilityData;
  return <>
    <Coverage images={scanner.images} />
    {scanner.images.failed > 0 && <p>{'namespace' in scanner ? <a href={href('/images', {}, { namespace: scanner.namespace, phase: 'Failed' })}>Failed images</a> : <a href={href('/namespaces')}>Failed images, by namespace</a>}</p>}
    {scanner.problems.includes('NoReceiver') && <div class="notice warn"><p><b>No receiver.</b> Nobody gets a message: <code>spec.notifications</code> is empty.</p></div>}
    <Facts facts={[
      ['Findings', <CountsOfImages counts={scanner.findings} scanned={scanner.images.scanned} gaps={unknownOf(scanner)} />], ['Known exploited', scanner.findings.knownExploited > 0 && String(scanner.findings.knownExploited)],
      ['With a fix', <Known n={scanner.findings.fixable} scanned={scanner.images.scanned} />], ['Engine', `${scanner.engine}${data?.tool ? ` (${data.tool})` : ''}`],
      ['Data', data ? `built ${duration(data.ageSeconds)} ago` : 'none yet'], ['Suspended', scanner.suspended && 'yes: nothing is scanned'],
      ['Namespaces', 'namespaces' in scanner && `${scanner.namespaces.covered} of ${scanner.namespaces.selected}`],
    ]} />
    <Conditions conditions={scanner.conditions} />
  </>;
}
