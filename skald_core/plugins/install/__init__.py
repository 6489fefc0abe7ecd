"""Changing what is installed: planned first, checked in a child process, switched by renames, rolled back from kept files."""
