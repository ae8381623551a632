// How many findings there were to act on each day, as a line.
import type { DayOfHistory } from './api.gen';
import { now } from './api';
import { number } from './format';

const width = 180, height = 36, edge = 3;
const dates = new Intl.DateTimeFormat(undefined, { day: 'numeric', month: 'long', timeZone: 'UTC' });

// dayOf returns the number of a UTC day.
function dayOf({ day }: DayOfHistory): number {
  return Date.parse(day) / 86_400_000;
}

// Trend shows the days of a history, in ascending order, and says the last and the first number. Days without a record are gaps in the line. Of
// fewer than two days it shows nothing.
export function Trend({ history }: { history: DayOfHistory[] }) {
  const first = history[0], last = history.at(-1);
  if (!first || !last || first === last) return null;
  const most = Math.max(1, ...history.map((d) => d.toActOn));
  const scale = (width - 2 * edge) / (dayOf(last) - dayOf(first));
  const line = history.map((d, i) => {
    const before = history[i - 1];
    const x = edge + (dayOf(d) - dayOf(first)) * scale, y = height - edge - (d.toActOn / most) * (height - 2 * edge);
    // A line of no length is a dot: the day may have no neighbor.
    return before && dayOf(d) - dayOf(before) === 1 ? `L${x.toFixed(1)} ${y.toFixed(1)}` : `M${x.toFixed(1)} ${y.toFixed(1)}h0`;
  }).join('');
  const isToday = dayOf(last) === Math.floor(now() / 86_400_000);
  return <figure class="trend" title="Findings that an update ends, and that are known exploited or of High severity at least, as counted last on each day (UTC).">
    <svg viewBox={`0 0 ${width} ${height}`} width={width} height={height} aria-hidden="true"><path d={line} /></svg>
    <figcaption>To act on: <b>{number(last.toActOn)}</b> {isToday ? 'today' : `on ${dates.format(new Date(last.day))}`}, {number(first.toActOn)} on {dates.format(new Date(first.day))}</figcaption>
  </figure>;
}
