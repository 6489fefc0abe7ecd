/** Unified diffs as data: numbered lines, words that changed, folds in the middle. Text only; nothing here makes HTML. */

/**
 * @typedef {{text: string, changed: boolean}} Piece
 * @typedef {object} Line
 * @property {"same" | "add" | "del" | "note"} kind
 * @property {number | null} old  line number before
 * @property {number | null} new  line number after
 * @property {Piece[]} pieces
 *
 * @typedef {{lines: Line[], header: string}} Hunk
 * @typedef {{kind: "line", line: Line} | {kind: "gap", header: string} | {kind: "fold", lines: Line[]}} Row
 */

const MAX_WORDS = 400;

/**
 * @param {string} diff  a unified diff of one file; file headers are skipped
 * @returns {Hunk[]}
 */
export function parseDiff(diff) {
  /** @type {Hunk[]} */
  const hunks = [];
  /** @type {Hunk | null} */
  let hunk = null;
  let before = 0;
  let after = 0;
  let leftBefore = 0;
  let leftAfter = 0;
  const lines = diff.split("\n");
  if (lines.at(-1) === "") lines.pop();
  for (const line of lines) {
    const head = /^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@ ?(.*)$/.exec(line);
    const inside = leftBefore > 0 || leftAfter > 0;
    if (head && !inside) {
      before = Number(head[1]);
      after = Number(head[3]);
      leftBefore = head[2] === undefined ? 1 : Number(head[2]);
      leftAfter = head[4] === undefined ? 1 : Number(head[4]);
      hunk = { lines: [], header: head[5] ?? "" };
      hunks.push(hunk);
      continue;
    }
    if (!hunk) continue;
    const mark = line[0];
    const text = line.slice(1).replace(/\r$/, "");
    if (mark === "\\") {
      hunk.lines.push({ kind: "note", old: null, new: null, pieces: [{ text: line.slice(2), changed: false }] });
    } else if (!inside) {
      hunk = null;
    } else if (mark === "+") {
      hunk.lines.push({ kind: "add", old: null, new: after++, pieces: [{ text, changed: false }] });
      leftAfter--;
    } else if (mark === "-") {
      hunk.lines.push({ kind: "del", old: before++, new: null, pieces: [{ text, changed: false }] });
      leftBefore--;
    } else {
      hunk.lines.push({ kind: "same", old: before++, new: after++, pieces: [{ text, changed: false }] });
      leftBefore--;
      leftAfter--;
    }
  }
  for (const each of hunks) markWords(each.lines);
  return hunks;
}

/** Pair each run of removed lines with the added lines that follow, and mark the words that differ. @param {Line[]} lines */
function markWords(lines) {
  let at = 0;
  while (at < lines.length) {
    if (lines[at].kind !== "del") {
      at++;
      continue;
    }
    let endDel = at;
    while (lines[endDel]?.kind === "del") endDel++;
    let start = endDel;
    while (lines[start]?.kind === "note") start++;
    let endAdd = start;
    while (lines[endAdd]?.kind === "add") endAdd++;
    const pairs = Math.min(endDel - at, endAdd - start);
    for (let i = 0; i < pairs; i++) {
      const old = lines[at + i];
      const fresh = lines[start + i];
      const words = diffWords(old.pieces[0].text, fresh.pieces[0].text);
      if (!words) continue;
      old.pieces = words.before;
      fresh.pieces = words.after;
    }
    at = Math.max(endAdd, at + 1);
  }
}

/**
 * @param {string} before @param {string} after
 * @returns {{before: Piece[], after: Piece[]} | null} null when the lines have too little in common, or are too long
 */
export function diffWords(before, after) {
  const a = words(before);
  const b = words(after);
  if (!a.length || !b.length || a.length > MAX_WORDS || b.length > MAX_WORDS) return null;
  let head = 0;
  while (head < a.length && head < b.length && a[head] === b[head]) head++;
  let tail = 0;
  while (tail < a.length - head && tail < b.length - head && a[a.length - 1 - tail] === b[b.length - 1 - tail]) tail++;
  const midA = a.slice(head, a.length - tail);
  const midB = b.slice(head, b.length - tail);
  const { keptA, keptB } = common(midA, midB);
  const flagsA = [...new Array(head).fill(false), ...keptA.map((k) => !k), ...new Array(tail).fill(false)];
  const flagsB = [...new Array(head).fill(false), ...keptB.map((k) => !k), ...new Array(tail).fill(false)];
  const shared = a.reduce((sum, word, i) => sum + (flagsA[i] || !word.trim() ? 0 : word.length), 0);
  if (shared * 4 < Math.max(before.trim().length, after.trim().length)) return null;
  return { before: pieces(a, flagsA), after: pieces(b, flagsB) };
}

/** @param {string} text */
function words(text) {
  return text.match(/[\p{L}\p{N}_]+|\s+|[^\p{L}\p{N}_\s]/gu) ?? [];
}

/** Longest common subsequence by the plain table. @param {string[]} a @param {string[]} b */
function common(a, b) {
  const width = b.length + 1;
  const table = new Uint16Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      table[i * width + j] = a[i] === b[j] ? table[(i + 1) * width + j + 1] + 1 : Math.max(table[(i + 1) * width + j], table[i * width + j + 1]);
    }
  }
  const keptA = new Array(a.length).fill(false);
  const keptB = new Array(b.length).fill(false);
  for (let i = 0, j = 0; i < a.length && j < b.length; ) {
    if (a[i] === b[j]) keptA[i++] = keptB[j++] = true;
    else if (table[(i + 1) * width + j] >= table[i * width + j + 1]) i++;
    else j++;
  }
  return { keptA, keptB };
}

/** @param {string[]} list @param {boolean[]} flags @returns {Piece[]} */
function pieces(list, flags) {
  /** @type {Piece[]} */
  const out = [];
  list.forEach((text, i) => {
    const last = out.at(-1);
    if (last && last.changed === flags[i]) last.text += text;
    else out.push({ text, changed: flags[i] });
  });
  return out;
}

/**
 * Rows to draw. A diff of more than `limit` lines is folded in the middle; its first and last lines stay in view.
 * @param {Hunk[]} hunks @param {number} [limit]
 * @returns {Row[]}
 */
export function layOut(hunks, limit = 28) {
  /** @type {Row[]} */
  const rows = [];
  hunks.forEach((hunk, index) => {
    if (index > 0 || (hunk.lines[0]?.old ?? hunk.lines[0]?.new ?? 1) > 1) rows.push({ kind: "gap", header: hunk.header });
    for (const line of hunk.lines) rows.push({ kind: "line", line });
  });
  const lines = rows.filter((row) => row.kind === "line").length;
  if (lines <= limit) return rows;
  const head = Math.ceil(limit * 0.55);
  const tail = limit - head;
  const middle = rows.slice(head, rows.length - tail).flatMap((row) => (row.kind === "line" ? [row.line] : []));
  return [...rows.slice(0, head), { kind: "fold", lines: middle }, ...rows.slice(rows.length - tail)];
}
