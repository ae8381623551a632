// The landing page: what to update, and how sure it is that this is all.
import { useGet } from '../api';
import type { Action, FindingCounts, Health, Overview, ProblemCount, RepositoryActions, ScannerProblem } from '../api.gen';
import { count, duration, number } from '../format';
import { Counts, Exploited, Facts, Foreign, gapsOf, NotCovered, Pages, Table, Time, Title, View } from '../parts';
import { href, usePlace } from '../router';
import { Trend } from '../trend';
import { useNamespace, useSession } from '../session';
import { WorkloadLink } from './workload';

// OverviewPage shows the most urgent updates. With ?all=true it lists all of them.
export function OverviewPage() {
  const namespace = useNamespace();
  const { query } = usePlace();
  if (query.get('all') === 'true') return <AllActions namespace={namespace} />;
  return <Landing namespace={namespace} />;
}

function Landing({ namespace }: { namespace: string | undefined }) {
  const overview = useGet('/api/v1/overview', {}, { ...(namespace && { namespace }) });
  return <>
    <Title text={namespace ? `Actions in ${namespace}` : 'Actions'}><a href={href('/changes', {}, { namespace })}>Changes</a></Title>
    <View of={overview}>{(found) => <>
      <Headline overview={found} namespace={namespace} />
      <Problems health={found.health} namespace={namespace} />
      <Trend history={found.history} />
      {found.actions.length > 0 && <><Actions rows={rowsOf(found.actions)} namespace={namespace} />
        <p><a href={href('/', {}, { all: true, namespace })}>All actions in {count(found.actionRepositories, 'repository', 'repositories')}</a></p></>}
      <Facts facts={[
        ['All findings', <a class="plain-link" href={href('/vulnerabilities', {}, { namespace })}><Counts counts={found.findings} /></a>],
        ['Suppressed by exceptions', found.findings.suppressed > 0 && String(found.findings.suppressed)],
        ['Exceptions that end within 7 days', found.exceptionsEndingSoon > 0 && String(found.exceptionsEndingSoon)],
        ['Images with a result', String(found.coverage.scanned)],
        ['Vulnerability data', found.data.length === 0 ? 'none yet' : found.data.map((d) => <div key={d.engine}>{d.engine}: built {duration(d.ageSeconds)} ago</div>)],
      ]} />
    </>}</View>
  </>;
}

// problemWords are what the scanners with a problem do, for one and for several.
const problemWords: Record<ScannerProblem, [string, string]> = {
  Stalled: ['cannot continue until somebody changes something', 'cannot continue until somebody changes something'], Suspended: ['is suspended and scans nothing', 'are suspended and scan nothing'],
  EngineUnavailable: ['has an engine that does not work', 'have an engine that does not work'], DataOutdated: ['uses vulnerability data that is outdated or has an anomaly', 'use vulnerability data that is outdated or has an anomaly'],
  FailedImages: ['has images that could not be scanned', 'have images that could not be scanned'],
  MessagesFailing: ['cannot deliver messages', 'cannot deliver messages'], NoReceiver: ['has no receiver: nobody gets a message', 'have no receiver: nobody gets a message'],
};

// Problems links what keeps the page from being complete, current or announced.
function Problems({ health, namespace }: { health: Health; namespace: string | undefined }) {
  const { allNamespaces } = useSession();
  if (isHealthy(health)) return null;
  const link = (p: ProblemCount) => {
    const n = p.scanners + p.clusterScanners, words = `${count(n, 'scanner')} ${problemWords[p.problem][n === 1 ? 0 : 1]}`;
    // Only users who see all namespaces may open a ClusterScanner.
    return allNamespaces || p.scanners > 0 ? <a href={href('/coverage', {}, { problem: p.problem, namespace })}>{words}</a> : words;
  };
  return <div class="notice warn problems"><ul class="plain">
    {health.scanners.map((p) => <li key={p.problem}>{link(p)}</li>)}
    {health.unscannedNamespaces > 0 && <li><a href={href('/namespaces', {}, { scanned: false, excluded: false })}>{count(health.unscannedNamespaces, 'namespace')} {health.unscannedNamespaces === 1 ? 'is' : 'are'} not scanned</a></li>}
  </ul></div>;
}

function isHealthy({ scanners, unscannedNamespaces }: Health): boolean {
  return scanners.length === 0 && unscannedNamespaces === 0;
}

// Headline is green only if there is nothing to do, everything is scanned, and nothing is wrong.
function Headline({ overview: { coverage, actions, findings, health }, namespace }: { overview: Overview; namespace: string | undefined }) {
  const scope = namespace && `in ${namespace}`;
  if (actions.length === 0) return <NotCovered coverage={coverage} scope={scope} clear="Nothing to update" unsure="Nothing known to update" rest={withoutUpdate(findings)} isHealthy={isHealthy(health)} />;
  const gaps = gapsOf(coverage.notCovered);
  const rows = rowsOf(actions);
  return <div class="answer bad">
    <p class="big">{urgentOf(findings)}</p>
    <p>{rows.length === 1 ? 'One update ends' : `The ${rows.length} updates below end`} {endedOf(rows)}.</p>
    {gaps && <p>There may be more. Not covered: {gaps}. <a href={href('/coverage', {}, { namespace })}>Coverage</a></p>}
  </div>;
}

function urgentOf({ knownExploited, critical, high }: FindingCounts): string {
  return `${knownExploited > 0 ? `${number(knownExploited)} known exploited · ` : ''}${number(critical)} Critical · ${number(high)} High`;
}

// withoutUpdate says which findings there are although nothing is to update: urgent ones have no fix, and others are not urgent.
function withoutUpdate(findings: FindingCounts): string {
  const { knownExploited, critical, high, fixable } = findings;
  if (knownExploited + critical + high > 0) return `There is no fix yet: ${urgentOf(findings)}.`;
  return fixable > 0 ? `Updates would end ${count(fixable, 'finding')}, none of them known exploited, Critical or High.` : '';
}

function endedOf(rows: Row[]): string {
  const total = (n: (a: Action) => number) => rows.reduce((sum, { action }) => sum + n(action), 0);
  const exploited = total((a) => a.knownExploited);
  return count(total((a) => a.critical + a.high + a.other), 'finding') + (exploited > 0 ? `, ${exploited} of them known exploited` : '');
}

function AllActions({ namespace }: { namespace: string | undefined }) {
  const position = usePlace().query.get('continue');
  const actions = useGet('/api/v1/actions', {}, { ...(namespace && { namespace }), ...(position && { continue: position }), limit: 20 });
  return <>
    <Title text={namespace ? `All actions in ${namespace}` : 'All actions'}><a href={href('/', {}, { namespace })}>Most urgent</a></Title>
    <View of={actions}>{(list) => <>
      {list.items.length > 0 ? <Actions rows={rowsOf(list.items, Math.max(3, Math.floor(maxRows / list.items.length)))} namespace={namespace} /> : <p class="mute">No update is listed here. <a href={href('/', {}, { namespace })}>Actions</a> says what that means.</p>}
      <Pages shown={list.items.length} total={list.total} next={list.continue} what="repository" many="repositories" />
      <NotCovered coverage={list.coverage} scope={namespace && `in ${namespace}`} />
    </>}</View>
  </>;
}

// Row is an action of a repository. more is how many others the repository has that no row shows; only its last row has them.
type Row = { repository: RepositoryActions; action: Action; more: number };

// maxRows keeps the page small enough for a slow computer: an image can need thousands of updates.
const maxRows = 60;

function rowsOf(repositories: RepositoryActions[], each = maxRows): Row[] {
  const shown = new Map<string, number>();
  const rows = repositories.flatMap((repository) => repository.actions.slice(0, each).map((action) => {
    shown.set(repository.repository, (shown.get(repository.repository) ?? 0) + 1);
    return { repository, action, more: 0 };
  }));
  return rows.map((row, i) => {
    const { repository: name, actionCount } = row.repository;
    const isLast = rows.findLastIndex(({ repository }) => repository.repository === name) === i;
    return isLast ? { ...row, more: actionCount - (shown.get(name) ?? 0) } : row;
  });
}

function Actions({ rows, namespace }: { rows: Row[]; namespace: string | undefined }) {
  return <Table label="Updates, the most urgent first" rows={rows} id={({ repository: r, action: a }) => [r.repository, a.type, a.package].join(' ')} columns={[
    { name: 'Update', cell: ({ action: a }) => <><b><Foreign text={a.package} /></b> <span class="mute"><Foreign text={(a.installed ?? []).slice(0, 2).join(', ')} />{(a.installed ?? []).length > 2 && ' and more'}</span>{' to '}
      <b><Foreign text={a.fixVersions[0] ?? ''} /></b>{a.fixVersions.length > 1 && <span class="mute"> or <Foreign text={a.fixVersions.slice(1).join(', ')} /></span>}</> },
    { name: 'In', cell: ({ repository: r, more }) => <><Where repository={r} namespace={namespace} />
      {more > 0 && <div class="mute">and {count(more, 'less urgent update')} of this repository</div>}</> },
    { name: 'Ends', cell: ({ action: a }) => <Ends action={a} namespace={namespace} /> },
    { name: 'Since', cell: ({ action: a }) => <Time at={a.sinceTime} /> },
  ]} />;
}

// Where has the repository, with a link to its images if one namespace runs it.
function Where({ repository: r, namespace }: { repository: RepositoryActions; namespace: string | undefined }) {
  const only = namespace ?? (r.namespaces.length === 1 ? r.namespaces[0] : undefined);
  return <>
    {only ? <a class="row" href={href('/images', {}, { namespace: only, text: r.repository })}><Foreign text={r.repository} /></a> : <Foreign text={r.repository} />}
    <div class="mute">{count(r.workloadCount, 'container')}: {r.workloads.slice(0, 3).map((w, i) => <>{i > 0 && ', '}<WorkloadLink namespace={w.namespace} kind={w.kind} name={w.name} /></>)}{r.workloadCount > 3 && ` and ${r.workloadCount - 3} more`}
      {!only && <> in {r.namespaces.slice(0, 5).map((name) => <a key={name} href={href('/images', {}, { namespace: name, text: r.repository })}>{name} </a>)}{r.namespaces.length > 5 && `and ${r.namespaces.length - 5} more`}</>}</div>
  </>;
}

function Ends({ action: a, namespace }: { action: Action; namespace: string | undefined }) {
  const counts = [a.critical > 0 && <b class="severity Critical">{a.critical} Critical </b>, a.high > 0 && <b class="severity High">{a.high} High </b>, a.other > 0 && <span>{a.other} lower </span>];
  return <>
    {a.knownExploited > 0 && <div><Exploited /> {a.knownExploited > 1 && a.knownExploited}</div>}
    <div>{counts}</div>
    <div>{a.ends.slice(0, 3).map((f) => <a key={f.id} class="id" href={href('/vulnerabilities/{id}', { id: f.id }, { namespace })}>{f.id}</a>).flatMap((link) => [link, ' '])}{a.ends.length > 3 && <span class="mute">and {a.ends.length - 3} more</span>}</div>
  </>;
}
