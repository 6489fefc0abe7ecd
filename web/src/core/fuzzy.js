/** How well a query fits a text: 0 is not at all; letters must appear in order, together and at word starts count more. */

/** @param {string} query @param {string} text @returns {number} */
export function fuzzy(query, text) {
  const q = fold(query);
  const s = fold(text);
  if (!q) return 1;
  const at = s.indexOf(q);
  if (at >= 0) return 1000 - Math.min(at, 200) + (at === 0 || /\W/.test(s[at - 1]) ? 200 : 0) - Math.min(s.length, 200) / 10;
  let score = 0;
  let from = 0;
  let previous = -2;
  for (const letter of q.replace(/\s+/g, "")) {
    const found = s.indexOf(letter, from);
    if (found < 0) return 0;
    score += found === previous + 1 ? 6 : found === 0 || /\W/.test(s[found - 1]) ? 5 : 1;
    previous = found;
    from = found + 1;
  }
  // Letters scattered over a long text are no match worth showing.
  return score >= q.length * 2 ? score : 0;
}

/** @param {string} text */
function fold(text) {
  return text.toLowerCase().normalize("NFD").replace(/\p{M}/gu, "").trim();
}
