"""The engine's requests for files of the workspace and of the home directory."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from flowengine_envs.inside.loop import Outbox
from flowengine_envs.link.frames import PIECE
from flowengine_envs.workspaces.files import Draft, PathRefused, Reading, Workspace, place_of

Say = Callable[..., None]


class FileRequests:
    """Handles the requests for files.

    Args:
        outbox: Destination of answers, which limits the speed of reading a file.
        say: Called with the number of a request, a header, and bytes.
    """

    def __init__(self, outbox: Outbox, say: Say) -> None:
        self._outbox = outbox
        self._say = say
        self._drafts: dict[int, Draft] = {}
        self._readings: dict[int, Reading] = {}
        self.places: list[Workspace] = []
        """Workspace and home directory, known once the engine has sent `hello`."""
        self.requests = {
            "put": self._put,
            "get": self._get,
            "list": self._list,
            "remove": self._remove,
        }

    def write(self, request: int, data: bytes, *, last: bool) -> None:
        """Write the next bytes of a file, if the request is for one."""
        draft = self._drafts.get(request)
        if draft is None:
            return
        try:
            draft.add(data)
            if not last:
                return
            draft.finish()
        except PathRefused as error:
            draft.drop()
            self._fault(request, error.kind, error.reason)
        else:
            self._done(request)
        del self._drafts[request]

    def forget(self, request: int) -> bool:
        """Cancel writing or reading a file. Return whether the request was for one."""
        draft, reading = self._drafts.pop(request, None), self._readings.pop(request, None)
        if draft is not None:
            draft.drop()
        elif reading is not None:
            reading.close()
        else:
            return False
        self._fault(request, "cancelled", "it was cancelled")
        return True

    def _put(self, id: int, header: dict[str, Any], _payload: bytes) -> None:
        self._drafts[id] = self._its(header).write(header["path"], header["mode"])

    def _get(self, id: int, header: dict[str, Any], _payload: bytes) -> None:
        reading = self._its(header).read(header["path"], header["largest"])
        self._readings[id] = reading
        self._say(id, {"mode": reading.mode})
        self._send(id)

    def _send(self, id: int) -> None:
        while not self._outbox.full:
            reading = self._readings.get(id)
            if reading is None:  # It was cancelled.
                return
            try:
                data = reading.piece(PIECE)
            except PathRefused as error:
                self._end(id)
                self._fault(id, error.kind, error.reason)
                return
            if not data:
                self._end(id)
                self._done(id)
                return
            self._say(id, {}, data)
        self._outbox.when_empty(partial(self._send, id))

    def _end(self, id: int) -> None:
        self._readings.pop(id).close()

    def _list(self, id: int, header: dict[str, Any], _payload: bytes) -> None:
        entries = self._its(header).entries(header["path"], deep=header["deep"])
        self._done(id, entries=entries)

    def _remove(self, id: int, header: dict[str, Any], _payload: bytes) -> None:
        self._its(header).remove(header["path"])
        self._done(id)

    def _its(self, header: dict[str, Any]) -> Workspace:
        return place_of(header["path"], self.places)

    def _done(self, id: int, **answer: Any) -> None:
        self._say(id, {"done": True, **answer})

    def _fault(self, id: int, kind: str, message: str) -> None:
        self._say(id, {"done": True, "fault": {"kind": kind, "message": message}})
