// The workloads whose pods run scanned images, the most urgent first.
import { urlOf, useGet } from '../api';
import type { RunningWorkload } from '../api.gen';
import { count, countsOf, number } from '../format';
import { Counts, CSV, Exploited, Foreign, gapsOf, Known, NotCovered, Pages, Table, TextFilter, Title, View } from '../parts';
import { href, usePlace } from '../router';
import { useNamespace } from '../session';

export function WorkloadsPage() {
  const { query } = usePlace();
  const namespace = useNamespace();
  const text = query.get('text'), position = query.get('continue');
  const filters = { ...(namespace && { namespace }), ...(text && { text }) };
  const workloads = useGet('/api/v1/workloads', {}, { ...filters, ...(position && { continue: position }), limit: 50 });
  const scope = namespace && `in ${namespace}`;
  return <>
    <Title text={namespace ? `Workloads in ${namespace}` : 'Workloads'} />
    <div class="filters"><TextFilter name="text" label="Name" /><CSV of="these workloads" to={urlOf('/api/v1/workloads.csv', {}, filters)} /></div>
    <View of={workloads}>{({ items, total, coverage, continue: next }) => <>
      <NotCovered coverage={coverage} scope={scope} />
      {items.length > 0 && <WorkloadTable rows={items} namespace={namespace} />}
      {items.length === 0 && !position && <p class="mute">{text ? 'No workload has this text in its name.' : emptyOf(coverage.scanners, scope ?? 'in the namespaces that you may see')}</p>}
      <Pages shown={items.length} total={total} next={next} what="workload" />
    </>}</View>
  </>;
}

export function WorkloadTable({ rows, namespace }: { rows: RunningWorkload[]; namespace: string | undefined }) {
  return <Table label="Workloads, the most urgent first" rows={rows} id={(w) => [w.namespace, w.kind, w.name].join('/')} columns={columnsOf(namespace)} />;
}

// emptyOf says why there is no workload.
function emptyOf(scanners: number, where: string): string {
  if (scanners === 0) return `Nothing is scanned ${where}: there is no Scanner and no ClusterScanner for it.`;
  return `No pod runs a scanned image ${where}. Images that are excluded are not listed.`;
}

const columnsOf = (namespace: string | undefined) => [
  { name: 'Workload', cell: (w: RunningWorkload) => <><a class="row" href={href('/namespaces/{namespace}/workloads/{kind}/{name}', { namespace: w.namespace, kind: w.kind, name: w.name })}><Foreign text={`${w.kind}/${w.name}`} /></a>{' '}
    {w.findings.knownExploited > 0 && <><Exploited /> {w.findings.knownExploited > 1 && w.findings.knownExploited}</>}</> },
  ...(namespace ? [] : [{ name: 'Namespace', cell: (w: RunningWorkload) => w.namespace }]),
  { name: 'To act on', cell: (w: RunningWorkload) => (w.toActOn > 0 ? <b>{number(w.toActOn)}</b> : <Known n={0} scanned={hasNoResult(w) ? 0 : 1} />), class: 'number' },
  { name: 'Findings', cell: (w: RunningWorkload) => <>{hasNoResult(w) ? <Counts counts={undefined} /> : <Counts counts={w.findings} notCovered={gapsOf(w.notCovered) ? [gapsOf(w.notCovered)] : []} />}
    {w.findings.suppressed > 0 && countsOf(w.findings).worst.length + countsOf(w.findings).lower > 0 && <div class="mute">{w.findings.suppressed} suppressed</div>}</> },
  { name: 'Images', cell: (w: RunningWorkload) => <>{count(w.images, 'image')} in {count(w.containers, 'container')}{gapsOf({ ...w.notCovered, staleScanners: 0 }) && <div class="stale">{gapsOf({ ...w.notCovered, staleScanners: 0 })}</div>}</> },
];

// hasNoResult reports whether nothing is known of a workload, so that no finding must not look like none.
function hasNoResult({ findings, images, notCovered }: RunningWorkload): boolean {
  const { critical, high, medium, low, negligible, unknown, suppressed } = findings;
  return critical + high + medium + low + negligible + unknown + suppressed === 0 && notCovered.pending + notCovered.failed === images;
}
