/** A chat as a file: out as one document with every branch, in as a new chat. */
import { api } from "../api/index.js";
import { t } from "../i18n/index.js";
import { app } from "../core/app-state.js";
import { navigate } from "../core/router.js";
import { toast, toastError } from "../ui/toast.js";

/** @param {string} id */
export function exportConversation(id) {
  // The server names the file; a link is what makes a browser store it.
  const link = document.createElement("a");
  link.href = `/api/conversations/${encodeURIComponent(id)}/export`;
  link.download = "";
  link.click();
}

/** Ask for a file and open what it holds as a new chat. */
export function importConversation() {
  const input = document.createElement("input");
  input.type = "file";
  input.accept = ".json,application/json";
  input.addEventListener("change", () => {
    const file = input.files?.[0];
    if (file) void read(file);
  });
  input.click();
}

/** @param {File} file */
async function read(file) {
  const done = toast(t("chat.importing", { name: file.name }), { ms: 120_000 });
  try {
    const text = await file.text();
    try {
      JSON.parse(text);
    } catch {
      toast(t("chat.import_bad", { name: file.name }), { tone: "fail", ms: 9000 });
      return;
    }
    // Sent as it was read: parsing and writing again would change what a browser's numbers cannot hold.
    const info = await api.post("/api/conversations/import", text, { raw: true, query: { client_id: crypto.randomUUID() }, timeout: 120_000 });
    app.conversations.upsert(info);
    await navigate(`/c/${info.id}`);
  } catch (error) {
    toastError(error);
  } finally {
    done();
  }
}
