"""OpenAI's Responses API: the same conversation in its words.

Stateless by default: every request holds the whole conversation, and ``store`` is false, so the server keeps nothing. That is
what lets a chat be edited, branched, compacted, moved to another model or another server, and it keeps what people wrote in
one place, theirs. What a model thought comes back encrypted and goes along with its message, so nothing is lost by it.
"""
