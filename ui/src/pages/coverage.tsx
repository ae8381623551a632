// Which Scanners there are, and what they cover.
import { useGet } from '../api';
import type { ClusterScanner, Scanner } from '../api.gen';
import { duration } from '../format';
import { Conditions, Counts, Coverage, Facts, Title, View } from '../parts';
import { href, usePlace } from '../router';
import { useSession } from '../session';

export function CoveragePage() {
  const { query } = usePlace();
  const { allNamespaces } = useSession();
  const namespace = query.get('namespace') ?? undefined;
  const scanners = useGet('/api/v1/scanners', {}, { ...(namespace && { namespace }), limit: 500 });
  return <>
    <Title text={namespace ? `Coverage of ${namespace}` : 'Coverage'}><a href={href('/namespaces')}>Namespaces</a></Title>
    <View of={scanners}>{(list) => <>
      {list.items.length === 0 && <p>{namespace ? `There is no Scanner in ${namespace}.` : 'There is no Scanner that you may see.'}</p>}
      <div class="cards">{list.items.map((s) => <Card key={s.namespace + '/' + s.name} scanner={s} to={href('/namespaces/{namespace}/scanners/{name}', { namespace: s.namespace, name: s.name })} name={`${s.namespace}/${s.name}`} />)}</div>
    </>}</View>
    {allNamespaces && !namespace && <ClusterScanners />}
  </>;
}

function ClusterScanners() {
  const scanners = useGet('/api/v1/clusterscanners', {}, { limit: 500 });
  if (scanners.error?.status === 403 || scanners.data?.items.length === 0) return null;
  return <><h2>ClusterScanners</h2><View of={scanners}>{(list) =>
    <div class="cards">{list.items.map((s) => <Card key={s.name} scanner={s} to={href('/clusterscanners/{name}', { name: s.name })} name={s.name} />)}</div>}</View></>;
}

export function Card({ scanner, to, name }: { scanner: Scanner | ClusterScanner; to: string; name: string }) {
  return <section class="card"><h2><a class="row" href={to}>{name}</a></h2><ScannerFacts scanner={scanner} /></section>;
}

export function ScannerFacts({ scanner }: { scanner: Scanner | ClusterScanner }) {
  const data = scanner.vulnerabilityData;
  return <>
    <Coverage images={scanner.images} />
    <Facts facts={[
      ['Findings', <Counts counts={scanner.findings} />], ['Known exploited', scanner.findings.knownExploited > 0 && String(scanner.findings.knownExploited)],
      ['With a fix', String(scanner.findings.fixable)], ['Engine', `${scanner.engine}${data?.tool ? ` (${data.tool})` : ''}`],
      ['Data', data ? `built ${duration(data.ageSeconds)} ago` : 'none yet'], ['Suspended', scanner.suspended && 'yes: nothing is scanned'],
      ['Namespaces', 'namespaces' in scanner && `${scanner.namespaces.covered} of ${scanner.namespaces.selected}`],
    ]} />
    <Conditions conditions={scanner.conditions} />
  </>;
}
