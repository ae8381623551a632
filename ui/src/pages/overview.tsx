// The landing page: what needs action, and how far the images are covered.
import { useGet } from '../api';
import type { FindingCounts, ImageCounts, Scanner } from '../api.gen';
import { count, duration } from '../format';
import { Conditions, Coverage, Title, View } from '../parts';
import { href } from '../router';
import { useNamespace } from '../app';
import { Card } from './coverage';

export function OverviewPage() {
  const namespace = useNamespace();
  const scanners = useGet('/api/v1/scanners', {}, { ...(namespace && { namespace }), limit: 500 });
  return <>
    <Title text={namespace ? `Overview of ${namespace}` : 'Overview'} />
    <View of={scanners}>{(list) => list.items.length === 0
      ? <div class="answer warn"><p class="big">Nothing is scanned {namespace ? `in ${namespace}` : 'here'}.</p><p>Create a Scanner in the namespace. <a href={href('/coverage')}>Coverage</a></p></div>
      : <Summary scanners={list.items} />}</View>
  </>;
}

function Summary({ scanners }: { scanners: Scanner[] }) {
  const images = sum(scanners.map((s) => s.images)) as ImageCounts, findings = sum(scanners.map((s) => s.findings)) as FindingCounts;
  const incomplete = images.pending + images.failed;
  const ages = scanners.flatMap((s) => (s.vulnerabilityData ? [s.vulnerabilityData.ageSeconds] : []));
  const none = findings.critical + findings.high + findings.knownExploited === 0;
  const clear = none && incomplete === 0 && images.scanned > 0;
  return <>
    <div class={`answer ${clear ? 'good' : none ? 'warn' : 'bad'}`}>
      {none ? <p class="big">{clear ? 'No Critical and no High finding.' : 'No Critical and no High finding known.'}</p>
        : <p class="big">{findings.knownExploited > 0 && <><b>{findings.knownExploited}</b> known exploited · </>}<b>{findings.critical}</b> Critical · <b>{findings.high}</b> High</p>}
      <p>{count(findings.fixable, 'finding')} of all severities can be fixed by an update. {findings.suppressed > 0 && `Exceptions suppress ${count(findings.suppressed, 'finding')}.`}</p>
      <Coverage images={images} />
      <p class="mute">{ages.length > 0 ? `Vulnerability data built ${duration(Math.max(...ages))} ago.` : 'There is no vulnerability data yet.'}</p>
    </div>
    <Conditions conditions={scanners.flatMap((s) => s.conditions).filter((c) => c.type === 'BackendAvailable' && c.status === 'False').slice(0, 1)} />
    <div class="cards">{[...scanners].sort(mostUrgent).slice(0, 60).map((s) =>
      <Card key={s.namespace + '/' + s.name} scanner={s} name={`${s.namespace}/${s.name}`} to={href('/images', {}, { namespace: s.namespace })} />)}</div>
  </>;
}

// sum adds up counts with the same names.
function sum(all: object[]): Record<string, number> {
  const total: Record<string, number> = {};
  for (const counts of all) for (const [name, n] of Object.entries(counts)) total[name] = (total[name] ?? 0) + (n as number);
  return total;
}

function mostUrgent(a: Scanner, b: Scanner): number {
  const urgent = (s: Scanner) => s.findings.knownExploited * 1e6 + s.findings.critical * 1e3 + s.findings.high;
  return urgent(b) - urgent(a) || a.namespace.localeCompare(b.namespace);
}
