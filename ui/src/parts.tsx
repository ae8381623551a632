// The parts that pages are made of.
import type { ComponentChildren } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import type { Condition, Coverage as CoverageOf, Exception, FindingCounts, ImageCounts, NotCovered as NotCoveredCounts, Phase, SBOMOrigin, Severity } from './api.gen';
import type { ApiError, Loaded } from './api';
import { age, count, countsOf, date, number, visible, webAddress, zonedDate } from './format';
import { base, href, queryOf, setQuery } from './router';
import { useSession } from './session';

export function SeverityMark({ severity }: { severity: Severity }) {
  return <span class={`severity ${severity}`}>{severity}</span>;
}

export function Exploited({ since }: { since?: string | undefined }) {
  return <span class="mark exploited" title={since ? `Known since ${date(since)}` : 'CISA lists it as exploited'}>known exploited</span>;
}

// exceptionName names an exception, and whose statement it is if it is no resource.
export function exceptionName(exception: Exception): string {
  return `${exception.kind} ${exception.name}${exception.signer ? `, attached to the image, signed by ${exception.signer}` : ''}`;
}

export function Suppressed({ exception }: { exception: Exception | undefined }) {
  if (!exception) return null;
  const until = exception.expirationTime ? `, until ${zonedDate(exception.expirationTime)}` : '';
  return <span class="mark" title={`${exceptionName(exception)}: ${exception.reason}${until}`}>suppressed</span>;
}

// Counts shows how many findings there are of each severity, or says that there are none. With notCovered, what the result does not cover, none is no
// all-clear.
export function Counts({ counts, notCovered = [] }: { counts: FindingCounts | undefined; notCovered?: string[] | undefined }) {
  if (!counts) return <span class="mute">no result yet</span>;
  const { worst, lower } = countsOf(counts), isNone = worst.length === 0 && lower === 0;
  if (isNone && notCovered.length > 0) return <span class="stale" title={`Not covered: ${notCovered.join(', ')}`}>none known</span>;
  if (isNone) return <span class="mute">{counts.suppressed > 0 ? `none, ${number(counts.suppressed)} suppressed` : 'none'}</span>;
  return <span class="counts">{worst.map(([severity, n]) => <span class={`n ${severity}`} key={severity}><b>{number(n)}</b> {severity}</span>)}
    {lower > 0 && <span class="n mute" title={`${counts.low} Low, ${counts.negligible} Negligible, ${counts.unknown} Unknown`}>{number(lower)} lower</span>}</span>;
}

// CountsOfImages are the counts of several images, of which some may have no result. gaps says what is not known of them.
export function CountsOfImages({ counts, scanned, gaps }: { counts: FindingCounts; scanned: number; gaps: string }) {
  return <Counts counts={scanned > 0 || hasFindings(counts) ? counts : undefined} notCovered={gaps ? [gaps] : []} />;
}

// Known is a number that is not known without a result: 0 is no blank cell, and unknown is no 0.
export function Known({ n, scanned }: { n: number; scanned: number }) {
  return <>{n > 0 || scanned > 0 ? number(n) : <span class="mute" title="There is no result.">–</span>}</>;
}

function hasFindings({ critical, high, medium, low, negligible, unknown, suppressed }: FindingCounts): boolean {
  return critical + high + medium + low + negligible + unknown + suppressed > 0;
}

// Foreign is a text of an image or a pod. It can be broken after its slashes and colons, and does not change the direction of what follows.
export function Foreign({ text }: { text: string }) {
  return <bdi class="break">{visible(text).split(/(?<=[/:@])(?=.)/).map((part, i) => <>{i > 0 && <wbr />}{part}</>)}</bdi>;
}

// Time is a time as its age, with the date as its tooltip.
export function Time({ at }: { at: string | undefined }) {
  return at ? <time dateTime={at} title={date(at)}>{age(at)} ago</time> : null;
}

export function Copy({ text, what, label = 'Copy' }: { text: string; what: string; label?: string }) {
  const [done, setDone] = useState('');
  const copy = () => navigator.clipboard.writeText(text).then(() => setDone('Copied'), () => setDone('Not allowed'));
  useEffect(() => {
    if (!done) return;
    const timer = setTimeout(() => setDone(''), 2000);
    return () => clearTimeout(timer);
  }, [done]);
  return <button type="button" class="copy" aria-label={`${label === 'Copy' ? 'Copy' : `${label}:`} ${what}`} onClick={copy}>{done || label}</button>;
}

// CopyPage copies what a page is about, and the link to it: by the address at which others reach the UI, if the manager knows it.
export function CopyPage({ name }: { name: string }) {
  const { url } = useSession();
  const here = location.pathname.slice(base.length) + location.search;
  return <><Copy text={name} what={name} label="Copy name" /> <Copy text={url ? url.replace(/\/$/, '') + here : location.origin + base + here} what="this page" label="Copy link" /></>;
}

// Command is a command line to copy.
export function Command({ text }: { text: string }) {
  return <div class="command"><code>{text}</code><Copy text={text} what="the command" /></div>;
}

// WebLink is a link out of the UI. Text that is not the address of a web page stays text.
export function WebLink({ to, children }: { to: string | undefined; children?: ComponentChildren }) {
  const address = webAddress(to);
  return address ? <a href={address} target="_blank" rel="noopener noreferrer">{children ?? to}</a> : <>{children ?? to}</>;
}

export function Failure({ error, reload }: { error: ApiError; reload?: () => void }) {
  // That an image has no result yet is its state, and not a failure of the request.
  if (error.problem.reason === 'NotScanned') return <div class="notice warn"><p>{error.message}</p></div>;
  return <div class="notice bad" role="alert">
    <p><b>{error.problem.title ?? 'No answer'}.</b> {error.message}</p>
    {reload && <button type="button" onClick={reload}>Try again</button>}
  </div>;
}

// View shows what was loaded, the error, or that it is loading. Data stays visible while an error lasts, and says how old it is.
export function View<T>({ of, children }: { of: Loaded<T>; children: (data: T) => ComponentChildren }) {
  const { data, error, reload, time } = of;
  if (data === undefined) return error ? <Failure error={error} reload={reload} /> : <p class="mute loading">Loading…</p>;
  return <>
    {error && <div class="notice bad" role="alert"><p><b>Not up to date.</b> {error.message} What you see is of {date(new Date(time).toISOString())}.</p>
      <button type="button" onClick={reload}>Try again</button></div>}
    {children(data)}
  </>;
}

// coverageParts are the parts of the coverage bar. Only what is scanned is green.
export function Coverage({ images }: { images: ImageCounts }) {
  const { total, scanned, pending, failed, excluded } = images;
  const words = [`${scanned} scanned`, pending && `${pending} pending`, failed && `${failed} failed`, excluded && `${excluded} excluded`].filter(Boolean).join(' · ');
  const part = (name: string, n: number) => n > 0 && <i class={name} ref={(bar) => { if (bar) bar.style.flexGrow = String(n); }} />;
  return <div class="coverage">
    <div class="bar" aria-hidden="true">{part('scanned', scanned)}{part('pending', pending)}{part('failed', failed)}{part('excluded', excluded)}</div>
    <p>{count(total, 'image')}{total > 0 && `: ${words}`}</p>
  </div>;
}

export function PhaseMark({ phase }: { phase: Phase }) {
  return <span class={`phase ${phase}`}>{phase}</span>;
}

// abnormal are the conditions of which True is bad. While an object is Reconciling, it is not Ready, which says the same.
const abnormal = new Set(['Stalled', 'Overlap', 'NamespacesNotWatched', 'NamespacesUnknown', 'ReceiverNotAllowed', 'ReportsNotWritten']);

function needsAttention({ type, status }: Condition): boolean {
  return type !== 'Reconciling' && (abnormal.has(type) ? status === 'True' : status !== 'True');
}

// Conditions lists the conditions that need attention, with what to do, and hides the others.
export function Conditions({ conditions }: { conditions: Condition[] }) {
  const bad = conditions.filter(needsAttention), good = conditions.filter((c) => !needsAttention(c));
  return <>
    {bad.map((c) => <div class="notice warn" key={c.type}><p><b>{c.type}={c.status}</b> · {c.reason} <span class="mute"><Time at={c.lastTransitionTime} /></span><br />{c.message}</p></div>)}
    {good.length > 0 && <details><summary>{count(good.length, 'other condition')}</summary>
      <ul class="plain">{good.map((c) => <li key={c.type}><b>{c.type}={c.status}</b> · {c.reason} {c.message}</li>)}</ul></details>}
  </>;
}

export type Column<T> = { name: string; cell: (row: T) => ComponentChildren; class?: string };

// Table is a table whose first column has the link of each row. On a narrow screen each row becomes a block with the names of its columns.
export function Table<T>({ label, columns, rows, id, rowClass }: { label: string; columns: Column<T>[]; rows: T[]; id: (row: T) => string; rowClass?: (row: T) => string | undefined }) {
  return <div class="scroll"><table aria-label={label}>
    <thead><tr>{columns.map((c) => <th scope="col" class={c.class} key={c.name}>{c.name}</th>)}</tr></thead>
    <tbody>{rows.map((row) => <tr key={id(row)} class={rowClass?.(row)}>{columns.map((c) => <td class={c.class} data-name={c.name} key={c.name}>{c.cell(row)}</td>)}</tr>)}</tbody>
  </table></div>;
}

// Details are hidden until somebody opens them, and not in the page before.
export function Details({ summary, children }: { summary: string; children: () => ComponentChildren }) {
  const [isOpen, setOpen] = useState(false);
  return <details onToggle={(e) => setOpen(e.currentTarget.open)}><summary class="mute">{summary}</summary>{isOpen && children()}</details>;
}

// Pages has the links of a list that comes in pages. The position is in the address, so that the browser's Back is the previous page. Without a total
// it is not known how many items the other pages have.
export function Pages({ shown, total, next, what, many = what + 's' }: { shown: number; total?: number; next: string | undefined; what: string; many?: string }) {
  const query = Object.fromEntries(new URLSearchParams(location.search));
  const { continue: position, ...rest } = query;
  const text = total === undefined || total === shown ? count(shown, what, many) : `${number(shown)} of ${count(total, what, many)}`;
  if (!next && !position) return <p class="mute pages">{text}</p>;
  return <nav class="pages" aria-label={`Pages of ${many}`}>
    <span class="mute">{text}</span>
    {position && <a href={location.pathname + queryOf(rest)}>First page</a>}
    {next && <a href={location.pathname + queryOf({ ...query, continue: next })} rel="next">Next page</a>}
  </nav>;
}

// CSV is the link to a list as CSV. The manager names the file.
export function CSV({ of, to, label = 'CSV' }: { of: string; to: string; label?: string }) {
  return <a class="csv" href={to} download="" title={`Download ${of} as CSV`}>{label}</a>;
}

// TextFilter is a text in the address. It follows the keys at once, and the address follows when they pause.
export function TextFilter({ name, label }: { name: string; label: string }) {
  const given = new URLSearchParams(location.search).get(name) ?? '';
  const [text, setText] = useState(given);
  useEffect(() => setText((typed) => (typed.trim() === given ? typed : given)), [given]);
  useEffect(() => {
    if (text === given) return;
    const timer = setTimeout(() => setQuery({ [name]: text.trim() }, true), 250);
    return () => clearTimeout(timer);
  }, [text]);
  return <label class="filter">{label} <input type="search" value={text} maxLength={128} onInput={(e) => setText(e.currentTarget.value)} /></label>;
}

export type Choice = { value: string; label: string };

// Choose is a filter with a few values. The first choice has no value: it is the list without the filter.
export function Choose({ name, label, choices }: { name: string; label: string; choices: Choice[] }) {
  const given = new URLSearchParams(location.search).get(name) ?? '';
  return <label class="filter">{label} <select value={given} onChange={(e) => setQuery({ [name]: e.currentTarget.value })}>
    {choices.map((c) => <option value={c.value} key={c.value}>{c.label}</option>)}</select></label>;
}

export const yesOrNo = (yes: string, no: string): Choice[] => [{ value: '', label: 'all' }, { value: 'true', label: yes }, { value: 'false', label: no }];

// Facts is a short list of names and values. Facts without a value are left out.
export function Facts({ facts }: { facts: [string, ComponentChildren][] }) {
  return <dl class="facts">{facts.filter(([, value]) => value !== undefined && value !== '' && value !== false).map(([name, value]) => <div key={name}><dt>{name}</dt><dd>{value}</dd></div>)}</dl>;
}

// ListOrigin says where the list of packages comes from. Signers and messages are texts of others.
export function ListOrigin({ origin }: { origin: SBOMOrigin }) {
  switch (origin.source) {
    case 'Attestation': return <>the publisher's claim, signed by <Foreign text={origin.signer ?? ''} /></>;
    case 'Upload': return <>the claim of <Foreign text={origin.uploader ?? ''} />, who uploaded it <Time at={origin.uploadTime} />{origin.message && <> since the image was not cataloged: <Foreign text={origin.message} /></>}</>;
    case 'Image': return <>cataloged, since no attested SBOM is accepted: <Foreign text={origin.message ?? ''} /></>;
  }
}

// gapsOf says in words what a response knows nothing about, or nothing if it is complete.
export function gapsOf({ pending, failed, newScanners, staleScanners, partlyAnalysed }: NotCoveredCounts): string {
  return [
    pending > 0 && `${count(pending, 'image')} pending`, failed > 0 && `${count(failed, 'image')} failed`,
    newScanners > 0 && `${count(newScanners, 'scanner')} whose images are not counted yet`,
    staleScanners > 0 && `${count(staleScanners, 'scanner')} with results that may be outdated`, partlyAnalysed > 0 && `${count(partlyAnalysed, 'image')} not wholly analyzed`,
  ].filter(Boolean).join(', ');
}

// NotCovered says what an answer knows nothing about. With clear it is the whole answer, and an all-clear only if nothing is missing and rest, what
// there is nevertheless, is empty. Images that people have excluded are no gap, and no all-clear either. Nor is one without isHealthy.
export function NotCovered({ coverage, scope, clear, unsure, rest, isHealthy = true }: { coverage: CoverageOf; scope?: string | undefined; clear?: string; unsure?: string; rest?: string; isHealthy?: boolean }) {
  const gaps = gapsOf(coverage.notCovered);
  const { ecosystems } = coverage.notCovered;
  const where = scope ?? (coverage.allNamespaces ? 'in all namespaces that are scanned' : 'in the namespaces that you may see');
  const details = gaps && <p>Not covered: {gaps}. {ecosystems && ecosystems.length > 0 && <>No engine covers {ecosystems.join(', ')} there. </>}<a href={href('/coverage')}>Coverage</a></p>;
  if (!clear) return details ? <div class="notice warn">{details}</div> : null;
  if (coverage.scanners === 0) return <div class="answer warn"><p class="big">Unknown: nothing is scanned {where}.</p><p>There is no Scanner and no ClusterScanner for it.</p></div>;
  const excluded = coverage.excluded > 0 && <p>{count(coverage.excluded, 'image')} {coverage.excluded === 1 ? 'is' : 'are'} excluded by the settings of scanners: nothing is known about {coverage.excluded === 1 ? 'it' : 'them'}.</p>;
  const others = <>{rest && <p>{rest}</p>}{excluded}</>;
  if (details) return <div class="answer warn"><p class="big">{unsure} {where}.</p>{others}<p>{count(coverage.scanned, 'image')} {coverage.scanned === 1 ? 'has a result' : 'have results'}.</p>{details}</div>;
  if (coverage.scanned === 0) return <div class="answer"><p class="big">Unknown: no image has a result {where}.</p>{others}<p>No pod runs an image that is scanned.</p></div>;
  return <div class={`answer ${rest || !isHealthy ? 'warn' : excluded ? '' : 'good'}`}><p class="big">{isHealthy && !excluded ? clear : unsure} {where}.</p>{others}<p>{count(coverage.scanned, 'image')} {coverage.scanned === 1 ? 'was' : 'were'} asked; 0 pending, 0 failed, 0 not covered.</p></div>;
}

// Title sets the heading of a page and the title of its tab.
export function Title({ text, children }: { text: string; children?: ComponentChildren }) {
  useEffect(() => { document.title = `${text} · Scanner Operator`; }, [text]);
  return <div class="title"><h1 tabIndex={-1}><Foreign text={text} /></h1>{children}</div>;
}
