"""A model that is called with a key which is in no settings, and therefore in no journal."""

from __future__ import annotations

from dataclasses import replace

from flowengine.agents.models.port import Listener, Model, ModelReply, ModelRequest
from flowengine.sdk import StepError


class KeyedModel:
    """A model called with a key that is not visible to others.

    Args:
        model: The model.
        key: The key for its provider.
    """

    def __init__(self, model: Model, key: str) -> None:
        self._model, self._key, self.facts = model, key, model.facts

    async def complete(self, request: ModelRequest, listen: Listener | None = None) -> ModelReply:
        """Call the model once."""
        try:
            with_key = replace(request, settings={**request.settings, "api_key": self._key})
            return await self._model.complete(with_key, listen)
        except StepError as error:  # providers may quote a wrong key
            error.message = error.message.replace(self._key, "***")
            error.args = (error.message,)
            raise
