"""Selects the image of a container, and pulls it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flowengine.sdk import ImageUnavailable
from flowengine.sdk.environments import Spec
from flowengine_envs.sandboxes.docker import image

if TYPE_CHECKING:
    from docker import DockerClient


def find_image(client: DockerClient, spec: Spec, named: str | None = None) -> str:
    """Return the image of a container, pulling or building it if that is allowed.

    Args:
        client: A client of the daemon.
        spec: The environment's spec.
        named: The image. Default: the one in the spec's config, or else the project's own.

    Returns:
        Its reference.

    Raises:
        ImageUnavailable: It is missing, and must not or cannot be pulled.
    """
    from docker.errors import APIError

    reference = named or getattr(spec.config, "image", None)
    if reference is None:
        return image.build(client)
    policy = getattr(spec.config, "pull_policy", None) or "missing"
    if reference == image.DATA:
        tag = image.description(data=True).tag
        if policy == "never" and not image.is_there(client, tag):
            raise ImageUnavailable(
                f"{spec}: the image {reference} is not built on this machine yet, and pull_policy "
                "is never: python -m flowengine_envs.sandboxes.docker.image data"
            )
        return image.build(client, data=True)
    try:
        there = image.is_there(client, reference)
    except APIError as error:
        raise ImageUnavailable(
            f"{spec}: {reference!r} is not the name of an image: {error.explanation}"
        ) from error
    if there and policy != "always":
        return str(reference)
    if policy == "never":
        raise ImageUnavailable(
            f"{spec}: the image {reference} is not on this machine, and pull_policy is never: "
            f"docker pull {reference}"
        )
    try:
        client.images.pull(reference, platform=getattr(spec.config, "platform", None))
    except (APIError, OSError) as error:
        reason = getattr(error, "explanation", None) or error
        raise ImageUnavailable(
            f"{spec}: the image {reference} could not be fetched (pull_policy {policy}): {reason}"
        ) from error
    return str(reference)
