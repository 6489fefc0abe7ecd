/** Which slash commands fit what is being typed. Draws nothing. */

/** @typedef {import("../api/types.js").Command} Command */

const MOST = 8;

/**
 * The word after the slash while it is being typed: null when the text is not, or not any more, the name of a command.
 * @param {string} text @param {number} caret
 * @returns {string | null}
 */
export function typedCommand(text, caret) {
  const found = /^\/([A-Za-z0-9-]*)$/.exec(text.slice(0, caret));
  return found && /^(\s|$)/.test(text.slice(caret)) ? found[1].toLowerCase() : null;
}

/**
 * Commands by name: those that begin with the word, then those that have it inside, then those whose title does.
 * @param {Command[]} commands @param {string} word
 * @returns {Command[]}
 */
export function matchingCommands(commands, word) {
  /** @param {Command} command */
  const rank = (command) => {
    const name = command.name.toLowerCase();
    if (name.startsWith(word)) return 0;
    if (name.includes(word)) return 1;
    return command.title.toLowerCase().includes(word) ? 2 : 3;
  };
  return commands
    .map((command) => ({ command, rank: rank(command) }))
    .filter((each) => each.rank < 3)
    .sort((a, b) => a.rank - b.rank || a.command.name.localeCompare(b.command.name))
    .slice(0, MOST)
    .map((each) => each.command);
}

/**
 * The command a text begins with, once its name is complete.
 * @param {Command[]} commands @param {string} text
 */
export function commandOf(commands, text) {
  const name = /^\/([A-Za-z0-9-]+)(?:\s|$)/.exec(text)?.[1].toLowerCase();
  return name ? (commands.find((command) => command.name.toLowerCase() === name) ?? null) : null;
}
