"""What the agents of all model servers share: their options, their key, their provider."""

from __future__ import annotations

import sys
from abc import abstractmethod
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, cast

import attrs

from micdrop_agent._core.options import read_options
from micdrop_agent._interrupts import defer_interrupts
from micdrop_agent.model.agent import ModelAgent, ModelCore
from micdrop_agent.providers.attachments import Attachments
from micdrop_agent.providers.keys import credential_of, find_key, has_credentials
from micdrop_agent.providers.options import HttpOptions
from micdrop_agent.transport.choose import check_environment, check_server, open_transport
from micdrop_agent.transport.url import BaseUrl, shown_url

if TYPE_CHECKING:
    from collections.abc import Mapping

    from typing_extensions import Unpack

    from micdrop_agent.model.options import ModelKeywords
    from micdrop_agent.model.protocol import Provider
    from micdrop_agent.providers.http_provider import Builder
    from micdrop_agent.providers.kinds import ProviderKind
    from micdrop_agent.providers.options import HttpKeywords
    from micdrop_agent.providers.responses.translator import Translator

__all__ = ["HttpAgent"]


@defer_interrupts
class HttpAgent(ModelAgent):
    """An agent whose model answers over HTTP.

    Args:
        options: ``model``, ``api_key``, ``base_url``, ``client``, ``settings`` and ``connect``
            (``HttpOptions``), and those of ``ModelAgent`` and ``Agent``.

    Raises:
        ProviderError: No key was given and the environment has none (kind ``auth``).
        TypeError: An option has the wrong type; the message names it.
        ValueError: An option is out of range, ``settings`` holds what the agent makes itself, ``base_url``
            differs from that of ``client``, or the environment names a proxy or certificates that cannot work.
    """

    __slots__ = ("_attachments", "_base_url", "_client", "_connect", "_key", "_secret", "model", "settings")

    takes_images: ClassVar[bool] = True

    _needs: ClassVar[tuple[str, ...]] = (
        "micdrop_agent.model.step",
        "micdrop_agent.providers.http_provider",
        "micdrop_agent.providers.requests.body",
        "micdrop_agent.text.narration",
        "micdrop_agent.text.think",
        "micdrop_agent.transport.direct",
    )
    """Modules that its answers need. The first agent loads them, so that no caller waits for it."""

    kind: ClassVar[ProviderKind]
    """The provider's row in the table of kinds: its name, key variable, URL and path."""

    options: ClassVar[type[HttpOptions]] = HttpOptions
    """What an agent of this class can be told."""

    def __init__(self, **options: Unpack[HttpKeywords]) -> None:
        super().__init__(**cast("ModelKeywords", options))
        given = self.given
        self.model: str = given.model or self.kind.model
        self.settings: dict[str, Any] = dict(given.settings or {})
        self._client = given.client
        self._base_url = check_server(given.base_url, given.client)
        self._connect = given.connect
        self._attachments = Attachments()
        if given.client is None and given.connect is None:
            check_environment(self.base_url)
        self._key = self._find_key(given.api_key)
        self._secret = credential_of(given.client) if self._key is None else self._key
        for module in (*HttpAgent._needs, *self._needs):
            import_module(module)
        if "asyncio" in sys.modules:
            import_module("micdrop_agent.transport.loop_stream")  # Trio has no use for it

    def _make_core(self, options: Mapping[str, Any]) -> ModelCore:
        return ModelCore(self, self._read_options(options))

    def _read_options(self, options: Mapping[str, Any]) -> HttpOptions:
        try:
            return read_options(self.options, options, self)
        except TypeError as error:
            from difflib import get_close_matches

            known = attrs.fields_dict(self.options)
            unknown = [name for name in options if name not in known]
            if not unknown or get_close_matches(unknown[0], known, 1):
                raise
            # What is near to no option is most likely meant for the provider's API.
            raise TypeError(f"{error}; members of the request go into settings={{{unknown[0]!r}: …}}") from None

    @property
    def given(self) -> HttpOptions:
        """The options that this agent was made with."""
        return cast("HttpOptions", self._core.options)

    @property
    def base_url(self) -> str:
        """URL of the server that is asked: the option, that of the ``client``, or the provider's own."""
        return (self.kind.base_url or "") if self._base_url is None else self._base_url

    @property
    def provider_name(self) -> str:
        """Name of the provider in errors, logs and traces."""
        return self.kind.name

    def _key_kind(self) -> ProviderKind | None:
        """The kind whose key may be sent to this server; ``None`` for any other server."""
        home = self.kind.base_url
        same = home is not None and BaseUrl.parse(self.base_url).origin == BaseUrl.parse(home).origin
        return self.kind if same else None

    def _find_key(self, api_key: str | None) -> str | None:
        """The key to send. One from the environment goes to its own provider, and to nobody else."""
        own = self._key_kind()
        if api_key is None and (has_credentials(self._client) or own is None):
            return None
        variable = "" if own is None else own.key_variable or ""
        return find_key(api_key, variable, provider=self.provider_name, required=own is not None)

    def _headers(self) -> Mapping[str, str]:
        """Headers of every request."""
        return {} if self._key is None else {"authorization": f"Bearer {self._key}"}

    def make_provider(self) -> Provider:
        """The translation for this agent's server."""
        from micdrop_agent.providers.http_provider import HttpProvider
        from micdrop_agent.transport.request_head import Headers

        return HttpProvider(
            name=self.provider_name,
            path=self._path(),
            transport=open_transport(
                self.base_url,
                client=self._client,
                connect=self._connect,
                connect_timeout=self._core.options.timeouts.connect,
            ),
            builder=self._make_builder(),
            translator=self._make_translator,
            headers=Headers(**self._headers()),
            secret=self._secret,
            where=self._shown_url,
        )

    def _shown_url(self) -> str:
        return shown_url(self.base_url, self._path())

    def _path(self) -> str:
        """Where requests go, below the base URL."""
        return self.kind.path

    @abstractmethod
    def _make_builder(self) -> Builder:
        """What makes the bodies of this agent's requests."""

    @abstractmethod
    def _make_translator(self) -> Translator:
        """A translation for one response."""
