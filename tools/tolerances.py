"""What is done for servers beside ``ChatQuirks``: rows for the guide docs/guides/quirks.md, each with its module.

No program reads them, so they are not in the package. A row is written where its code is written; a test compares the guide
with these rows, and each module with the package.
"""

from __future__ import annotations

from typing import Final

import attrs

__all__ = ["TOLERANCES", "Tolerance"]

_ALWAYS: Final = "no"


@attrs.frozen
class Tolerance:
    """One thing that is done for some servers.

    Args:
        what: What is done.
        servers: For which servers.
        module: Where, below ``micdrop_agent``.
        source: Where the need for it was documented or reported.
        off: How to switch it off; ``no`` where a server that does not need it never notices.
    """

    what: str
    servers: str
    module: str
    source: str
    off: str = _ALWAYS


_CHAT: Final = "providers.responses.chat_stream"
_CALLS: Final = "providers.responses.call_assembler"
_RESPONSES: Final = "providers.responses.responses_stream"
_BODY: Final = "providers.requests.body"
_FORMS: Final = "providers.requests.tool_forms"
_FILTER: Final = "text.think"

TOLERANCES: Final = (
    # Requests
    Tolerance(
        "A `tool_choice` that forces a call is sent in the first request of an answer only.",
        "every server that obeys it",
        _BODY,
        "https://platform.openai.com/docs/guides/function-calling (the choice holds for each request)",
        "`on_before_answer`, or tools that end the turn (`skip_answer=True`)",
    ),
    Tolerance(
        "Where the conversation holds calls, tools are declared, and `tool_choice` is `none` if none may be called.",
        "Anthropic, Bedrock, Cerebras and gateways to them",
        _BODY,
        "https://github.com/BerriAI/litellm/issues/5747, camel-ai/owl#532",
        "`ChatQuirks(tool_choice_none=False)` leaves the choice out",
    ),
    Tolerance(
        "`tools` of `settings` stand beside the agent's own.",
        "OpenAI, Gemini (web search)",
        _BODY,
        "tests/test_provider_tool_choice.py",
    ),
    Tolerance(
        "The first request of a call, a greeting, declares no tools.",
        "every server",
        _BODY,
        "tests/test_provider_requests.py",
    ),
    Tolerance(
        "Calls and results are paired, results that never came are made up, blank messages are left out.",
        "every server",
        "providers.requests.pairing",
        "livekit/agents#5092, ellmer#459, OpenHands#8685",
    ),
    Tolerance(
        "Arguments of earlier calls that are not a JSON object are sent as `{}`.",
        "vLLM, Anthropic, Gemini",
        "providers.requests.pairing",
        "vllm#19419, litellm#33678",
    ),
    Tolerance(
        "Names of tools in earlier calls are brought into letters, digits, `_` and `-`.",
        "every server",
        "providers.requests.history",
        "https://platform.openai.com/docs/api-reference/chat",
    ),
    Tolerance(
        "Ids that were used before get a number.",
        "llama.cpp and other servers that count from zero in each response",
        "providers.requests.wire_ids",
        "pydantic-ai#7187",
    ),
    Tolerance("Lists in a schema say what is in them.", "OpenAI, Gemini", "tools._strict", "pydantic-ai#4425", "no"),
    Tolerance(
        "Thoughts with a budget (`thinking: enabled`) are left out of a turn that another model began.",
        "Claude",
        "providers.requests.claude_dialect",
        "https://docs.claude.com/en/docs/build-with-claude/extended-thinking",
        "`settings` with `thinking: adaptive`",
    ),
    Tolerance(
        "Calls of other models in the current turn are signed with the documented placeholder.",
        "Gemini 3",
        "providers.requests.gemini_dialect",
        "https://ai.google.dev/gemini-api/docs/thought-signatures",
        "`ChatQuirks(unsigned_call=None)` for the compatible endpoint",
    ),
    Tolerance(
        "Encrypted reasoning items and the `phase` of messages go back to the server that sent them.",
        "OpenAI (Responses API with `store: false`)",
        "providers.requests.responses_dialect",
        "https://platform.openai.com/docs/guides/reasoning#encrypted-reasoning-items",
        "do not ask for `reasoning.encrypted_content` in `settings`",
    ),
    Tolerance(
        "A request that is too long for the model is sent once more without the oldest turns.",
        "every server",
        "model.step",
        "tests/test_provider_replay.py",
        "`max_context_tokens` keeps requests from being too long",
    ),
    # Streams
    Tolerance(
        "Keep-alives that are bare words (`data: ping`), comments, blank lines before the stream.",
        "OpenRouter, gateways",
        "providers.responses.translator",
        "https://openrouter.ai/docs/api-reference/streaming, docker/docker-agent#2349",
    ),
    Tolerance(
        "`[DONE]` in any spelling, or a finish reason without it, ends the answer.",
        "gateways of the one-api family",
        "providers.responses.translator",
        "own-a-91 of tests/conformance/own_cases",
    ),
    Tolerance(
        "A second `data:` inside an event is taken off.",
        "nested proxies",
        "providers.responses.translator",
        "own-a-87 of the cases",
    ),
    Tolerance(
        "Both halves of an emoji that was cut in two are joined.",
        "servers that count in UTF-16",
        "providers.responses.translator",
        "own-a-93 of tests/conformance/own_cases",
    ),
    Tolerance(
        "An answer that is one JSON value is read like a stream.",
        "servers that ignore `stream`",
        "providers.responses.http_stream",
        "own-a-20 of tests/conformance/own_cases",
    ),
    Tolerance(
        "A finish reason with every chunk ends nothing before the last one.",
        "Gemini behind gateways",
        _CHAT,
        "own-a-94 of tests/conformance/own_cases",
    ),
    Tolerance(
        "`finishReason` in place of `finish_reason`.",
        "Gemini's compatible endpoint",
        _CHAT,
        "tests/test_provider_streams.py",
    ),
    Tolerance("Usage inside the choice, or below `x_groq`.", "Moonshot, Groq", _CHAT, "https://console.groq.com/docs"),
    Tolerance(
        "Errors inside a chunk, a choice, or as a bare `message` or `detail`.",
        "OpenRouter, vLLM, FastAPI servers",
        _CHAT,
        "https://openrouter.ai/docs/api/reference/errors-and-debugging",
    ),
    Tolerance(
        "Finish reasons that report a failure (`abort`, `network_error`, `MALFORMED_FUNCTION_CALL`, …) are failures.",
        "vLLM, Zhipu, DeepSeek, Gemini",
        "providers.responses.translator",
        "https://api-docs.deepseek.com/api/create-chat-completion",
        "`ChatQuirks(finish_reasons={…})`",
    ),
    Tolerance(
        "Tool calls without an index, with one index for all, in pieces of names, with repeated heads, packed together.",
        "Mistral, Gemini, vLLM, gateways",
        _CALLS,
        "openai-python#2806, opencode#37841, vllm#44098 (cases a-14, a-16, a-19)",
    ),
    Tolerance(
        "The namespace of a prompt, and the mark of a channel, are taken off a tool's name.",
        "Moonshot, Gemini, gpt-oss",
        "providers.json_text",
        "https://github.com/vllm-project/vllm/issues/32587",
    ),
    Tolerance(
        "Arguments that were encoded twice are unwrapped.", "gateways", "providers.json_text", "own-a-26 of the cases"
    ),
    Tolerance(
        "The first message of a response is spoken; a second one, with nearly the same words, is not.",
        "OpenAI (Responses API)",
        _RESPONSES,
        "pipecat#4852, openai-agents-python#1129 (case a-30)",
    ),
    Tolerance(
        "Function calls are found by id where every item has the same output index.",
        "llama.cpp, vLLM",
        "providers.responses.function_calls",
        "own-a-90 of tests/conformance/own_cases",
    ),
    Tolerance(
        "Thoughts in the text are not spoken, in any of their spellings.",
        "open models",
        _FILTER,
        "the chat templates of DeepSeek, Qwen, MiniMax, Kimi and Mistral",
        "`ChatAgent(think=False)`",
    ),
    Tolerance(
        "Tokens of the chat template (`<|im_end|>`, `</s>`, …) are not spoken.",
        "llama.cpp, vLLM, Ollama",
        _FILTER,
        "the chat templates of Llama, Qwen, Gemma and Mistral",
    ),
    Tolerance(
        "A tool call that came as text is run when it is complete and names a tool on offer, and never spoken.",
        "Ollama, vLLM without a tool parser, Kimi, Qwen",
        "text.narration",
        "c-14 and own-a-99 of the cases",
        "`run_written_calls=False` drops it",
    ),
    Tolerance(
        "An output of no use (`tool_use_failed`, `MALFORMED_FUNCTION_CALL`) is asked for once more.",
        "Groq, Gemini",
        "model.step",
        "https://console.groq.com/docs/tool-use",
        "`Retry(max_retries=0)`",
    ),
)
"""In the order of the guide."""
