import { createHash } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import { brotliCompressSync, constants } from 'node:zlib';
import { defineConfig } from 'vite';

// The largest compressed document, in bytes.
const maxBrotli = 60_000;

// singleDocument puts the script and the style into the document. The manager serves one document and hashes its parts for the
// Content-Security-Policy.
function singleDocument() {
  return {
    name: 'single-document',
    enforce: 'post',
    generateBundle(_options, bundle) {
      const html = bundle['index.html'];
      html.source = html.source
        .replace(/\s*<link rel="stylesheet"[^>]*href="\.\/([^"]+)"[^>]*>/g, (_match, file) => {
          const style = bundle[file].source;
          delete bundle[file];
          return `\n<style>${style.trim()}</style>`;
        })
        .replace(/<script type="module"[^>]*src="\.\/([^"]+)"[^>]*><\/script>/g, (_match, file) => {
          const script = bundle[file].code.replaceAll('</script', '<\\/script');
          delete bundle[file];
          return `<script type="module">${script.trim()}</script>`;
        });
      // A page that is open compares this with what the manager serves now.
      const build = createHash('sha256').update(html.source).digest('hex').slice(0, 16);
      html.source = html.source.replace(' data-build=""', ` data-build="${build}"`);
      const rest = Object.keys(bundle).filter((name) => name !== 'index.html');
      if (rest.length > 0) this.error(`not in the document: ${rest.join(', ')}`);
    },
    writeBundle() {
      const html = readFileSync('dist/index.html');
      const compressed = brotliCompressSync(html, { params: { [constants.BROTLI_PARAM_QUALITY]: 11, [constants.BROTLI_PARAM_SIZE_HINT]: html.length } });
      if (compressed.length > maxBrotli) this.error(`the document has ${compressed.length} bytes compressed, more than ${maxBrotli}`);
      writeFileSync('dist/index.html.br', compressed);
      console.log(`ui: one document of ${html.length} bytes, ${compressed.length} with Brotli`);
    },
  };
}

export default defineConfig({
  base: './',
  oxc: { jsx: { runtime: 'automatic', importSource: 'preact' } },
  plugins: [singleDocument()],
  build: {
    outDir: 'dist', emptyOutDir: false, modulePreload: false, target: 'es2022', assetsInlineLimit: 1_000_000, reportCompressedSize: false,
  },
});
