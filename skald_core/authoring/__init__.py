"""What ``skald plugin new``, ``dev`` and ``check`` are made of. For authors; a running server imports none of it."""
