// The operator itself: its store, what waits, how old the vulnerability data is, and versions.
import { useGet } from '../api';
import type { Engine, Operator, Replica } from '../api.gen';
import { age, bytes, count, date, duration } from '../format';
import { Coverage, Facts, Foreign, Table, Time, Title, View } from '../parts';
import { href } from '../router';

export function OperatorPage() {
  const operator = useGet('/api/v1/operator', {}, {});
  return <>
    <Title text="Operator" />
    <View of={operator}>{(found) => <>
      {!found.store.healthy && <div class="notice bad" role="alert"><p><b>The store does not work.</b> {found.store.message}</p></div>}
      <h2>Queue</h2>
      <Coverage images={found.images} />
      <p><a href={href('/coverage')}>{count(found.scanners, 'scanner')}</a>, {queueOf(found)}</p>
      <h2>Vulnerability data</h2>
      {found.engines.length === 0 ? <p class="mute">No engine has vulnerability data yet.</p> : <Table label="Engines" rows={found.engines} id={(e) => e.engine} columns={columns} />}
      {found.replicas.length > 0 && <>
        <h2>Replicas</h2>
        <Table label="Replicas" rows={found.replicas} id={(r) => r.name} columns={replicaColumns} />
      </>}
      <h2>Store and versions</h2>
      <Facts facts={[
        ['Database', found.store.database], ['Size', found.store.sizeBytes !== undefined && bytes(found.store.sizeBytes)], ['Schema', String(found.store.schema)],
        ['Revision', found.store.revision.toLocaleString('en')], ['Manager', found.version], ['Cluster', found.cluster],
      ]} />
    </>}</View>
  </>;
}

function queueOf({ engines }: Operator): string {
  if (engines.length === 0) return 'and nothing can be matched without vulnerability data';
  const waiting = engines.reduce((sum, e) => sum + e.queue, 0);
  return waiting === 0 ? 'no image waits to be matched' : `${count(waiting, 'image')} to match with the present data`;
}

const replicaColumns = [
  { name: 'Replica', cell: (r: Replica) => <b><Foreign text={r.name} /></b> },
  { name: 'Node', cell: (r: Replica) => r.node && <Foreign text={r.node} /> },
  { name: 'State', cell: (r: Replica) => (r.ending ? 'ending' : r.ready ? 'ready' : <span class="stale">not ready</span>) },
  { name: 'Leads', cell: (r: Replica) => (r.leads ? <><b>yes</b>{r.leadsSince && <>, for <time dateTime={r.leadsSince} title={date(r.leadsSince)}>{age(r.leadsSince)}</time></>}</> : 'no') },
  { name: 'Started', cell: (r: Replica) => <Time at={r.startTime} /> },
];

const columns = [
  { name: 'Engine', cell: (e: Engine) => <><b><Foreign text={e.engine} /></b> {e.tool && <div class="mute">{e.tool}</div>}</> },
  { name: 'Data built', cell: (e: Engine) => (e.buildTime ? `${duration(e.ageSeconds)} ago` : <span class="stale">unknown</span>) },
  { name: 'In use since', cell: (e: Engine) => <Time at={e.sinceTime} /> },
  { name: 'Version of the data', cell: (e: Engine) => <Foreign text={e.dataVersion} /> },
  { name: 'To match', cell: (e: Engine) => e.queue, class: 'number' },
];
