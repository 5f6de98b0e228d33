"""Settings: explicit argument over environment (``SEMOPS_*``) over default."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from semops.errors import ConfigError

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "ki": 2**10, "mi": 2**20, "gi": 2**30}
_YES = frozenset({"1", "true", "t", "yes", "y", "on"})
_NO = frozenset({"0", "false", "f", "no", "n", "off", "none", ""})
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmg]i?)?b?\s*", re.IGNORECASE)


class Settings(BaseSettings):
    """All settings of the process.

    Examples
    --------
    >>> Settings(kv_memory="2GiB").kv_memory
    2147483648
    """

    model_config = SettingsConfigDict(
        env_prefix="SEMOPS_",
        env_ignore_empty=True,
        extra="forbid",
        frozen=True,
        protected_namespaces=(),
    )

    model: str | None = Field(
        None,
        min_length=1,
        description="Hugging Face id, local folder, or GGUF file; None: the hardware's default",
    )
    backend: Literal["vllm"] = Field("vllm", description="Registry name of the backend")
    kv_memory: int | None = Field(
        None,
        ge=1,
        description="KV memory in bytes, or text such as '2GiB'; None: the backend's default",
    )
    kv_tokens: int | None = Field(
        None, ge=1, description="KV memory in tokens; wins over kv_memory"
    )
    context_tokens: int | None = Field(
        None,
        ge=1,
        description="Longest prompt plus answer, in tokens; None: what model and KV allow",
    )
    max_running: int | None = Field(
        None, ge=1, description="Most requests decoded together; None: the backend's default"
    )
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        "auto", description="Type of weights and KV"
    )
    controller: str = Field(
        "demand",
        pattern=r"^(demand|kalypso|static(:\d+(\.\d+)?)*)$",
        description="Admission controller: 'demand', 'kalypso', or 'static' with shares, 'static:1:9'",
    )
    ordering: Literal["svf", "svf_onebit", "sjf", "fcfs"] = Field(
        "svf",
        description="Which request goes first: of several queries, and of rows in any order",
    )
    admission: Literal["ledger", "peak", "lookahead", "optimistic"] = Field(
        "ledger", description="What must fit before a request starts: see docs/capacity.md"
    )
    max_wait_s: float | None = Field(
        None,
        ge=0,
        description="Seconds after which a waiting request goes first; None: 20 median latencies",
    )
    pinning: Literal["auto", "virtual"] = Field(
        "auto", description="'auto' pins prefixes where the backend can, 'virtual' never does"
    )
    executor: Literal["pipelined", "blocking"] = Field(
        "pipelined", description="'blocking' runs one operator over all rows, then the next"
    )
    ordered: bool = Field(
        default=True,
        description="False: rows come as they finish, small ones first; for tables, not for LIMIT",
    )
    prompt_style: Literal["chat", "raw"] = Field(
        "chat", description="'chat' uses the model's chat template, 'raw' lets it continue the text"
    )
    on_error: Literal["null", "raise"] = Field(
        "null", description="What an undecided or failed answer becomes"
    )
    nulls: Literal["null", "text"] = Field(
        "null", description="A row with NULL in a column that is read: NULL, or asked about"
    )
    overflow: Literal["error", "truncate"] = Field(
        "error", description="A row longer than the context: NULL with a reason, or cut"
    )
    system_prompt: str | None = Field(None, description="System prompt in chat style")
    cache: bool | Path = Field(
        False,  # noqa: FBT003 - a default
        description="Keep answers between runs: True for a file in cache_dir, or the file's path",
    )
    cache_limit: int = Field(
        2**31, ge=2**20, description="Largest size of that file in bytes, or text such as '2GiB'"
    )
    cache_dir: Path = Field(
        Path("~/.cache/semops"),
        description="Folder for converted models and kept answers",
    )
    progress: bool = Field(
        default=True, description="Show progress, in a terminal on stderr and in notebooks"
    )

    @field_validator("cache", mode="before")
    @classmethod
    def _parse_cache(cls, value: object) -> object:
        if value is None or isinstance(value, (bool, Path)):
            return value or False
        if not isinstance(value, str):
            message = "it is neither True, False nor a file"
            raise ValueError(message)  # noqa: TRY004 - pydantic takes this one
        word = value.strip().lower()
        if word in _YES | _NO:
            return word in _YES
        path = Path(value)
        if not path.suffix and len(path.parts) < 2:
            message = (
                f"is that a file? Then write './{value}' or '{value}.sqlite'; else True or False"
            )
            raise ValueError(message)
        return path

    @field_validator("kv_memory", "cache_limit", mode="before")
    @classmethod
    def _parse_size(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        found = _SIZE.fullmatch(value)
        if found is None:
            message = f"{value!r} is not a size; write bytes or for example '2GiB'"
            raise ValueError(message)
        return int(float(found.group(1)) * _UNITS[(found.group(2) or "").lower()])


ENGINE_FIELDS = frozenset(
    {
        "model",
        "backend",
        "kv_memory",
        "kv_tokens",
        "context_tokens",
        "max_running",
        "dtype",
        "controller",
        "ordering",
        "admission",
        "max_wait_s",
        "pinning",
        "cache_dir",
    }
)
"""Settings that a running engine can't change."""

OPTION_FIELDS = frozenset(
    {"executor", "ordered", "prompt_style", "on_error", "cache", "nulls", "overflow", "progress"}
)
"""Settings that ``semops.options`` may change for a block."""

BUILD_FIELDS = frozenset({"prompt_style", "on_error", "nulls", "overflow"})
"""Those of them that an operator takes when it is built."""


def cache_path(settings: Settings) -> Path | None:
    """Return the file that answers are kept in, or None where they are not.

    Examples
    --------
    >>> cache_path(Settings(cache=True, cache_dir=Path("folder"))).name
    'answers.sqlite'
    """
    if settings.cache is True:
        return home_expanded(settings.cache_dir).absolute() / "answers.sqlite"
    return home_expanded(settings.cache).absolute() if isinstance(settings.cache, Path) else None


def home_expanded(path: Path) -> Path:
    """Return a path with the home folder in place of its ``~``.

    Raises
    ------
    ConfigError
        If there is none, as in a container whose user has no name.
    """
    try:
        return path.expanduser()
    except RuntimeError:
        raise ConfigError(
            f"this process has no home folder for {str(path)!r}. Write it without '~'; SEMOPS_CACHE_DIR or "
            f"cache_dir= is the folder for models and kept answers."
        ) from None


def load(**explicit: object) -> Settings:
    """Return settings from arguments, the environment and defaults.

    Raises
    ------
    ConfigError
        If a name is unknown or a value is not allowed; it lists what is.
    """
    try:
        return Settings(**explicit)  # type: ignore[arg-type]
    except ValidationError as error:
        raise ConfigError(_explain(error)) from None


def _explain(error: ValidationError) -> str:
    lines = []
    for problem in error.errors():
        name = ".".join(map(str, problem["loc"])) or "settings"
        if problem["type"] == "extra_forbidden":
            names = ", ".join(sorted(Settings.model_fields))
            lines.append(f"{name!r} is no setting; there are {names}.")
            continue
        field = Settings.model_fields.get(name)
        about = f" ({field.description})" if field is not None else ""
        lines.append(f"{name}={problem['input']!r}: {problem['msg']}{about}.")
    return "\n".join(lines)
