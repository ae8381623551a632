// The configuration of the static site that "make docs" builds from docs/. The Makefile copies docs/ to pages/ beside this folder.
import { existsSync, readFileSync } from 'node:fs'
import { dirname, join, normalize } from 'node:path'
import { fileURLToPath } from 'node:url'
import { defineConfig } from 'vitepress'

const repository = 'https://github.com/scanner-operator/scanner-operator'
const pages = join(dirname(fileURLToPath(import.meta.url)), '..', 'pages')

export default defineConfig({
  title: 'Scanner Operator',
  description: 'Which of the images that really run in my cluster have a vulnerability that I should act on today?',
  lang: 'en',
  base: process.env.SITE_BASE || '/',
  srcDir: 'pages',
  outDir: process.env.SITE_OUT || 'out',
  cacheDir: 'cache',
  rewrites: id => id.replace(/(^|\/)README\.md$/, '$1index.md'),
  metaChunk: true,
  head: [['meta', { name: 'color-scheme', content: 'light dark' }]],
  markdown: { config: md => md.use(repositoryLinks).use(mermaidBlocks).use(longNames) },
  // Mermaid is one large program that only pages with a diagram load.
  vite: { build: { chunkSizeWarningLimit: 2500 } },
  themeConfig: {
    sidebar: sidebar(),
    outline: { level: [2, 3] },
    search: { provider: 'local', options: { detailedView: true } },
    socialLinks: [{ icon: 'github', link: repository }],
    editLink: { pattern: `${repository}/edit/main/docs/:path`, text: 'Change this page' },
    footer: { message: 'Apache License 2.0' },
    externalLinkIcon: true,
  },
})

// sidebar has one group for each heading of the index page, with the pages that it links to, in its order. Further links of a line are below
// its first.
function sidebar() {
  const groups = []
  for (const line of readFileSync(join(pages, 'README.md'), 'utf8').split('\n')) {
    const heading = line.match(/^## (.*)$/)
    if (heading) groups.push({ text: heading[1], collapsed: groups.length > 1, items: [] })
    const [first, ...others] = groups.length ? linkedPages(line) : []
    if (first) groups.at(-1).items.push(others.length ? { ...first, collapsed: true, items: others } : first)
  }
  return groups
}

// linkedPages returns the pages below docs/ that a line links to.
function linkedPages(line) {
  return [...line.matchAll(/\[([^\]]+)\]\(([^)#:]+\.md)\)/g)]
    .filter(([, , path]) => !path.startsWith('..'))
    .map(([, text, path]) => ({ text: text[0].toUpperCase() + text.slice(1), link: '/' + published(path) }))
}

// published returns the address of a page below the site's root.
function published(path) {
  return path.replace(/(^|\/)README\.md/, '$1').replace(/\.md$/, '')
}

// repositoryLinks lets the pages keep the links that work in the repository: those to files outside docs/ lead to the repository.
function repositoryLinks(md) {
  md.core.ruler.push('repository_links', ({ tokens, env }) => {
    for (const token of tokens.flatMap(token => token.children ?? [])) {
      const href = token.type === 'link_open' ? token.attrGet('href') : null
      if (!href || /^([a-z]+:|#|\/)/i.test(href)) continue
      const [path, anchor] = href.split('#')
      const target = normalize(join(dirname(env.relativePath), path))
      if (target.startsWith('..') || !existsSync(join(pages, target)) || !/\.(md|svg|png)$/.test(target)) {
        const kind = path.endsWith('/') ? 'tree' : 'blob'
        token.attrSet('href', `${repository}/${kind}/main/${normalize(join('docs', target))}${anchor ? '#' + anchor : ''}`)
      } else {
        token.attrSet('href', path.replace(/(^|\/)README\.md$/, '$1index.md') + (anchor ? '#' + anchor : ''))
      }
    }
  })
}

// mermaidBlocks renders code blocks in the language mermaid with the component Mermaid.
function mermaidBlocks(md) {
  const fence = md.renderer.rules.fence
  md.renderer.rules.fence = (tokens, index, ...rest) => {
    if (tokens[index].info.trim() !== 'mermaid') return fence(tokens, index, ...rest)
    return `<Mermaid source="${encodeURIComponent(tokens[index].content)}" />`
  }
}

// longNames lets the browser break names such as spec.backend.clair.authSecretRef between their parts, and nowhere else.
function longNames(md) {
  const code = md.renderer.rules.code_inline
  md.renderer.rules.code_inline = (...args) =>
    code(...args).replace(/>[^<]*</, text => text.replace(/([a-z0-9])(?=[A-Z])|([./_])(?=\w)/g, '$&<wbr>'))
}
