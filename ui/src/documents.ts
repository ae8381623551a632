// What the UI reads in the documents of images: SBOMs in Syft's format, and reports as CycloneDX.
import { useEffect, useState } from 'preact/hooks';
import type { ImageScan, Severity } from './api.gen';
import { ApiError, download, urlOf } from './api';

// maxDocument bounds a document that a page reads, in bytes. A larger one can be downloaded.
const maxDocument = 32 << 20;

export type ListedPackage = { name: string; version: string; type: string };

// Packages are those in an image. Without an SBOM they are only those with findings.
export type Packages = { all: boolean; items: ListedPackage[] };

// ListedFinding is a vulnerability in a package of an image, whatever the version of the package is.
export type ListedFinding = { id: string; severity: Severity; knownExploited: boolean; package: string; version: string; fixed: string[] };

type SBOM = { artifacts?: { name?: string; version?: string; type?: string }[] };
type Property = { name: string; value: string };
type Component = { 'bom-ref': string; name: string; version?: string; properties?: Property[] };
type BOM = {
  components?: Component[];
  vulnerabilities?: { id: string; ratings?: { severity?: string }[]; properties?: Property[]; affects?: { ref: string; versions?: { version?: string; status?: string }[] }[] }[];
};

const byName = (a: ListedPackage, b: ListedPackage) => (a.name < b.name ? -1 : a.name > b.name ? 1 : a.version < b.version ? -1 : 1);
const valueOf = (properties: Property[] | undefined, name: string) => properties?.find((p) => p.name === `scanner-operator:${name}`)?.value ?? '';

function addressOf(image: ImageScan, name: 'sbom' | 'cyclonedx'): string {
  const outdated = name === 'cyclonedx' && image.phase === 'Failed' && { outdated: true };
  return urlOf(`/api/v1/namespaces/{namespace}/imagescans/{name}/${name}`, { namespace: image.namespace, name: image.name }, { ...outdated });
}

// packagesOf returns the packages of an image by name.
export async function packagesOf(image: ImageScan, signal: AbortSignal): Promise<Packages> {
  try {
    const sbom = await download(addressOf(image, 'sbom'), maxDocument, signal) as SBOM;
    const items = (sbom.artifacts ?? []).map((a) => ({ name: a.name ?? '', version: a.version ?? '', type: a.type ?? '' }));
    return { all: true, items: items.sort(byName) };
  } catch (error) {
    if (!(error instanceof ApiError) || error.problem.reason !== 'NotScanned') throw error;
  }
  const bom = await download(addressOf(image, 'cyclonedx'), maxDocument, signal) as BOM;
  const items = (bom.components ?? []).map((c) => ({ name: c.name, version: c.version ?? '', type: valueOf(c.properties, 'packageType') }));
  return { all: false, items: items.sort(byName) };
}

const severityOf: Record<string, Severity> = { critical: 'Critical', high: 'High', medium: 'Medium', low: 'Low', info: 'Negligible', none: 'Negligible' };

// findingsOf returns the findings of an image in the order of its report, which is worst first.
async function findingsOf(image: ImageScan, signal: AbortSignal): Promise<Map<string, ListedFinding>> {
  const bom = await download(addressOf(image, 'cyclonedx'), maxDocument, signal) as BOM;
  const components = new Map((bom.components ?? []).map((c) => [c['bom-ref'], c]));
  const found = new Map<string, ListedFinding>();
  for (const v of bom.vulnerabilities ?? []) {
    for (const affected of v.affects ?? []) {
      const component = components.get(affected.ref);
      const key = JSON.stringify([v.id, component?.name, valueOf(component?.properties, 'packageType')]);
      if (found.has(key)) continue;
      found.set(key, {
        id: v.id, severity: severityOf[v.ratings?.[0]?.severity ?? ''] ?? 'Unknown', knownExploited: valueOf(v.properties, 'knownExploited') === 'true',
        package: component?.name ?? '', version: component?.version ?? '',
        fixed: (affected.versions ?? []).flatMap((range) => (range.status === 'unaffected' && range.version ? [range.version] : [])),
      });
    }
  }
  return found;
}

// Comparison is what another image would change: findings that end, that come, and the number of those in both.
export type Comparison = { ended: ListedFinding[]; come: ListedFinding[]; both: number };

export async function compare(image: ImageScan, other: ImageScan, signal: AbortSignal): Promise<Comparison> {
  // One after the other: the manager makes one document at a time.
  const here = await findingsOf(image, signal), there = await findingsOf(other, signal);
  const without = (all: Map<string, ListedFinding>, others: Map<string, ListedFinding>) => [...all].filter(([key]) => !others.has(key)).map(([, finding]) => finding);
  const ended = without(here, there);
  return { ended, come: without(there, here), both: here.size - ended.length };
}

// useRead reads once, and again when the key changes. Without a key it reads nothing.
export function useRead<T>(key: string | undefined, read: (signal: AbortSignal) => Promise<T>): { data?: T; error?: ApiError; loading: boolean; time: number; reload: () => void } {
  const [state, setState] = useState<{ key?: string; data?: T; error?: ApiError }>({});
  const [round, setRound] = useState(0);
  useEffect(() => {
    if (key === undefined) return;
    const abort = new AbortController();
    read(abort.signal).then((data) => setState({ key, data }), (error: unknown) => {
      if (!abort.signal.aborted) setState({ key, error: error instanceof ApiError ? error : new ApiError(0, { title: 'Not readable', detail: 'The document is not what was expected. Download it instead.' }) });
    });
    return () => abort.abort();
  }, [key, round]);
  const current = state.key === key ? state : {};
  return { ...(current.data !== undefined && { data: current.data }), ...(current.error && { error: current.error }), loading: current.data === undefined, time: 0, reload: () => setRound((n) => n + 1) };
}
