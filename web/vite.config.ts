import { readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import react from '@vitejs/plugin-react';
import { defineConfig } from 'vitest/config';
import type { Plugin } from 'vite';

const site = '../crates/dashboard/assets/site';

/** Compresses what the binary holds: of each file that gets smaller only the compressed form stays. */
function compressed(): Plugin {
  return {
    name: 'compressed',
    apply: 'build',
    closeBundle() {
      const folder = join(site, 'assets');
      for (const name of readdirSync(folder)) {
        if (!/\.(js|css|svg)$/.test(name)) continue;
        const path = join(folder, name);
        writeFileSync(`${path}.gz`, gzipSync(readFileSync(path), { level: 9 }));
        rmSync(path);
      }
    },
  };
}

export default defineConfig({
  plugins: [react(), compressed()],
  build: { outDir: site, emptyOutDir: true, assetsInlineLimit: 0, chunkSizeWarningLimit: 1000, modulePreload: { polyfill: false } },
  // `npm run dev` shows pages that change while a control plane runs: TRAINYARD_DASHBOARD=http://127.0.0.1:PORT
  server: { proxy: { '/api': { target: process.env.TRAINYARD_DASHBOARD ?? 'http://127.0.0.1:1', changeOrigin: true } } },
  test: {
    environment: 'jsdom',
    setupFiles: ['src/testing.ts'],
    css: false,
    testTimeout: 60_000,
    coverage: { provider: 'v8', include: ['src/**'], exclude: ['src/main.tsx', 'src/testing.ts', 'src/**/*.test.*'], thresholds: { lines: 85 } },
  },
});
