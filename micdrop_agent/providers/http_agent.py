"""What the agents of all model servers share: their options, their key, their provider."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

from micdrop_agent.model.agent import ModelAgent
from micdrop_agent.model.options import ModelKeywords
from micdrop_agent.options import check_text
from micdrop_agent.providers.attachments import Attachments
from micdrop_agent.providers.http_provider import HttpProvider
from micdrop_agent.providers.keys import credential_of, find_key, has_credentials
from micdrop_agent.providers.requests.body import check_settings
from micdrop_agent.transport import check_client, check_environment, check_server, open_transport
from micdrop_agent.transport.request_head import Headers
from micdrop_agent.transport.url import BaseUrl

if TYPE_CHECKING:
    from collections.abc import Mapping

    from typing_extensions import Unpack

    from micdrop_agent.model.protocol import Provider
    from micdrop_agent.providers.http_provider import Builder
    from micdrop_agent.providers.kinds import ProviderKind
    from micdrop_agent.providers.responses.translator import Translator
    from micdrop_agent.transport import ConnectFn

__all__ = ["HttpAgent", "HttpOptions"]


class HttpOptions(ModelKeywords, total=False):
    """The keyword options of every agent that talks to a model server, for subclasses that pass them on."""

    model: str | None
    api_key: str | None
    client: Any
    base_url: str | None
    settings: Mapping[str, Any] | None
    connect: ConnectFn | None


class HttpAgent(ModelAgent):
    """An agent whose model answers over HTTP.

    Args:
        model: Name of the model; the provider's usual one by default.
        api_key: The key. Defaults to the provider's environment variable, which is read only when the
            provider itself is asked: no other server gets it, and none needs a key. Never logged or shown.
        client: A client of your own in place of ours: an ``openai.AsyncOpenAI`` or
            ``AsyncAzureOpenAI`` (which also brings key and URL), an ``httpx2.AsyncClient`` or an
            ``httpx.AsyncClient``. It may be shared by many agents, and is never closed by them.
        base_url: URL of the server, up to and including its version (``…/v1``). Defaults to the URL that
            ``client`` was made for, then to the provider itself.
        settings: Members merged last into the body of each request, as the provider's API names
            them. A ``tool_choice`` that forces a call holds for the first request of an answer;
            ``tools`` of the server's own stand beside the agent's tools.
        connect: Opens connections in place of TCP; for tests.
        options: ``retry``, ``timeouts``, ``max_steps``, ``max_context_tokens``, ``count_tokens`` and the
            options of ``Agent``.

    Raises:
        ProviderError: No key was given and the environment has none (kind ``auth``).
        TypeError: An option has the wrong type; the message names it.
        ValueError: An option is out of range, ``settings`` holds what the agent makes itself, ``base_url``
            differs from that of ``client``, or the environment names a proxy or certificates that cannot work.
    """

    __slots__ = ("_attachments", "_base_url", "_client", "_connect", "_key", "_secret", "model", "settings")

    takes_images: ClassVar[bool] = True
    kind: ClassVar[ProviderKind]
    """The provider's row in the table of kinds: its name, key variable, URL and path."""

    def __init__(
        self,
        *,
        model: str | None = None,
        api_key: str | None = None,
        client: Any = None,
        base_url: str | None = None,
        settings: Mapping[str, Any] | None = None,
        connect: ConnectFn | None = None,
        **options: Unpack[ModelKeywords],
    ) -> None:
        if model is not None:
            check_text("model", model, empty=False)
        if base_url is not None:
            check_text("base_url", base_url, empty=False)
        self.model: str = self.kind.model if model is None else model
        check_client(client)
        self.settings: dict[str, Any] = check_settings(settings)
        self._client = client
        self._base_url = check_server(base_url, client)
        self._connect = connect
        self._attachments = Attachments()
        if client is None and connect is None:
            check_environment(self.base_url)
        self._key = self._find_key(api_key)
        self._secret = credential_of(client) if self._key is None else self._key
        super().__init__(**options)

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
        )

    def _path(self) -> str:
        """Where requests go, below the base URL."""
        return self.kind.path

    @abstractmethod
    def _make_builder(self) -> Builder:
        """What makes the bodies of this agent's requests."""

    @abstractmethod
    def _make_translator(self) -> Translator:
        """A translation for one response."""
