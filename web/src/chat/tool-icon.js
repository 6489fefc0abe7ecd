/** Tools say what they do by a meaning, not by a picture: `read`, `edit`, `shell`. A Bootstrap name works too. */

const MEANINGS = /** @type {Record<string, string>} */ ({
  edit: "pencil",
  write: "file-earmark-plus",
  read: "file-earmark-text",
  list: "folder2-open",
  search: "search",
  outline: "list-nested",
  shell: "terminal",
  subagent: "robot",
  image: "image",
  config: "sliders",
  introspection: "info-circle",
  mcp: "plug",
  file: "file-earmark",
  tool: "wrench",
});

/** @param {string | null | undefined} meaning @returns {string} a Bootstrap icon's name */
export function toolIcon(meaning) {
  return meaning ? (MEANINGS[meaning] ?? meaning) : "wrench";
}
