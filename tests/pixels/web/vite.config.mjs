import { defineConfig } from "vite";

// Grafana's packages are built for its own bundler: they expect a few globals of Node.
export default defineConfig({
  define: { "process.env": {}, global: "globalThis" },
  build: { target: "es2022", minify: false, sourcemap: false, chunkSizeWarningLimit: 20000 },
  esbuild: { jsx: "automatic" },
});
