/** Pages that are drawn from values. */

/** Pages by the first part of their address, as the navigation calls them. */
export const topics: Record<string, string> = {
  queue: 'Queue',
  clusters: 'Clusters',
  nodes: 'Nodes and GPUs',
  services: 'Services',
  pools: 'Pools',
  budgets: 'Budgets',
  runtimes: 'Runtimes',
  downloads: 'Downloads',
};
