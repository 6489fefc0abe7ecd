"""The kernel's own tables. Steps are only ever added at the end of a list; an applied step is never edited.

Two buckets: *registry* tables live in ``system.db``; *owner* tables exist in every user's file and in ``system.db``. An
owner table never has a foreign key to a registry table.
"""

from __future__ import annotations

from skald_core.plugins.contributions import Migration

__all__ = ("OWNER", "REGISTRY")

REGISTRY: tuple[Migration, ...] = (
    Migration(
        1,
        """
CREATE TABLE roles(
  id TEXT PRIMARY KEY, label TEXT NOT NULL, created_at REAL NOT NULL);
CREATE TABLE role_capabilities(
  role_id TEXT NOT NULL REFERENCES roles(id) ON DELETE CASCADE, capability TEXT NOT NULL,
  PRIMARY KEY(role_id, capability)) WITHOUT ROWID;
CREATE TABLE users(
  id TEXT PRIMARY KEY,
  username TEXT NOT NULL COLLATE NOCASE UNIQUE,
  display_name TEXT NOT NULL,
  role_id TEXT NOT NULL REFERENCES roles(id),
  encrypted INTEGER NOT NULL,
  kdf TEXT NOT NULL DEFAULT '',
  salt BLOB,
  sealed_key BLOB,
  password_hash BLOB,
  token_version INTEGER NOT NULL DEFAULT 1,
  active INTEGER NOT NULL DEFAULT 1,
  locale TEXT NOT NULL DEFAULT '',
  created_at REAL NOT NULL,
  updated_at REAL NOT NULL,
  CHECK ((encrypted = 1 AND sealed_key IS NOT NULL AND password_hash IS NULL)
      OR (encrypted = 0 AND sealed_key IS NULL)));
CREATE TABLE login_sessions(
  token_hash BLOB PRIMARY KEY,
  user_id TEXT NOT NULL REFERENCES users(id) ON DELETE CASCADE,
  token_version INTEGER NOT NULL,
  created_at REAL NOT NULL,
  expires_at REAL NOT NULL,
  client TEXT NOT NULL DEFAULT '') WITHOUT ROWID;
CREATE INDEX login_sessions_user ON login_sessions(user_id);
CREATE TABLE instance_settings(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE llm_providers(
  id TEXT PRIMARY KEY, type TEXT NOT NULL, name TEXT NOT NULL UNIQUE,
  settings TEXT NOT NULL DEFAULT '{}', secrets TEXT NOT NULL DEFAULT '{}', created_at REAL NOT NULL);
CREATE TABLE llm_models(
  id TEXT PRIMARY KEY, provider_id TEXT NOT NULL REFERENCES llm_providers(id) ON DELETE CASCADE,
  model TEXT NOT NULL, title TEXT NOT NULL, priority INTEGER NOT NULL, enabled INTEGER NOT NULL DEFAULT 1,
  info TEXT NOT NULL DEFAULT '{}', extra TEXT NOT NULL DEFAULT '{}', created_at REAL NOT NULL,
  UNIQUE(provider_id, model));
CREATE TABLE plugins(
  id TEXT PRIMARY KEY, enabled INTEGER NOT NULL, state TEXT NOT NULL DEFAULT 'discovered',
  distribution TEXT NOT NULL DEFAULT '', version TEXT NOT NULL DEFAULT '', config TEXT NOT NULL DEFAULT '{}',
  error TEXT NOT NULL DEFAULT '', first_seen REAL NOT NULL, changed_at REAL NOT NULL);
CREATE TABLE plugin_values(
  plugin_id TEXT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY(plugin_id, key)) WITHOUT ROWID;
CREATE TABLE audit_log(
  id INTEGER PRIMARY KEY, at REAL NOT NULL, actor TEXT NOT NULL, action TEXT NOT NULL, target TEXT NOT NULL,
  detail TEXT NOT NULL DEFAULT '');
""",
    ),
    Migration(
        2,
        """
ALTER TABLE plugins ADD COLUMN default_on INTEGER NOT NULL DEFAULT 1;
CREATE TABLE plugin_config(
  plugin_id TEXT PRIMARY KEY, version INTEGER NOT NULL, written_by TEXT NOT NULL DEFAULT '', config TEXT NOT NULL,
  changed_at REAL NOT NULL) WITHOUT ROWID;
INSERT INTO plugin_config(plugin_id, version, config, changed_at)
  SELECT id, 1, config, changed_at FROM plugins WHERE config <> '{}';
ALTER TABLE plugins DROP COLUMN config;
CREATE TABLE plugin_config_secrets(
  plugin_id TEXT NOT NULL, name TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY(plugin_id, name)) WITHOUT ROWID;
CREATE TABLE plugin_config_aside(
  id INTEGER PRIMARY KEY, plugin_id TEXT NOT NULL, at REAL NOT NULL, version INTEGER NOT NULL, reason TEXT NOT NULL,
  config TEXT NOT NULL, settled INTEGER NOT NULL DEFAULT 0);
CREATE INDEX plugin_config_aside_plugin ON plugin_config_aside(plugin_id);
CREATE TABLE plugin_access(
  plugin_id TEXT NOT NULL, user_id TEXT NOT NULL REFERENCES users(id) ON DELETE CASCADE, allowed INTEGER NOT NULL,
  PRIMARY KEY(plugin_id, user_id)) WITHOUT ROWID;
CREATE TABLE plugin_capabilities(capability TEXT PRIMARY KEY, plugin_id TEXT NOT NULL, first_seen REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE plugin_tables(
  plugin_id TEXT NOT NULL, bucket TEXT NOT NULL, name TEXT NOT NULL, kind TEXT NOT NULL,
  PRIMARY KEY(plugin_id, bucket, name)) WITHOUT ROWID;
CREATE TABLE plugin_purges(plugin_id TEXT PRIMARY KEY, at REAL NOT NULL, tables TEXT NOT NULL) WITHOUT ROWID;
""",
    ),
    Migration(
        3,
        """
CREATE TABLE plugin_jobs(
  id TEXT PRIMARY KEY, act TEXT NOT NULL, plugin TEXT NOT NULL, requirement TEXT NOT NULL, actor TEXT NOT NULL,
  state TEXT NOT NULL, step TEXT NOT NULL, log TEXT NOT NULL, plan TEXT NOT NULL, error TEXT NOT NULL, command TEXT,
  created_at REAL NOT NULL, ended_at REAL);
CREATE INDEX plugin_jobs_recent ON plugin_jobs(created_at);
""",
    ),
)

OWNER: tuple[Migration, ...] = (
    Migration(
        1,
        """
CREATE TABLE conversations(
  id TEXT PRIMARY KEY,
  client_id TEXT UNIQUE,
  title TEXT NOT NULL DEFAULT '',
  source TEXT NOT NULL DEFAULT 'web',
  model_pin TEXT,
  pinned INTEGER NOT NULL DEFAULT 0,
  unread INTEGER NOT NULL DEFAULT 0,
  last_turn TEXT NOT NULL DEFAULT '',
  created_at REAL NOT NULL,
  updated_at REAL NOT NULL);
CREATE INDEX conversations_recent ON conversations(pinned, updated_at, id);
CREATE TABLE human_requests(
  id TEXT PRIMARY KEY,
  kind TEXT NOT NULL,
  status TEXT NOT NULL DEFAULT 'pending',
  conversation TEXT NOT NULL REFERENCES conversations(id) ON DELETE CASCADE,
  call_id INTEGER,
  payload TEXT NOT NULL,
  answer TEXT,
  created_at REAL NOT NULL,
  expires_at REAL,
  answered_at REAL);
CREATE INDEX human_requests_status ON human_requests(status, created_at);
CREATE INDEX human_requests_call ON human_requests(conversation, call_id);
""",
    ),
    Migration(
        2,
        """
CREATE TABLE plugin_settings(
  plugin_id TEXT PRIMARY KEY, version INTEGER NOT NULL, written_by TEXT NOT NULL DEFAULT '', config TEXT NOT NULL,
  changed_at REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE plugin_settings_secrets(
  plugin_id TEXT NOT NULL, name TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY(plugin_id, name)) WITHOUT ROWID;
CREATE TABLE plugin_settings_aside(
  id INTEGER PRIMARY KEY, plugin_id TEXT NOT NULL, at REAL NOT NULL, version INTEGER NOT NULL, reason TEXT NOT NULL,
  config TEXT NOT NULL, settled INTEGER NOT NULL DEFAULT 0);
CREATE TABLE plugin_purged(plugin_id TEXT PRIMARY KEY, at REAL NOT NULL) WITHOUT ROWID;
""",
    ),
    Migration(3, "ALTER TABLE conversations ADD COLUMN agent TEXT NOT NULL DEFAULT '';"),
)
