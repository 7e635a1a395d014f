/** How values are written. */

import type { Kind } from './types';

/** A duration in seconds, as kubectl shortens it. */
export function duration(seconds: number): string {
  const s = Math.max(0, Math.floor(seconds));
  if (s < 120) return `${s}s`;
  const minutes = Math.floor(s / 60);
  if (minutes < 10) return s % 60 === 0 ? `${minutes}m` : `${minutes}m${s % 60}s`;
  if (minutes < 180) return `${minutes}m`;
  const hours = Math.floor(minutes / 60);
  if (hours < 8) return minutes % 60 === 0 ? `${hours}h` : `${hours}h${minutes % 60}m`;
  if (hours < 48) return `${hours}h`;
  return `${Math.floor(hours / 24)}d`;
}

export function bytes(count: number): string {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let value = count;
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${unit === 0 ? value : value.toFixed(1)} ${units[unit]}`;
}

export const kindNames: Record<Kind, string> = {
  trainjob: 'TrainJob',
  mpijob: 'MPIJob',
  optimizationjob: 'Search',
  jobset: 'JobSet',
  managedjob: 'Managed job',
};

/** The time of day and, where it is another day than `now`'s, the date. */
export function clock(time: string): string {
  const at = new Date(time);
  if (Number.isNaN(at.getTime())) return time;
  return at.toLocaleString(undefined, { month: 'short', day: 'numeric', hour: '2-digit', minute: '2-digit', second: '2-digit' });
}

/** The address of a job's page. */
export function jobPath(job: { kind: Kind; namespace: string; name: string }): string {
  return `/jobs/${job.kind}/${encodeURIComponent(job.namespace)}/${encodeURIComponent(job.name)}`;
}
