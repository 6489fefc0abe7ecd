/** From a flat branch of messages to turns, the unit a person sees: what they said, and all that was done about it. */

/**
 * @typedef {import("../api/types.js").Message} Message
 * @typedef {import("../api/types.js").Call} Call
 * @typedef {import("./conversation.js").Live} Live
 * @typedef {import("./conversation.js").Marker} Marker
 *
 * @typedef {{kind: "reasoning", key: string, text: string, ms: number | null, live: boolean}} ReasoningStep
 * @typedef {{kind: "call", key: string, call: Call, message: Message}} CallStep
 * @typedef {ReasoningStep | CallStep} Step
 *
 * @typedef {{kind: "text", key: string, message: Message | null, live: Live | null}} TextPart
 * @typedef {{kind: "activity", key: string, steps: Step[]}} ActivityPart
 * @typedef {{kind: "marker", key: string, marker: Marker}} MarkerPart
 * @typedef {TextPart | ActivityPart | MarkerPart} Part
 *
 * @typedef {object} TurnView
 * @property {string} key
 * @property {Message | null} prompt  null when the branch begins in the middle of a turn
 * @property {Message[]} answers
 * @property {Part[]} parts  in the order to draw; at most one activity
 * @property {boolean} live
 */

/**
 * Give back the earlier view of each turn that did not change, so that only what changed is drawn again: a chat may hold
 * thousands of turns, and an event touches one.
 *
 * @param {TurnView[]} before @param {TurnView[]} now
 * @returns {TurnView[]}
 */
export function keepUnchanged(before, now) {
  const known = new Map(before.map((turn) => [turn.key, turn]));
  return now.map((turn) => {
    const old = known.get(turn.key);
    return old && sameTurn(old, turn) ? old : turn;
  });
}

/** @param {TurnView} a @param {TurnView} b */
function sameTurn(a, b) {
  if (a.live || b.live || a.prompt !== b.prompt || a.answers.length !== b.answers.length || a.parts.length !== b.parts.length) return false;
  return a.answers.every((message, i) => message === b.answers[i]) && a.parts.every((part, i) => part.key === b.parts[i].key);
}

/**
 * @param {Message[]} messages  oldest first
 * @param {Live | null} live
 * @param {(message: Message) => string} keyOf
 * @param {Marker[]} [markers]
 * @returns {TurnView[]}
 */
export function groupTurns(messages, live, keyOf, markers = []) {
  /** @type {TurnView[]} */
  const turns = [];
  /** @type {TurnView | null} */
  let turn = null;
  /** @type {Map<string, Marker[]>} */
  const after = new Map();
  for (const marker of markers) {
    const at = marker.after ?? "";
    after.set(at, [...(after.get(at) ?? []), marker]);
  }
  /** @param {string} key @param {Message | null} prompt @returns {TurnView} */
  const open = (key, prompt) => {
    const fresh = { key, prompt, answers: [], parts: [], live: false };
    turns.push(fresh);
    return fresh;
  };
  /** @param {TurnView} into @param {string} key */
  const addMarkers = (into, key) => {
    for (const marker of after.get(key) ?? []) into.parts.push({ kind: "marker", key: marker.key, marker });
  };
  for (const message of messages) {
    const key = keyOf(message);
    if (message.role === "assistant") {
      turn ??= open(`t${key}`, null);
      turn.answers.push(message);
      const ms = /** @type {any} */ (message).reasoned_ms ?? null;
      if (message.reasoning) addStep(turn, { kind: "reasoning", key: `${key}r`, text: message.reasoning, ms, live: false });
      if (message.content.trim()) turn.parts.push({ kind: "text", key, message, live: null });
      for (const call of message.calls) addStep(turn, { kind: "call", key: `c${call.id}`, call, message });
    } else if (message.synthetic && message.role === "user" && turn) {
      // The host's own words to the model (media after results, "go on") are no turn of the person.
    } else {
      turn = open(`t${key}`, message);
    }
    if (turn) addMarkers(turn, key);
  }
  if (live) {
    turn ??= open(`t${live.key}`, null);
    turn.live = true;
    if (live.reasoning) {
      addStep(turn, { kind: "reasoning", key: `${live.key}r`, text: live.reasoning, ms: live.reasonedMs, live: live.content === "" });
    }
    if (live.content) turn.parts.push({ kind: "text", key: live.key, message: null, live });
  }
  return turns;
}

/** Steps join the turn's one activity line, which stands where the first of them happened. @param {TurnView} turn @param {Step} step */
function addStep(turn, step) {
  const activity = turn.parts.find((part) => part.kind === "activity");
  if (activity) /** @type {ActivityPart} */ (activity).steps.push(step);
  else turn.parts.push({ kind: "activity", key: `${turn.key}a`, steps: [step] });
}

/**
 * The line that stands for reasoning while it is folded: its newest heading, or its newest sentence.
 * @param {string} text
 */
export function reasoningSummary(text) {
  const headings = [...text.matchAll(/^(?:#{1,6} +(.+)|\*\*(.+?)\*\*:?) *$/gm)];
  const heading = headings.at(-1);
  if (heading) return (heading[1] ?? heading[2]).trim();
  const flat = text.replace(/\s+/g, " ").trim();
  const sentences = flat.match(/[^.!?。]+[.!?。]+/g);
  return (sentences?.at(-1) ?? flat.slice(-140)).trim();
}

/**
 * Every message the arrows "2/3" walk through, this one included, in order.
 * @param {Message} message
 */
export function siblingsOf(message) {
  const ids = message.siblings?.map(String) ?? [];
  if (!ids.includes(String(message.id))) ids.push(String(message.id));
  ids.sort((a, b) => (Number.isFinite(Number(a)) && Number.isFinite(Number(b)) ? Number(a) - Number(b) : 0));
  return { ids, at: ids.indexOf(String(message.id)) };
}

/**
 * Divide turns into chunks that stay the same while turns are added at either end. The browser skips a chunk that is out of
 * view as one box, which keeps a chat of thousands of messages as quick as a short one.
 *
 * @param {TurnView[]} turns
 * @param {Map<string, number>} before  turn key → chunk, as returned the last time
 * @param {number} [size]
 * @returns {{chunks: {id: number, turns: TurnView[]}[], assigned: Map<string, number>}}
 */
export function chunkTurns(turns, before, size = 25) {
  /** @type {Map<string, number>} */
  const assigned = new Map();
  const known = turns.findIndex((turn) => before.has(turn.key));
  const first = Math.max(0, known);
  let current = known < 0 ? 0 : /** @type {number} */ (before.get(turns[known].key));
  for (let i = first - 1; i >= 0; i--) assigned.set(turns[i].key, current - 1 - Math.floor((first - 1 - i) / size));
  let held = 0;
  for (let i = first; i < turns.length; i++) {
    const old = before.get(turns[i].key);
    if (old !== undefined && old > current) [current, held] = [old, 0];
    else if (old === undefined && held >= size) [current, held] = [current + 1, 0];
    assigned.set(turns[i].key, current);
    held += 1;
  }
  /** @type {{id: number, turns: TurnView[]}[]} */
  const chunks = [];
  for (const turn of turns) {
    const id = /** @type {number} */ (assigned.get(turn.key));
    const last = chunks.at(-1);
    if (last?.id === id) last.turns.push(turn);
    else chunks.push({ id, turns: [turn] });
  }
  return { chunks, assigned };
}
