// How values are written. Nothing here knows the page.
import type { FindingCounts, Severity } from './api.gen';
import { now } from './api';

export const severities: Severity[] = ['Critical', 'High', 'Medium', 'Low', 'Negligible', 'Unknown'];

const steps: [number, string][] = [[60, 's'], [60, 'min'], [24, 'h'], [365, 'd'], [Infinity, 'y']];

// duration returns a time span with one unit: 45 s, 3 h, 12 d.
export function duration(seconds: number): string {
  let value = Math.max(0, seconds);
  for (const [size, unit] of steps) {
    if (value < size) return `${Math.floor(value)} ${unit}`;
    value /= size;
  }
  return '';
}

// age returns how long ago a time was, by the manager's clock.
export function age(time: string | undefined): string {
  return time ? duration((now() - Date.parse(time)) / 1000) : '';
}

const dates = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeStyle: 'short' });

export function date(time: string | undefined): string {
  return time ? dates.format(new Date(time)) : '';
}

// zone is the browser's time zone, such as Europe/Berlin.
export const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;

const zonedDates = new Intl.DateTimeFormat(undefined, { year: 'numeric', month: 'short', day: 'numeric', hour: '2-digit', minute: '2-digit', timeZoneName: 'short' });

// zonedDate returns a time with its zone, for times that people agree on.
export function zonedDate(time: string | undefined): string {
  return time ? zonedDates.format(new Date(time)) : '';
}

// endOfDay returns the last second of a day (2030-06-30) in the browser's zone, in UTC. Nothing if there is no such day.
export function endOfDay(day: string): string | undefined {
  const [year, month, date] = day.split('-').map(Number);
  const end = new Date(year ?? NaN, (month ?? NaN) - 1, date ?? NaN, 23, 59, 59);
  return Number.isNaN(end.getTime()) ? undefined : end.toISOString().replace('.000Z', 'Z');
}

const times = new Intl.DateTimeFormat(undefined, { timeStyle: 'short' });

// timeOfDay returns the hour and the minute of a time in milliseconds.
export function timeOfDay(time: number): string {
  return times.format(time);
}

// shortDigest returns the first 12 characters of a digest, without its algorithm.
export function shortDigest(digest: string): string {
  return digest.replace(/^sha256:/, '').slice(0, 12);
}

// repositoryOf returns a reference without its tag and digest.
export function repositoryOf(reference: string): string {
  return reference.replace(/@.*$/, '').replace(/:[^:/]*$/, '');
}

// number groups the digits of a number.
export function number(n: number): string {
  return n.toLocaleString('en');
}

export function count(n: number, one: string, many = one + 's'): string {
  return `${number(n)} ${n === 1 ? one : many}`;
}

// bytes returns a size with one unit: 640 kB, 1.2 GB.
export function bytes(n: number): string {
  const units = ['bytes', 'kB', 'MB', 'GB', 'TB'];
  const power = Math.min(Math.floor(Math.log10(Math.max(n, 1)) / 3), units.length - 1);
  const value = n / 1000 ** power;
  return `${value.toFixed(power > 0 && value < 10 ? 1 : 0)} ${units[power]}`;
}

export function percent(probability: number): string {
  return probability >= 0.1 ? `${Math.round(probability * 100)} %` : `${(probability * 100).toFixed(1)} %`;
}

// countsOf returns the counts of the three worst severities that are not zero, worst first, and the sum of the others.
export function countsOf(counts: FindingCounts): { worst: [Severity, number][]; lower: number } {
  const worst: [Severity, number][] = [['Critical', counts.critical], ['High', counts.high], ['Medium', counts.medium]];
  return { worst: worst.filter(([, n]) => n > 0), lower: counts.low + counts.negligible + counts.unknown };
}

// hidden are characters that change how the text around them is shown, or that cannot be seen.
const hidden = /[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g;

// visible returns a text of an image with each hidden character as its code: such texts are written by whoever built the image.
export function visible(text: string): string {
  return text.replace(hidden, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, '0')}`);
}

// webAddress returns a link to a page of the web, or nothing: addresses come from images and vulnerability data.
export function webAddress(text: string | undefined): string | undefined {
  try {
    const url = new URL(text ?? '');
    return url.protocol === 'https:' || url.protocol === 'http:' ? url.href : undefined;
  } catch {
    return undefined;
  }
}
