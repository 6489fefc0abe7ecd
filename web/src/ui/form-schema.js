/** What a JSON Schema says about a form: the kind of each field, and what is wrong with a value. Draws nothing. */

/** @typedef {{value: any, label: string}} Choice */
/** @typedef {{type?: string | string[], title?: string, description?: string, default?: any, const?: any, enum?: any[], enumNames?: string[],
 *   format?: string, minimum?: number, maximum?: number, exclusiveMinimum?: number, exclusiveMaximum?: number, multipleOf?: number,
 *   minLength?: number, maxLength?: number, pattern?: string, minItems?: number, maxItems?: number, secret?: boolean,
 *   "x-secret"?: boolean, "x-kind"?: string, writeOnly?: boolean, multiline?: boolean, anyOf?: any[], oneOf?: any[], allOf?: any[], $ref?: string,
 *   items?: any, properties?: Record<string, any>, required?: string[], additionalProperties?: any}} Property */
/** @typedef {{type?: string, properties?: Record<string, Property>, required?: string[], $ref?: string, $defs?: Record<string, any>,
 *   allOf?: any[]}} Schema */
/** @typedef {"text" | "textarea" | "number" | "switch" | "select" | "model" | "url" | "email" | "secret" | "list" | "group" | "json"} Kind */

const MAX_DEPTH = 6;
/** A longer text gets several lines. */
const LONG_TEXT = 300;

/**
 * A property with its references followed; a nullable one counts as its other type.
 * @param {Property} property @param {Schema} root  holds `$defs` @param {number} [depth]
 * @returns {Property & {nullable?: boolean}}
 */
export function resolve(property, root, depth = 0) {
  if (!property || typeof property !== "object" || depth > MAX_DEPTH) return {};
  const { $ref, anyOf, oneOf, allOf, ...own } = property;
  if ($ref) {
    const name = decodeURIComponent(/^#\/\$defs\/(.+)$/.exec($ref)?.[1] ?? "");
    return { ...resolve(root.$defs?.[name] ?? {}, root, depth + 1), ...own };
  }
  if (allOf?.length === 1) return { ...resolve(allOf[0], root, depth + 1), ...own };
  const variants = anyOf ?? oneOf;
  if (!variants || own.type) return property;
  const real = variants.map((v) => resolve(v, root, depth + 1)).filter((v) => v.type !== "null");
  const nullable = real.length < variants.length;
  if (real.length && real.every((v) => "const" in v)) return { ...own, enum: real.map((v) => v.const), enumNames: real.map((v) => v.title ?? ""), nullable };
  if (real.length === 1) return { ...real[0], ...own, nullable };
  // Several types: text decides, since it can hold what a person types.
  const text = real.find((v) => typeOf(v) === "string");
  return { ...(text ?? real[0] ?? {}), ...own, nullable };
}

/** The plain type of a resolved property. @param {Property} property @returns {string} */
export function typeOf(property) {
  if (Array.isArray(property.type)) return property.type.find((x) => x !== "null") ?? "string";
  if (property.type) return property.type;
  const variants = property.anyOf ?? property.oneOf;
  if (variants) return typeOf(variants.find((v) => v.type !== "null") ?? {});
  if (property.properties) return "object";
  return "string";
}

/** @param {Property} property */
export function isSecret(property) {
  return (
    property["x-kind"] === "secret" || property.format === "password" || property.secret === true || property["x-secret"] === true || property.writeOnly === true
  );
}

/**
 * How a resolved property is edited.
 * @param {Property} property @param {boolean} [hasChoices]  the server computed options for it
 * @returns {Kind}
 */
export function kindOf(property, hasChoices = false) {
  const type = typeOf(property);
  const wanted = property["x-kind"];
  if (isSecret(property)) return "secret";
  if (type === "array") return isSimple(property.items ?? {}) ? "list" : "json";
  if (type === "object") return property.properties && Object.keys(property.properties).length ? "group" : "json";
  if (property.enum?.length || wanted === "select" || (hasChoices && wanted !== "model")) return "select";
  if (type === "boolean") return "switch";
  if (wanted === "model") return "model";
  if (type === "integer" || type === "number") return "number";
  if (wanted === "url" || property.format === "uri" || property.format === "url") return "url";
  if (property.format === "email") return "email";
  if (wanted === "textarea" || property.multiline || property.format === "textarea" || (property.maxLength ?? 0) > LONG_TEXT) return "textarea";
  return "text";
}

/** Whether a list of these can be edited one line each. @param {Property} items */
export function isSimple(items) {
  return ["string", "integer", "number"].includes(typeOf(items)) && !isSecret(items);
}

/**
 * What is wrong with a value, as a text key with its parameters; null when nothing is.
 * @param {Property} property  resolved @param {any} value @param {boolean} required
 * @returns {{key: string, params?: Record<string, string | number>} | null}
 */
export function faultOf(property, value, required) {
  const type = typeOf(property);
  const empty = value === undefined || value === null || value === "" || (Array.isArray(value) && value.length === 0);
  if (empty) return required && type !== "boolean" ? { key: "form.missing" } : null;
  if (type === "integer" || type === "number") {
    if (typeof value !== "number" || !Number.isFinite(value)) return { key: "form.not_number" };
    if (type === "integer" && !Number.isInteger(value)) return { key: "form.not_whole" };
    if (property.minimum !== undefined && value < property.minimum) return { key: "form.too_small", params: { min: property.minimum } };
    if (property.exclusiveMinimum !== undefined && value <= property.exclusiveMinimum) return { key: "form.not_above", params: { min: property.exclusiveMinimum } };
    if (property.maximum !== undefined && value > property.maximum) return { key: "form.too_big", params: { max: property.maximum } };
    if (property.exclusiveMaximum !== undefined && value >= property.exclusiveMaximum) return { key: "form.not_below", params: { max: property.exclusiveMaximum } };
    return null;
  }
  if (type === "array" && Array.isArray(value)) {
    if (property.minItems !== undefined && value.length < property.minItems) return { key: "form.too_few", params: { count: property.minItems } };
    if (property.maxItems !== undefined && value.length > property.maxItems) return { key: "form.too_many", params: { count: property.maxItems } };
    for (const item of value) {
      const fault = faultOf(property.items ?? {}, item, true);
      if (fault) return fault;
    }
    return null;
  }
  if (typeof value !== "string") return null;
  const length = [...value].length;
  if (property.minLength !== undefined && length < property.minLength) return { key: "form.too_short", params: { count: property.minLength } };
  if (property.maxLength !== undefined && length > property.maxLength) return { key: "form.too_long", params: { count: property.maxLength } };
  if (kindOf(property) === "url" && !isUrl(value)) return { key: "form.not_url" };
  if (property.pattern !== undefined && !matches(property.pattern, value)) return { key: "form.bad_pattern" };
  return null;
}

/** @param {string} text */
function isUrl(text) {
  try {
    return ["http:", "https:"].includes(new URL(text).protocol);
  } catch {
    return false;
  }
}

/** A pattern JavaScript does not know is the server's to judge. @param {string} pattern @param {string} text */
function matches(pattern, text) {
  try {
    return new RegExp(pattern, "u").test(text);
  } catch {
    return true;
  }
}

/**
 * What is wrong with the values, by path (`"limits.daily"` for a field inside a group).
 * @param {Schema} schema @param {Record<string, any>} values
 * @param {(path: string) => boolean} stored  whether the server holds this secret
 * @returns {Record<string, {key: string, params?: Record<string, string | number>}>}
 */
export function faultsOf(schema, values, stored = () => false) {
  /** @type {Record<string, {key: string, params?: Record<string, string | number>}>} */
  const faults = {};
  /** @param {Property} group @param {Record<string, any>} held @param {string} prefix @param {number} depth */
  const walk = (group, held, prefix, depth) => {
    for (const [key, raw] of Object.entries(group.properties ?? {})) {
      const property = resolve(raw, schema);
      const path = prefix + key;
      const value = held?.[key];
      if (kindOf(property) === "group" && depth < MAX_DEPTH) {
        if (value !== null && value !== undefined) walk(property, value, `${path}.`, depth + 1);
        continue;
      }
      const required = group.required?.includes(key) ?? false;
      // A secret that is stored and left alone is not missing; null takes it away.
      if (isSecret(property) && value === undefined && stored(path)) continue;
      const fault = faultOf(property, value, required);
      if (fault) faults[path] = fault;
    }
  };
  walk(resolve(schema, schema), values, "", 0);
  return faults;
}

/**
 * Errors of the server (`errors: [{field, message}]`, or an object) by path; what belongs to no field is under `""`.
 * @param {unknown} errors @returns {Record<string, string>}
 */
export function errorsByField(errors) {
  /** @type {Record<string, string>} */
  const found = {};
  if (Array.isArray(errors)) {
    for (const error of errors) {
      const field = String(error?.field ?? "");
      found[field] = found[field] ? `${found[field]} ${error?.message ?? ""}` : String(error?.message ?? "");
    }
  } else if (errors && typeof errors === "object") {
    for (const [field, message] of Object.entries(errors)) found[field] = String(message);
  }
  return found;
}

/** @param {any} values @param {string} path */
export function valueAt(values, path) {
  return path.split(".").reduce((held, key) => held?.[key], values);
}
