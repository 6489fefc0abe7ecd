/**
 * Builds the browser app into skald_core/web_dist/: hashed assets, index.html with its import map, csp.json with the hash of
 * that map, and the shared modules plugin pages import. Fails when the chat's script outgrows its budget.
 */
import { createHash } from "node:crypto";
import { mkdir, readFile, readdir, rename, rm, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { dirname, join, relative, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import * as esbuild from "esbuild";

const web = resolve(dirname(fileURLToPath(import.meta.url)), "..");
const out = process.env.SKALD_WEB_OUT ? resolve(process.env.SKALD_WEB_OUT) : resolve(web, "../skald_core/web_dist");
const require = createRequire(import.meta.url);
const BUDGET = 300 * 1024;

/** What plugin pages may import by name; each is one address, and one instance with the app's own. */
const SHARED = {
  lit: "lit",
  "lit/directives/class-map.js": "lit/directives/class-map.js",
  "lit/directives/if-defined.js": "lit/directives/if-defined.js",
  "lit/directives/live.js": "lit/directives/live.js",
  "lit/directives/ref.js": "lit/directives/ref.js",
  "lit/directives/repeat.js": "lit/directives/repeat.js",
  "lit/directives/when.js": "lit/directives/when.js",
  "@skald/ui": join(web, "src/ui/index.js"),
  "@skald/api": join(web, "src/api/index.js"),
  "@skald/i18n": join(web, "src/i18n/index.js"),
};

/** @param {string | Buffer} data */
const hash = (data) => createHash("sha256").update(data).digest("base64url").slice(0, 10);

// --- icons: Bootstrap's SVG files as shapes; those the app names go into the bundle, the rest loads by first letter ---

const iconDir = join(dirname(require.resolve("bootstrap-icons/package.json")), "icons");

/** @param {string} svg @returns {[string, Record<string, string>][]} */
function shapesOf(svg) {
  const inner = svg.replace(/^[\s\S]*?<svg[^>]*>/, "").replace(/<\/svg>[\s\S]*$/, "");
  return [...inner.matchAll(/<([a-z]+)\s([^>]*?)\/?>/g)].map(([, tag, attributes]) => [
    tag,
    Object.fromEntries([...attributes.matchAll(/([a-z-]+)="([^"]*)"/g)].map(([, key, value]) => [key, value])),
  ]);
}

async function readIcons() {
  const icons = new Map();
  for (const file of await readdir(iconDir)) {
    if (file.endsWith(".svg")) icons.set(file.slice(0, -4), shapesOf(await readFile(join(iconDir, file), "utf8")));
  }
  return icons;
}

/** Names the sources mention as whole strings. @param {Map<string, unknown>} icons */
async function namedIcons(icons) {
  const found = new Set(["puzzle"]);
  for (const file of await readdir(join(web, "src"), { recursive: true })) {
    if (!file.endsWith(".js")) continue;
    const text = await readFile(join(web, "src", file), "utf8");
    for (const [, name] of text.matchAll(/["'`]([a-z0-9]+(?:-[a-z0-9]+)*)["'`]/g)) if (icons.has(name)) found.add(name);
  }
  return found;
}

function iconPlugin() {
  /** @type {Map<string, unknown>} */
  let icons;
  return {
    name: "icons",
    /** @param {esbuild.PluginBuild} build */
    setup(build) {
      build.onStart(async () => {
        icons ??= await readIcons();
      });
      build.onResolve({ filter: /^virtual:icons\// }, (args) => ({ path: args.path, namespace: "icons" }));
      build.onLoad({ filter: /.*/, namespace: "icons" }, async ({ path }) => {
        if (path === "virtual:icons/core") {
          const names = [...(await namedIcons(icons))].sort();
          return { contents: JSON.stringify(Object.fromEntries(names.map((name) => [name, icons.get(name)]))), loader: "json" };
        }
        if (path === "virtual:icons/shards") {
          const letters = [...new Set([...icons.keys()].map((name) => name[0]))].sort();
          const lines = letters.map((letter) => `${JSON.stringify(letter)}: () => import("virtual:icons/shard-${letter}")`);
          return { contents: `export default {${lines.join(",\n")}};`, loader: "js" };
        }
        const letter = path.slice("virtual:icons/shard-".length);
        const part = Object.fromEntries([...icons].filter(([name]) => name[0] === letter));
        return { contents: `export default JSON.parse(${JSON.stringify(JSON.stringify(part))});`, loader: "js" };
      });
    },
  };
}

// --- styles inside components: comments and indentation are for authors ---

function trimStyles() {
  return {
    name: "trim-styles",
    /** @param {esbuild.PluginBuild} build */
    setup(build) {
      build.onLoad({ filter: /\/src\/.*\.js$/ }, async ({ path }) => {
        const text = await readFile(path, "utf8");
        const contents = text.replace(/\bcss`([^`]*)`/g, (whole, body) => (body.includes("${") ? whole : `css\`${body.replace(/\/\*[\s\S]*?\*\//g, "").replace(/\s+/g, " ").replace(/ ?([{};,]) ?/g, "$1")}\``));
        return { contents, loader: "js" };
      });
    },
  };
}

async function build() {
  const staging = `${out}.building`;
  await rm(staging, { recursive: true, force: true });
  await mkdir(join(staging, "assets"), { recursive: true });
  const entryPoints = [
    { in: join(web, "src/app.js"), out: "app" },
    ...Object.entries(SHARED).map(([name, path]) => ({ in: path, out: name.replace(/^@/, "").replace(/\.js$/, "").replace(/\//g, "-") })),
  ];
  const result = await esbuild.build({
    entryPoints,
    outdir: join(staging, "assets"),
    entryNames: "[name]-[hash]",
    chunkNames: "c-[hash]",
    bundle: true,
    splitting: true,
    format: "esm",
    target: ["chrome123", "firefox128", "safari17.5"],
    minify: true,
    legalComments: "linked",
    metafile: true,
    charset: "utf8",
    absWorkingDir: web,
    define: { "process.env.NODE_ENV": '"production"' },
    plugins: [iconPlugin(), trimStyles()],
    logLevel: "warning",
  });
  const outputs = result.metafile.outputs;
  /** output path → its address */
  const address = (path) => `/assets/${relative(join(staging, "assets"), resolve(web, path))}`;
  /** @param {string} entry */
  const outputOf = (entry) => {
    const wanted = entry.startsWith("/") ? relative(web, entry) : relative(web, esmFile(entry));
    const found = Object.entries(outputs).find(([, meta]) => meta.entryPoint === wanted);
    if (!found) throw new Error(`no output for ${entry}`);
    return found[0];
  };
  const appOutput = outputOf(join(web, "src/app.js"));

  // What the chat needs before it works: the entry and all it imports statically.
  const needed = new Set();
  const walk = (path) => {
    if (needed.has(path)) return;
    needed.add(path);
    for (const imported of outputs[path].imports) if (imported.kind === "import-statement") walk(imported.path);
  };
  walk(appOutput);
  let weight = 0;
  for (const path of needed) weight += gzipSync(await readFile(resolve(web, path)), { level: 9 }).length;
  if (weight > BUDGET) throw new Error(`the chat's script weighs ${weight} bytes compressed, more than ${BUDGET}`);

  const css = (await esbuild.transform((await readFile(join(web, "src/styles/tokens.css"), "utf8")) + (await readFile(join(web, "src/styles/page.css"), "utf8")), { loader: "css", minify: true, target: ["chrome123", "firefox128", "safari17.5"] })).code;
  const cssName = `app-${hash(css)}.css`;
  await writeFile(join(staging, "assets", cssName), css);
  const icon = await readFile(join(web, "src/icon.svg"));
  const iconName = `icon-${hash(icon)}.svg`;
  await writeFile(join(staging, "assets", iconName), icon);
  const manifest = JSON.stringify({
    name: "Skald",
    short_name: "Skald",
    start_url: "/",
    display: "standalone",
    background_color: "#fbf9f5",
    theme_color: "#c1694f",
    icons: [{ src: `/assets/${iconName}`, sizes: "any", type: "image/svg+xml", purpose: "any" }],
  });
  const manifestName = `manifest-${hash(manifest)}.webmanifest`;
  await writeFile(join(staging, "assets", manifestName), manifest);
  const theme = (await esbuild.transform(await readFile(join(web, "src/theme-boot.js"), "utf8"), { minify: true, target: "es2020" })).code;
  const themeName = `theme-${hash(theme)}.js`;
  await writeFile(join(staging, "assets", themeName), theme);

  const importMap = JSON.stringify({ imports: Object.fromEntries(Object.entries(SHARED).map(([name, path]) => [name, address(outputOf(path))])) });
  const preloads = [...needed].filter((path) => path !== appOutput).map((path) => `<link rel="modulepreload" href="${address(path)}" />`);
  const page = (await readFile(join(web, "src/index.html"), "utf8"))
    .replace("{{icon}}", `/assets/${iconName}`)
    .replace("{{manifest}}", `/assets/${manifestName}`)
    .replace("{{css}}", `/assets/${cssName}`)
    .replace("{{theme}}", `<script src="/assets/${themeName}"></script>`)
    .replace("    {{preload}}\n", "")
    .replace("{{importmap}}", importMap)
    .replace("{{modulepreload}}", preloads.join("\n    "))
    .replace("{{app}}", address(appOutput));
  await writeFile(join(staging, "index.html"), page);
  const digest = createHash("sha256").update(importMap).digest("base64");
  await writeFile(join(staging, "csp.json"), `${JSON.stringify({ script_hashes: [`sha256-${digest}`] }, null, 2)}\n`);

  // Swap at the end, so that a server never finds half a build.
  const old = `${out}.old`;
  await rm(old, { recursive: true, force: true });
  await rename(out, old).catch(() => undefined);
  await rename(staging, out);
  await rm(old, { recursive: true, force: true });
  const kib = (bytes) => `${(bytes / 1024).toFixed(1)} KiB`;
  console.log(`built ${Object.keys(outputs).length} files; chat script ${kib(weight)} compressed of ${kib(BUDGET)}; ${needed.size} modules at start`);
}

/** The file a bare import resolves to for ES modules in browsers, which is not what require.resolve says. @param {string} name */
function esmFile(name) {
  const [packageName] = name.split("/");
  const root = join(web, "node_modules", packageName);
  return name === packageName ? join(root, "index.js") : join(root, name.slice(packageName.length + 1));
}

await build();
if (process.argv.includes("--watch")) {
  const { watch } = await import("node:fs");
  let timer;
  watch(join(web, "src"), { recursive: true }, () => {
    clearTimeout(timer);
    timer = setTimeout(() => build().catch((error) => console.error(String(error.message ?? error))), 150);
  });
}
