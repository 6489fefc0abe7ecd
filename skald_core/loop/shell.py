"""Which commands a line of shell would run: enough of the POSIX grammar to judge it, and a clear no to the rest.

``commands`` finds the simple commands of a line wherever they stand: in lists and pipelines, subshells and groups, command
and process substitution, inside double quotes, behind ``sh -c`` and ``eval``. What it does not understand (control
structures, here-documents, arithmetic, a computed command name) it refuses; it never guesses. Grammar:
POSIX.1-2017, Shell Command Language, section 2.10.
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath

import msgspec

__all__ = ("CannotParse", "Command", "commands")

_BLANK = " \t"
_OPERATORS = "\n;&|"
_RESERVED = frozenset(
    "if then elif else fi for while until do done case esac in select function coproc [[".split()  # noqa: SIM905 -- reads as the list it is
)
_SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh", "ash"})
_RUNNERS = frozenset(
    {
        "builtin", "chroot", "command", "doas", "env", "exec", "find", "flock", "ionice", "nice", "nohup", "parallel",
        "setsid", "stdbuf", "sudo", "time", "timeout", "watch", "xargs",
    }
)  # fmt: skip
"""Commands that run the command in their arguments."""

_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=")
_REDIRECTION = re.compile(r"(\d*|\{\w+\})(<<<|<<-?|<>|<&|<\(|>\(|>>|>\||>&|[<>])|(&>>?)")
_DEPTH = 20


class CannotParse(ValueError):
    """The line is beyond what can be judged; the text says what in it."""


class Command(msgspec.Struct, frozen=True):
    """One simple command.

    ``words`` are its words without quotes; None stands for one that is only known when it runs. ``writes`` are the files
    its redirections write, None again for a computed one. ``raw`` is its text.
    """

    words: tuple[str | None, ...]
    writes: tuple[str | None, ...] = ()
    assignments: bool = False
    raw: str = ""

    @property
    def name(self) -> str:
        """The command's name without its folder."""
        return PurePosixPath(self.words[0] or "").name if self.words else ""

    def hidden(self) -> tuple[tuple[str | None, ...], ...]:
        """Other readings of the words: what a command such as ``sudo`` or ``xargs`` may run, and names with a folder."""
        plain = (self.name, *self.words[1:])
        if self.name not in _RUNNERS:
            return (plain,)
        rest = [self.words[at:] for at in range(1, len(self.words))]
        return (plain, *((PurePosixPath(words[0] or "").name, *words[1:]) for words in rest))


def commands(line: str) -> tuple[Command, ...]:
    """Every simple command of a line, in the order they are found. Raises CannotParse."""
    return tuple(_Parser(line, 0).all())


class _Parser:
    def __init__(self, text: str, depth: int) -> None:
        if depth > _DEPTH:
            raise CannotParse("it is nested too deeply")
        if "\0" in text:
            raise CannotParse("it has a NUL character")
        self._text = text.replace("\r\n", "\n").replace("\r", "\n")
        self._at = 0
        self._depth = depth
        self._found: list[Command] = []

    def all(self) -> list[Command]:
        self._list("")
        return self._found

    # -- characters --------------------------------------------------------------------------------------------------

    def _peek(self, count: int = 1) -> str:
        return self._text[self._at : self._at + count]

    def _blanks(self) -> None:
        while True:
            if self._peek() and self._peek() in _BLANK:
                self._at += 1
            elif self._peek(2) == "\\\n":
                self._at += 2
            else:
                return

    # -- lists -------------------------------------------------------------------------------------------------------

    def _list(self, end: str) -> None:
        """Commands up to ``end`` (empty: the end of the text), which is taken."""
        self._depth += 1
        if self._depth > _DEPTH:
            raise CannotParse("it is nested too deeply")
        while True:
            self._blanks()
            here = self._peek()
            if not here:
                if end:
                    raise CannotParse(f"{end!r} is missing")
                break
            if here == end:
                self._at += 1
                break
            if here in _OPERATORS:
                if self._peek(2) == ";;":
                    raise CannotParse("it has a case structure")
                if self._peek(2) == "&>":
                    self._simple(end)
                    continue
                self._at += 1
            elif here == "#":
                self._comment()
            elif here == "(":
                if self._peek(2) == "((":
                    raise CannotParse("it has arithmetic")
                self._at += 1
                self._list(")")
                self._after_group(end)
            elif here == "{" and self._peek(2)[1:] in (" ", "\t", "\n"):
                self._at += 1
                self._list("}")
                self._after_group(end)
            else:
                self._simple(end)
        self._depth -= 1

    def _comment(self) -> None:
        at = self._text.find("\n", self._at)
        self._at = len(self._text) if at < 0 else at

    def _after_group(self, end: str) -> None:
        """Redirections of a group write files though no command of it says so."""
        start = self._at
        writes: list[str | None] = []
        while True:
            self._blanks()
            if not self._redirection(writes):
                break
        if writes:
            self._found.append(Command((), tuple(writes), raw=self._text[start : self._at].strip()))
        here = self._peek()
        if here and here not in _OPERATORS and here != end:
            raise CannotParse("something follows a group")

    # -- simple commands ---------------------------------------------------------------------------------------------

    def _simple(self, end: str) -> None:
        start = self._at
        words: list[str | None] = []
        writes: list[str | None] = []
        assigned = False
        while True:
            self._blanks()
            here = self._peek()
            if self._redirection(writes):
                continue
            if not here or here in _OPERATORS or (here == end == ")"):
                break
            if here in "()":
                raise CannotParse(f"{here!r} stands where no command begins")
            if here == "#":
                self._comment()
                break
            begun = self._at
            word = self._word()
            raw = self._text[begun : self._at]
            if not words and _ASSIGNMENT.match(raw):
                assigned = True
            elif not words and raw in ("!", "time"):
                continue
            elif not words and raw in _RESERVED:
                raise CannotParse(f"it has a control structure ({raw})")
            else:
                words.append(word)
        if words or writes or assigned:
            self._add(Command(tuple(words), tuple(writes), assigned, self._text[start : self._at].strip()))

    def _add(self, command: Command) -> None:
        self._found.append(command)
        if not command.words:
            return
        if command.words[0] is None:
            raise CannotParse("the name of a command is computed")
        for words in command.hidden():
            name = PurePosixPath(words[0] or "").name
            if name == "eval":
                self._inner(words[1:])
            elif name in _SHELLS:
                self._shell(words[1:])

    def _shell(self, words: tuple[str | None, ...]) -> None:
        """The text behind ``-c``; a script file is a command like any other."""
        for at, word in enumerate(words):
            if word is None:
                raise CannotParse("what a shell runs is computed")
            if not word.startswith(("-", "+")):
                return
            if not word.startswith("--") and "c" in word:
                self._inner(words[at + 1 : at + 2])
                return
        raise CannotParse("a shell reads what it runs from its input")

    def _inner(self, words: tuple[str | None, ...]) -> None:
        if any(word is None for word in words):
            raise CannotParse("what a shell runs is computed")
        self._found += _Parser(" ".join(word or "" for word in words), self._depth + 1).all()

    def _redirection(self, writes: list[str | None]) -> bool:
        """Take a redirection, if one is here, and note the file it writes."""
        match = _REDIRECTION.match(self._text, self._at)
        if match is None:
            return False
        operator = match[2] or match[3]
        if operator in ("<(", ">("):
            return False  # a word
        if operator in ("<<", "<<-"):
            raise CannotParse("it has a here-document")
        self._at = match.end()
        self._blanks()
        if not self._peek() or self._peek() in _OPERATORS:
            raise CannotParse("a redirection has no file")
        target = self._word()
        if operator in (">&", "<&") and target is not None and re.fullmatch(r"\d+-?|-", target):
            return True
        if operator not in ("<", "<<<", "<&") and target != "/dev/null":
            writes.append(target)
        return True

    # -- words -------------------------------------------------------------------------------------------------------

    def _word(self) -> str | None:
        """One word without its quotes, None when it holds anything computed."""
        pieces: list[str] = []
        computed = self._peek() == "~"
        while True:
            here = self._peek()
            if not here or here in _BLANK or here in _OPERATORS or here == ")" or here == "(":
                if here == "(" and pieces:
                    raise CannotParse("it defines a function or uses an extended pattern")
                break
            if here in "<>":
                if self._peek(2)[1:] != "(":
                    break
                self._at += 2
                self._list(")")
                computed = True
            elif here == "'":
                close = self._text.find("'", self._at + 1)
                if close < 0:
                    raise CannotParse("a quote is not closed")
                pieces.append(self._text[self._at + 1 : close])
                self._at = close + 1
            elif here == '"':
                computed = self._double(pieces) or computed
            elif here == "\\":
                if self._peek(2) == "\\":
                    raise CannotParse("it ends in a backslash")
                if self._peek(2) != "\\\n":
                    pieces.append(self._peek(2)[1])
                self._at += 2
            elif here in "$`":
                computed = self._expansion(pieces) or computed
            else:
                computed = computed or here in "*?[{"
                pieces.append(here)
                self._at += 1
        return None if computed else "".join(pieces)

    def _double(self, pieces: list[str]) -> bool:
        """A double-quoted part. True when something in it is computed."""
        self._at += 1
        computed = False
        while True:
            here = self._peek()
            if not here:
                raise CannotParse("a quote is not closed")
            if here == '"':
                self._at += 1
                return computed
            if here == "\\" and self._peek(2)[1:] in ("$", "`", '"', "\\", "\n"):
                if self._peek(2)[1:] != "\n":
                    pieces.append(self._peek(2)[1])
                self._at += 2
            elif here in "$`":
                computed = self._expansion(pieces) or computed
            else:
                pieces.append(here)
                self._at += 1

    def _expansion(self, pieces: list[str]) -> bool:
        """What ``$`` or a backquote begins. True unless it is a plain dollar sign."""
        if self._peek() == "`":
            self._backquotes()
            return True
        after = self._peek(2)[1:]
        if self._peek(3) == "$((":
            raise CannotParse("it has arithmetic")
        if after == "(":
            self._at += 2
            self._list(")")
            return True
        if after == "{":
            self._at += 2
            self._parameter()
            return True
        if after == "'":
            raise CannotParse("it has $'…' quotes")
        if after == "[":
            raise CannotParse("it has arithmetic")
        self._at += 1
        if after and (after.isalnum() or after in "_@*#?$!-"):
            while self._peek() and (self._peek().isalnum() or self._peek() == "_"):
                self._at += 1
            if after in "@*#?$!-":
                self._at += 1
            return True
        if after != '"':
            pieces.append("$")
        return False

    def _parameter(self) -> None:
        """The inside of ``${…}``, which may hold substitutions."""
        while True:
            here = self._peek()
            if not here:
                raise CannotParse("'}' is missing")
            if here == "}":
                self._at += 1
                return
            if here == "\\":
                self._at += 2
            elif here == "'":
                close = self._text.find("'", self._at + 1)
                if close < 0:
                    raise CannotParse("a quote is not closed")
                self._at = close + 1
            elif here == '"':
                self._double([])
            elif here in "$`":
                self._expansion([])
            elif here == "@" and self._peek(2) == "@P":
                raise CannotParse("it has a prompt expansion")
            else:
                self._at += 1

    def _backquotes(self) -> None:
        self._at += 1
        inner: list[str] = []
        while True:
            here = self._peek()
            if not here:
                raise CannotParse("a backquote is not closed")
            if here == "`":
                self._at += 1
                break
            if here == "\\" and self._peek(2)[1:] in ("`", "\\", "$"):
                inner.append(self._peek(2)[1])
                self._at += 2
            else:
                inner.append(here)
                self._at += 1
        self._found += _Parser("".join(inner), self._depth + 1).all()
