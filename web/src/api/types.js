/**
 * The shapes of docs/http-api.md as JSDoc types. Nothing here runs.
 *
 * @typedef {string | number} Id
 *
 * @typedef {object} Me
 * @property {Id} id
 * @property {string} username
 * @property {string} display_name
 * @property {string} role
 * @property {string[]} capabilities
 * @property {boolean} encrypted
 * @property {string} locale
 * @property {string} instance_locale
 * @property {boolean} gate  false when no enabled plugin judges tool calls
 * @property {{id: string, title: string}[]} gate_plugins
 *
 * @typedef {object} ConversationInfo
 * @property {Id} id
 * @property {string} title
 * @property {number} created_at
 * @property {number} updated_at
 * @property {"idle" | "running" | "waiting"} state
 * @property {boolean} unread
 * @property {boolean} pinned
 * @property {Id | null} model
 * @property {string} [agent]  id of a chat agent
 *
 * @typedef {object} Agent
 * @property {string} id
 * @property {string} name  in the person's language
 * @property {string} description
 * @property {"chat" | "task"} type
 * @property {string | null} plugin  null: it comes with the server
 *
 * @typedef {object} ErrorInfo
 * @property {string} kind
 * @property {string} message
 * @property {string} [detail]
 * @property {boolean} retryable
 *
 * @typedef {object} Call
 * @property {Id} id
 * @property {string} name
 * @property {string} title
 * @property {string} icon
 * @property {string} summary
 * @property {string | null} path
 * @property {string} arguments  raw JSON, as the model wrote it
 * @property {"running" | "awaiting" | "done" | "failed" | "cancelled" | "rejected"} state
 * @property {string | null} result
 * @property {string | null} result_kind
 * @property {number | null} duration_ms
 * @property {Record<string, any> | null} [display]
 * @property {number} [started_at]  set by this client when it saw the call start
 * @property {unknown} [progress]  what an agent did for this call; of a running one set by this client from `tool_progress`
 *
 * @typedef {object} Usage
 * @property {number} [input_tokens]
 * @property {number} [output_tokens]
 * @property {number} [cache_read_tokens]
 * @property {number} [cache_write_tokens]
 * @property {number | null} [cost_usd]
 *
 * @typedef {object} Message
 * @property {Id} id
 * @property {Id | null} parent
 * @property {Id[]} siblings
 * @property {"user" | "assistant" | "agent"} role
 * @property {string} content
 * @property {string} reasoning
 * @property {"ok" | "partial" | "failed"} status
 * @property {boolean} synthetic
 * @property {string} client_id
 * @property {{path: string, name: string, media_type?: string, size?: number}[]} attachments
 * @property {string} model
 * @property {Usage | null} usage
 * @property {number | null} duration_ms
 * @property {number} created_at
 * @property {Call[]} calls
 * @property {ErrorInfo} [error]
 *
 * @typedef {object} Queued
 * @property {Id} id
 * @property {string} client_id
 * @property {string} content
 * @property {number} created_at
 *
 * @typedef {object} Change
 * @property {string} path
 * @property {"create" | "overwrite" | "edit" | "append" | "delete"} kind
 * @property {string} diff  unified diff
 * @property {number} added
 * @property {number} removed
 * @property {boolean} [truncated]
 *
 * @typedef {object} HumanRequest
 * @property {Id} id
 * @property {string} kind
 * @property {"pending" | "answered" | "expired" | "cancelled" | "raised"} status
 * @property {Id} conversation
 * @property {string} conversation_title
 * @property {Id} call_id
 * @property {string} tool
 * @property {string} title
 * @property {string} icon
 * @property {string} summary
 * @property {string | null} path
 * @property {Record<string, any>} arguments
 * @property {string} reason
 * @property {string} why
 * @property {string} agent
 * @property {{changes?: Change[], command?: string, risk?: string}} details
 * @property {{id: string, label: string, allow: boolean, note: boolean}[]} choices
 * @property {number} created_at
 * @property {number | null} expires_at
 * @property {{choice: string, allow: boolean, note: string} | null} [answer]
 *
 * @typedef {object} LiveAnswer
 * @property {Id} message_id
 * @property {string} content
 * @property {string} reasoning
 * @property {string} model
 * @property {number} started_at
 *
 * @typedef {object} Turn
 * @property {Id} run_id
 * @property {number} started_at
 *
 * @typedef {object} ProviderField
 * @property {string} key
 * @property {string} label
 * @property {"text" | "url" | "secret" | "path" | "select"} kind
 * @property {boolean} required
 * @property {string} default
 * @property {string} help
 * @property {{value: string, label: string}[]} [options]  of a `select`
 *
 * @typedef {object} ProviderPreset
 * @property {string} id
 * @property {string} title
 * @property {Record<string, string>} settings
 * @property {"required" | "optional" | "none"} key
 * @property {string} help_url
 * @property {boolean} local
 *
 * @typedef {object} ProviderType
 * @property {string} id
 * @property {string} plugin
 * @property {string} title
 * @property {string} summary
 * @property {ProviderField[]} fields
 * @property {ProviderPreset[]} presets
 * @property {{plugin: string, page: string} | null} setup_page
 *
 * @typedef {object} Provider
 * @property {Id} id
 * @property {string} type
 * @property {string} name
 * @property {Record<string, string>} settings
 * @property {Record<string, boolean>} secrets
 *
 * @typedef {object} RemoteModel
 * @property {string} id
 * @property {string} title
 * @property {ModelInfo} [info]
 *
 * @typedef {object} ModelInfo
 * @property {number} [context_window]
 * @property {string[]} [capabilities]
 * @property {boolean} [weak]
 *
 * @typedef {object} FoundServer
 * @property {string} type
 * @property {string} title
 * @property {Record<string, string>} settings
 * @property {RemoteModel[]} models
 *
 * @typedef {object} Model
 * @property {Id} id
 * @property {Id} provider
 * @property {string} provider_name
 * @property {string} type
 * @property {string} model
 * @property {string} title
 * @property {number} priority
 * @property {boolean} enabled
 * @property {ModelInfo} info
 * @property {"ok" | "degraded" | "down"} health
 * @property {string | null} last_error
 *
 * @typedef {object} Contributes  names of what a plugin brings
 * @property {string[]} [tools]
 * @property {string[]} [pages]
 * @property {number} [routes]
 * @property {string[]} [providers]
 * @property {string[]} [services]
 * @property {string[]} [commands]
 * @property {string[]} [agents]
 * @property {string[]} [mounts]
 * @property {string[]} [hooks]
 * @property {string[]} [cli]
 *
 * @typedef {"discovered" | "disabled" | "starting" | "running" | "needs_config" | "failed" | "incompatible" | "blocked" | "stopped"} PluginState
 *
 * @typedef {object} Plugin
 * @property {string} id
 * @property {string} title
 * @property {string} summary
 * @property {string} distribution
 * @property {string} author
 * @property {string} license
 * @property {string} version  installed
 * @property {string | null} [running_version]
 * @property {string | null} [latest_version]
 * @property {PluginState} state
 * @property {boolean} enabled
 * @property {boolean} bundled
 * @property {boolean} [editable]
 * @property {{phase: string, message: string, traceback: string} | null} [error]
 * @property {string[]} problems
 * @property {string[]} [deprecations]
 * @property {Contributes} contributes
 * @property {{id: string, title: string}[]} capabilities  what it says it may reach
 * @property {{id: string, title: string}[]} [rights]  rights it adds to roles
 * @property {string} homepage
 * @property {string} docs
 * @property {number} [size]  bytes
 * @property {number | null} import_ms
 * @property {number | null} start_ms
 * @property {boolean} restart_needed
 * @property {boolean} [configurable]
 * @property {boolean} [default_on]
 *
 * @typedef {object} PluginData  what a plugin keeps
 * @property {{bucket: "registry" | "owner", name: string, rows: number | null}[]} tables
 * @property {number} values
 * @property {number} secrets
 * @property {number} files  bytes
 *
 * @typedef {object} AccessUser
 * @property {Id} id
 * @property {string} display_name
 * @property {string} role
 * @property {boolean} allowed
 * @property {boolean | null} explicit  null: as everyone
 *
 * @typedef {{default_on: boolean, users: AccessUser[]}} Access
 *
 * @typedef {Plugin & {access: Access, data: PluginData, readme: string, changelog: string}} PluginDetail
 *
 * @typedef {object} SettingsForm
 * @property {import("../ui/form-schema.js").Schema} schema
 * @property {Record<string, any>} values
 * @property {Record<string, boolean>} secrets
 * @property {Record<string, import("../ui/form-schema.js").Choice[]>} choices
 * @property {boolean} testable
 * @property {string[]} [required]
 * @property {Record<string, string>} [choice_errors]  which computed choices could not be had, and why
 * @property {{at: number, version: number, reason: string, values: any}[]} [aside]  stored values that could not be read any more
 *
 * @typedef {{id: string, title: string, ok: boolean, text: string, ms: number}} HealthResult
 *
 * @typedef {object} Available
 * @property {string} name
 * @property {string} title
 * @property {string} summary
 * @property {string} author
 * @property {string} homepage
 * @property {string} license
 * @property {{version: string, api: string, sha256: string[], size: number, released_at: number | string | null}[]} versions
 * @property {string} latest
 * @property {string | null} min_good_version
 * @property {string | null} blocked  the reason
 * @property {string | null} installed  its version
 * @property {boolean} verified
 *
 * @typedef {object} AvailableList
 * @property {{title: string, source: string, updated_at: number | null, error?: string | null}} index
 * @property {{reason: string, command?: string} | null} advice
 * @property {Available[]} items
 * @property {{id: string, name: string, version: string}[]} [missing]  in plugins.lock, but not installed
 *
 * @typedef {object} Plan
 * @property {JobAct} [act]
 * @property {{name: string, from: string | null, to: string | null}[]} changes
 * @property {boolean} hashes
 * @property {{added: string[], removed: string[]}} capabilities
 * @property {{added: Contributes, removed: Contributes}} contributes
 * @property {PluginData | null} [data]
 * @property {boolean} restart_needed
 * @property {string[]} warnings
 *
 * @typedef {"install" | "upgrade" | "uninstall" | "purge" | "restore"} JobAct
 *
 * @typedef {object} Job
 * @property {string} id
 * @property {"plan" | JobAct} act
 * @property {string | null} plugin
 * @property {string | null} requirement
 * @property {"running" | "done" | "failed" | "rolled_back"} state
 * @property {"resolve" | "download" | "check" | "switch" | "start" | "rollback" | "done"} step
 * @property {string[]} log
 * @property {number} created_at
 * @property {number | null} ended_at
 * @property {{message: string} | null} [error]
 * @property {Plan | null} [plan]
 * @property {string | null} [command]  advice: what to run by hand
 *
 * @typedef {object} MyPlugin
 * @property {string} id
 * @property {string} title
 * @property {string} summary
 * @property {{name: string, title: string}[]} tools
 * @property {{page_id: string, title: string, entry: string}[]} pages
 * @property {(string | {name: string, title?: string, hint?: string})[]} commands
 * @property {boolean} configurable
 *
 * @typedef {{name: string, title: string, hint: string, plugin: string}} Command
 *
 * @typedef {object} User
 * @property {Id} id
 * @property {string} username
 * @property {string} display_name
 * @property {string} role
 * @property {boolean} encrypted
 * @property {boolean} active
 * @property {string} locale
 * @property {number} created_at
 *
 * @typedef {object} PluginPage
 * @property {string} plugin
 * @property {string} page_id
 * @property {string} title
 * @property {string} icon
 * @property {string} entry
 * @property {boolean} admin_only
 * @property {number} priority
 */

export {};
