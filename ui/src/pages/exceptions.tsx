// Exceptions: which findings need no action, why, and until when.
import { useGet } from '../api';
import type { ExceptionDetails, ExceptionState, PackageSelector } from '../api.gen';
import { zonedDate } from '../format';
import { Choose, Foreign, Pages, Table, Title, View } from '../parts';
import { href, usePlace } from '../router';
import { useNamespace } from '../session';
import { NewException } from './newexception';

const states: Record<ExceptionState, string> = { InForce: 'in force', EndingSoon: 'ends soon', Expired: 'ended', InvalidSelector: 'not in force', TooManyExceptions: 'too many' };
const choices = (Object.keys(states) as ExceptionState[]).map((value) => ({ value, label: states[value] }));

// ExceptionsPage lists the exceptions. With ?new=true it shows what one that does not exist yet would suppress.
export function ExceptionsPage() {
  const namespace = useNamespace();
  const { query } = usePlace();
  if (query.get('new') === 'true') return <NewException namespace={namespace} />;
  return <ExceptionList namespace={namespace} />;
}

function ExceptionList({ namespace }: { namespace: string | undefined }) {
  const { query } = usePlace();
  const state = choices.find((c) => c.value === query.get('state'))?.value;
  const position = query.get('continue');
  const exceptions = useGet('/api/v1/exceptions', {}, { ...(namespace && { namespace }), ...(state && { state }), ...(position && { continue: position }), limit: 100 });
  return <>
    <Title text={namespace ? `Exceptions in ${namespace}` : 'Exceptions'}><a href={href('/exceptions', {}, { new: true, namespace })}>New exception</a></Title>
    <div class="filters"><Choose name="state" label="State" choices={[{ value: '', label: 'all' }, ...choices]} /></div>
    <View of={exceptions}>{(list) => <>
      {!list.clusterWide && <p class="mute">ClusterVulnerabilityExceptions are not in this list, since you may not list them. They may suppress findings too.</p>}
      {list.items.length === 0 ? <p class="mute">{state ? `No exception is ${states[state]}.` : 'There is no exception.'}</p>
        : <Table label="Exceptions" rows={list.items} id={(e) => [e.kind, e.namespace, e.name].join('/')} columns={columns} />}
      <Pages shown={list.items.length} total={list.total} next={list.continue} what="exception" />
    </>}</View>
  </>;
}

const columns = [
  { name: 'Exception', cell: (e: ExceptionDetails) => <><b class="break">{e.name}</b><div class="mute">{e.namespace ?? 'ClusterVulnerabilityException'}</div></> },
  { name: 'State', cell: (e: ExceptionDetails) => <State of={e} /> },
  { name: 'Suppresses', cell: (e: ExceptionDetails) => (e.findings ?? <span class="mute">{e.state === 'InForce' || e.state === 'EndingSoon' ? 'not counted yet' : ''}</span>), class: 'number' },
  { name: 'Applies to', cell: (e: ExceptionDetails) => <Scope of={e} /> },
  { name: 'Why', cell: (e: ExceptionDetails) => <><span class="mute">{e.status}{e.justification && `: ${e.justification}`}</span><div class="text"><Foreign text={e.reason} /></div>
    {e.action && <div class="text">To do: <Foreign text={e.action} /></div>}</> },
];

function State({ of: e }: { of: ExceptionDetails }) {
  const bad = e.state === 'Expired' || e.state === 'InvalidSelector' || e.state === 'TooManyExceptions';
  return <><span class={bad ? 'phase Failed' : e.state === 'EndingSoon' ? 'phase Pending' : 'phase Scanned'}>{states[e.state]}</span>
    <div class="mute">{e.message ?? (e.expirationTime ? `until ${zonedDate(e.expirationTime)}` : 'never ends')}</div></>;
}

function Scope({ of: e }: { of: ExceptionDetails }) {
  const ids = e.vulnerabilities ?? [], packages = (e.packages ?? []).map(selectorOf);
  return <>
    <div class="break">{ids.length > 0 ? listOf(ids) : 'all vulnerabilities'}</div>
    {packages.length > 0 && <div class="break">in <Foreign text={listOf(packages)} /></div>}
    {(e.images ?? []).length > 0 && <div class="break">of <Foreign text={listOf(e.images ?? [])} /></div>}
  </>;
}

function selectorOf({ name, version, type }: PackageSelector): string {
  return [name ?? '*', version, type && `(${type})`].filter(Boolean).join(' ');
}

const listOf = (all: string[]) => all.slice(0, 5).join(', ') + (all.length > 5 ? ` and ${all.length - 5} more` : '');
