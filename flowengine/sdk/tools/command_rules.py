"""Rules for allowed commands, applied to the words of a command as it will run, not to its text.

A command is split into words here. Any syntax with another meaning to a shell - a second command, a
redirection, an expansion - is refused. A shell that reads the remaining text therefore runs one
program with exactly these words, and a text cannot hide anything by being read differently than the
check reads it.
"""

from __future__ import annotations

from collections.abc import Sequence

from flowengine.sdk.errors import Refused, ValidationError

_MEANS_MORE = {
    **dict.fromkeys(";&|()", "another command"),
    **dict.fromkeys("<>", "a redirection"),
    **dict.fromkeys("$`", "an expansion"),
    **dict.fromkeys("*?[]{}~", "a pattern"),
    "\n": "another command",
    "\r": "another command",
    "#": "a comment",
    "!": "the history",
}
_DOUBLE = '$`\\"\n'
"""Characters with a special meaning between double quotes."""

_RUN_OR_WRITE: dict[str, tuple[str, ...]] = {
    "awk": ("-f", "--file", "-i", "--include", "-l", "--load", "-e", "--source", "-o", "-d", "-p"),
    "find": (
        *("-delete", "-exec", "-execdir", "-ok", "-okdir"),
        *("-fls", "-fprint", "-fprint0", "-fprintf"),
    ),
    "git": (
        *("--output", "-c", "--config-env", "--exec-path", "--exec", "--upload-pack"),
        *("--receive-pack", "--ext-diff", "--textconv", "--open-files-in-pager", "-O", "--git-dir"),
        *("--work-tree", "-C", "--template", "--extcmd"),
    ),
    "grep": (),
    "rg": ("--pre", "--hostname-bin"),
    "sed": ("-i", "--in-place", "-e", "--expression", "-f", "--file"),
    "sort": ("-o", "--output", "--compress-program", "-T", "--temporary-directory"),
    "tar": ("--to-command", "--checkpoint-action", "-I", "--use-compress-program", "-F"),
    "tree": ("-o", "--output"),
    "date": ("-s", "--set"),
    "file": ("-C", "--compile", "-m", "--magic-file"),
    "uniq": (),
}
"""Options by which programs that look harmless write files or run other programs. A rule must name
them."""


def check(command: str | Sequence[str], allow: Sequence[str], who: str) -> list[str]:
    """Return the words of a command, if the policy allows it.

    Args:
        command: Text, or a list of words.
        allow: First words of commands that are allowed.
        who: Names the environment in messages.

    Returns:
        Program and arguments.

    Raises:
        Refused: The command is not allowed. The message names the word and the rule.
        ValidationError: The text or list is not a command.
    """
    words = split(command, who) if isinstance(command, str) else list(command)
    if not words or not all(isinstance(word, str) for word in words):
        raise ValidationError(f"{who}: a command must be text or a list of texts")
    rules = [rule.split() for rule in allow]
    fitting = [rule for rule in rules if rule == words[: len(rule)]]
    if not fitting:
        raise Refused(f"{who}: {words[0]!r} is not allowed: policy 'allow' has {_allowed(allow)}")
    for rule in fitting:
        place = _beyond(rule, words)
        if place is None:
            return words
    raise Refused(
        f"{who}: {place!r} lets {words[0]!r} write files or run programs. Policy 'allow' has only "
        f"{_allowed(allow)}, which does not name it"
    )


def split(command: str, who: str) -> list[str]:
    """Split a text into words as a shell does, if it consists of nothing but words.

    Args:
        command: The text.
        who: Names the environment in messages.

    Returns:
        The words.

    Raises:
        Refused: A shell would do more with the text than split it.
    """
    if any(sign < " " and sign not in "\t\n\r" for sign in command):
        raise Refused(f"{who}: {command!r} has a control character")  # which some shells drop
    words: list[str] = []
    word: str | None = None
    quote = ""
    at = 0
    while at < len(command):
        sign = command[at]
        at += 1
        if sign == quote:
            quote = ""
        elif quote == "'":
            word = (word or "") + sign
        elif sign == "\\" and at < len(command) and (not quote or command[at] in _DOUBLE):
            if command[at] != "\n":  # a continued line: the shell removes both characters
                word = (word or "") + command[at]
            at += 1
        elif sign in "\"'" and not quote:
            word = word or ""
            quote = sign
        elif sign in " \t" and not quote:
            words += [word] if word is not None else []
            word = None
        elif sign in _MEANS_MORE and (not quote or sign in "$`"):
            raise Refused(
                f"{who}: {sign!r} in {command!r} begins {_MEANS_MORE[sign]}. With policy 'allow', "
                "a command is one program and its words. Put it in single quotes if it is meant "
                "as text"
            )
        else:
            word = (word or "") + sign
    if quote:
        raise Refused(f"{who}: {command!r} has an unclosed quote")
    words += [word] if word is not None else []
    if words and "=" in words[0]:
        raise Refused(
            f"{who}: {words[0]!r} sets a variable, and policy 'allow' only names commands"
        )
    return words


def _beyond(rule: Sequence[str], words: Sequence[str]) -> str | None:
    """Return a word that exceeds a rule, or None."""
    options = _RUN_OR_WRITE.get(words[0], ())
    for word in words[len(rule) :]:
        for option in options:
            if option not in rule and _is_option(word, option):
                return word
    return None


def _is_option(word: str, option: str) -> bool:
    """Return whether a word is an option, with its value, shortened, or among other letters."""
    if option.startswith("--"):
        name = word.partition("=")[0]
        return len(name) > 3 and option.startswith(name)
    if len(option) == 2:
        return word.startswith("-") and not word.startswith("--") and option[1] in word
    return word == option


def _allowed(allow: Sequence[str]) -> str:
    return ", ".join(repr(rule) for rule in allow) or "nothing"
