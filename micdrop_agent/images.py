"""Pictures in what the user says, for models that can see.

    agent.add_user_message("What is this?", images=[Image(photo)])

A picture is kept in the metadata of its message, as JSON: stores and the wire form keep it with the message.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import TYPE_CHECKING, Any, Final

import attrs

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from micdrop_agent.messages import Message

__all__ = ["Image", "images_of", "with_images"]

MEMBER: Final = "images"
"""Member of a message's metadata that holds its pictures."""

_DATA_URL: Final = re.compile(r"data:(image/[a-z.+-]+);base64,(.*)", re.DOTALL)
_MAGIC: Final = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
)
_TYPES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""What every provider that sees can read."""


@attrs.frozen
class Image:
    """A picture: the URL of one that the provider fetches, or its bytes (PNG, JPEG, GIF or WebP).

    Args:
        source: An ``https://`` or ``http://`` URL, a ``data:`` URL, or the bytes.
        media_type: Such as ``image/png``; found out from the bytes by default.

    Raises:
        TypeError: ``source`` is neither a string nor bytes.
        ValueError: It is not a URL of these kinds, or the bytes are not a picture of a known kind.
    """

    source: str | bytes = attrs.field(repr=lambda source: source if isinstance(source, str) else f"{len(source)} bytes")
    media_type: str | None = attrs.field(default=None, kw_only=True)

    def __attrs_post_init__(self) -> None:
        source: object = self.source
        if isinstance(source, str):
            inline = _DATA_URL.fullmatch(source)
            if inline is not None:
                self._hold(_decoded(inline[2]), inline[1])
            elif not source.startswith(("https://", "http://")):
                raise ValueError(f"an image is the URL of one (https://…) or its bytes, not {source[:80]!r}")
        elif isinstance(source, bytes | bytearray | memoryview):
            self._hold(bytes(source), self.media_type or _type_of(bytes(source[:16])))
        else:
            raise TypeError(f"an image is the URL of one or its bytes, not {type(source).__name__}")

    def _hold(self, data: bytes, media_type: str | None) -> None:
        if media_type not in _TYPES:
            raise ValueError(f"an image has to be PNG, JPEG, GIF or WebP; this one is {media_type or 'not known'}")
        if not data:
            raise ValueError("an image must not be empty")
        object.__setattr__(self, "source", data)
        object.__setattr__(self, "media_type", media_type)

    @property
    def base64(self) -> str | None:
        """The bytes in base 64; ``None`` for a URL."""
        return None if isinstance(self.source, str) else base64.b64encode(self.source).decode()

    @property
    def url(self) -> str:
        """A URL that has the picture: its own, or a ``data:`` URL."""
        return self.source if isinstance(self.source, str) else f"data:{self.media_type};base64,{self.base64}"


def with_images(metadata: Mapping[str, Any] | None, images: Iterable[Image]) -> Mapping[str, Any] | None:
    """``metadata`` with ``images`` in it.

    Raises:
        TypeError: An element is not an ``Image``.
    """
    found = list(images)
    for image in found:
        if not isinstance(image, Image):
            raise TypeError(f"images must be a list of Image, not {image!r}")
    return {**(metadata or {}), MEMBER: [image.url for image in found]} if found else metadata


def images_of(message: Message) -> list[Image]:
    """The pictures of ``message``; one that cannot be read is left out."""
    if not message.metadata or MEMBER not in message.metadata:
        return []
    found: list[Image] = []
    for url in message.metadata[MEMBER]:
        try:
            found.append(Image(url))
        except (TypeError, ValueError):
            continue
    return found


def _type_of(head: bytes) -> str | None:
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for magic, kind in _MAGIC if head.startswith(magic)), None)


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("the data: URL of an image is not base 64") from None
