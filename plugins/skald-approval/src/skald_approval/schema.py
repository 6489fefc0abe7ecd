"""The plugin's tables. Shipped steps are never edited."""

from __future__ import annotations

from skald_core import api as skald

__all__ = ("OWNER", "REGISTRY")

# The rules of the instance. Those that come with the plugin are part of these steps, so they come exactly once: an
# administrator who deletes them keeps them deleted.
REGISTRY = (
    skald.Migration(
        1,
        """
CREATE TABLE approval_rules(
  id TEXT PRIMARY KEY,
  priority INTEGER NOT NULL,
  agent TEXT,
  tool TEXT NOT NULL,
  path TEXT,
  action TEXT NOT NULL CHECK (action IN ('allow', 'require', 'deny')),
  note TEXT NOT NULL DEFAULT '',
  created_at REAL NOT NULL DEFAULT 0);
CREATE INDEX approval_rules_order ON approval_rules(priority, id);
INSERT INTO approval_rules(id, priority, tool, path, action) VALUES
  ('home-reads', 100, '@fs_read', '~/*', 'allow'),
  ('everything-else', 1000000, '*', NULL, 'require');
""",
    ),
    # Giving work to another agent does nothing by itself: each of that agent's calls is judged like any other.
    skald.Migration(
        2,
        """
INSERT INTO approval_rules(id, priority, tool, path, action) VALUES('delegation', 200, 'execute_subtask', NULL, 'allow');
""",
    ),
)

# What one person allowed for a conversation, and what they were shown when they were asked.
OWNER = (
    skald.Migration(
        1,
        """
CREATE TABLE approval_bypasses(
  id TEXT PRIMARY KEY,
  conversation TEXT NOT NULL,
  agent TEXT NOT NULL,
  tool TEXT NOT NULL,
  path TEXT NOT NULL DEFAULT '',
  created_at REAL NOT NULL,
  expires_at REAL,
  UNIQUE(conversation, agent, tool, path));
CREATE TABLE approval_shown(
  conversation TEXT NOT NULL,
  call_key TEXT NOT NULL,
  digest TEXT NOT NULL,
  shown_at REAL NOT NULL,
  PRIMARY KEY(conversation, call_key)) WITHOUT ROWID;
""",
    ),
)
