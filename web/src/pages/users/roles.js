/** Names of roles for people. */
import { t } from "../../i18n/index.js";

/** The roles every instance has; others are rows an instance or a plugin added. */
export const ROLES = ["member", "admin"];

/** @param {string} role */
export function roleName(role) {
  const key = `role.${role}`;
  const known = t(key);
  return known === key ? role : known;
}
