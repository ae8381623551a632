// The images of a namespace: those that failed first, and those that do not run last.
import { urlOf, useGet } from '../api';
import type { ImageScan } from '../api.gen';
import { count, date, shortDigest } from '../format';
import { useNamespace, useSession } from '../session';
import { Choose, Counts, CSV, Foreign, Known, Pages, PhaseMark, Table, TextFilter, Time, Title, View } from '../parts';
import { href, usePlace } from '../router';

const phases = ['Failed', 'Pending', 'Cataloging', 'Matching', 'Scanned'] as const;

export function ImagesPage() {
  const namespace = useNamespace();
  const { query } = usePlace();
  const filter = { text: query.get('text') ?? undefined, phase: query.get('phase') ?? undefined };
  const { namespaces } = useSession();
  if (namespace) return <ImagesOf namespace={namespace} />;
  return <>
    <Title text="Images" />
    {namespaces.length === 0
      ? <p>You may not list images in any namespace that is scanned. Ask for the ClusterRole <code>scanner-operator-view</code> in yours.</p>
      : <><p>Choose a namespace.</p><ul class="plain columns">{namespaces.map((name) => <li key={name}><a class="row" href={href('/images', {}, { namespace: name, ...filter })}>{name}</a></li>)}</ul></>}
  </>;
}

function ImagesOf({ namespace }: { namespace: string }) {
  const { query } = usePlace();
  const phase = phases.find((p) => p === query.get('phase'));
  const position = query.get('continue') ?? undefined;
  const text = (query.get('text') ?? '').toLowerCase();
  const scans = useGet('/api/v1/namespaces/{namespace}/imagescans', { namespace }, { ...(phase && { phase }), ...(position && { continue: position }), limit: text ? 500 : 100 });
  return <>
    <Title text={`Images in ${namespace}`} />
    <div class="filters">
      <TextFilter name="text" label="Name, digest or workload" />
      <Choose name="phase" label="Phase" choices={[{ value: '', label: 'all' }, ...phases.map((p) => ({ value: p, label: p }))]} />
      {text === '' && <CSV of="these images" to={urlOf('/api/v1/namespaces/{namespace}/imagescans.csv', { namespace }, { ...(phase && { phase }) })} />}
    </div>
    <View of={scans}>{(list) => {
      const shown = list.items.filter((s) => text === '' || [s.digest, ...(s.references ?? []), ...(s.workloads ?? [])].some((t) => t.toLowerCase().includes(text)));
      return <>
        {shown.length === 0 ? <p class="mute">{list.total === 0 ? `No image in ${namespace}${phase ? ` is ${phase}` : ''}.` : 'No image on this page has this text.'}</p>
          : <Table label="Images" rows={shown.sort(failedFirst)} id={(s) => s.name} columns={columns} rowClass={(s) => (s.unusedSinceTime ? 'unused' : undefined)} />}
        {list.notRunning > 0 && <p class="mute">{count(list.total - list.notRunning, 'image')} {list.total - list.notRunning === 1 ? 'runs' : 'run'}. {list.notRunning === 1 ? '1 does not run and is' : `${list.notRunning} do not run and are`} not counted elsewhere.</p>}
        <Pages shown={shown.length} total={list.total} next={list.continue} what="image" />
      </>;
    }}</View>
  </>;
}

function failedFirst(a: ImageScan, b: ImageScan): number {
  const order = (s: ImageScan) => phases.indexOf(s.phase);
  const urgent = (s: ImageScan) => (s.findings ? s.findings.knownExploited * 1e6 + s.findings.critical * 1e3 + s.findings.high : 0);
  return Number(Boolean(a.unusedSinceTime)) - Number(Boolean(b.unusedSinceTime)) || order(a) - order(b) || urgent(b) - urgent(a) || nameOf(a).localeCompare(nameOf(b));
}

export function nameOf(scan: ImageScan): string {
  return scan.references?.[0] ?? scan.digest;
}

const columns = [
  { name: 'Image', cell: (s: ImageScan) => <><a class="row" href={href('/namespaces/{namespace}/images/{name}', { namespace: s.namespace, name: s.name })}><Foreign text={nameOf(s)} /></a>
    <div class="mute">{shortDigest(s.digest)} · {s.platform} · {s.engine ?? s.scanner.name}</div></> },
  { name: 'Phase', cell: (s: ImageScan) => <><PhaseMark phase={s.phase} />{s.phase === 'Failed' && <div class="mute">{reasonOf(s)}</div>}</> },
  { name: 'Findings', cell: (s: ImageScan) => <Counts counts={s.findings} notCovered={s.notCovered} /> },
  { name: 'With a fix', cell: (s: ImageScan) => <Known n={s.findings?.fixable ?? 0} scanned={s.findings ? 1 : 0} />, class: 'number' },
  { name: 'Workloads', cell: (s: ImageScan) => (s.unusedSinceTime ? <>not running since <time dateTime={s.unusedSinceTime}>{date(s.unusedSinceTime)}</time></>
    : <span class="break">{(s.workloads ?? []).slice(0, 2).join(', ')}{s.workloadCount > 2 && ` and ${s.workloadCount - 2} more`}</span>) },
  { name: 'Scanned', cell: (s: ImageScan) => <Time at={s.scanTime} /> },
];

export function reasonOf(scan: ImageScan): string {
  return scan.conditions.find((c) => c.type === 'Ready' && c.status === 'False')?.reason ?? '';
}
