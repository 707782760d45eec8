"""The memory of an assistant across conversations: notes in a database."""

from __future__ import annotations

from flowengine_envs.kinds.sqlite import Database


def remember(db: Database, note: str) -> str:
    """Keep a note for later conversations.

    Args:
        db: The notes of this user.
        note: One fact, in a sentence.
    """
    db.execute("insert or ignore into notes (note) values (?)", [note])
    return "kept"


def recall(db: Database, word: str = "") -> list[str]:
    """Return notes of earlier conversations, the newest first.

    Args:
        db: The notes of this user.
        word: A text that they contain. Empty: all notes.
    """
    rows = db.query(
        "select note from notes where instr(lower(note), lower(?)) order by rowid desc limit 50",
        [word],
    )
    return [str(row["note"]) for row in rows]


def forget(db: Database, note: str) -> int:
    """Remove a note, and return how many there were.

    Args:
        db: The notes of this user.
        note: The note, as it was kept.
    """
    return db.execute("delete from notes where note = ?", [note]).changed
