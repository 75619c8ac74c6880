"""Options of vLLM that kvproof does not model, under vLLM's own names.

What such an option means is not known here: a run that has one is compared between two vLLMs, of
which the first says what is right with it.
"""

from typing import Annotated, Literal

from msgspec import Meta, Struct

Config = Literal["scheduler", "cache", "connector"]
"""The config of vLLM that has an option: `SchedulerConfig`, `CacheConfig`, or the
`kv_connector_extra_config` of a connector."""


class ConfigOption(Struct, frozen=True, forbid_unknown_fields=True):
    """A value for one option. A text is one of those that the type of the option lists; never a
    name of a module, a class or a file (`live.options.chosen`). Settings of connectors have no
    types: they are no texts. Raises ValueError."""

    of: Config
    name: Annotated[str, Meta(pattern="^[a-z][a-z0-9_]*$", max_length=64)]
    value: bool | int | Annotated[str, Meta(max_length=64)]

    def __post_init__(self) -> None:
        if self.of == "connector" and isinstance(self.value, str):
            raise ValueError(f"{self.words} is no option of a plan. Use true, false or a number.")

    @property
    def words(self) -> str:
        """The option in words."""
        config = "kv_connector_extra" if self.of == "connector" else self.of
        return f"{config}_config.{self.name}={self.value!r}"


ConfigOptions = Annotated[tuple[ConfigOption, ...], Meta(max_length=8)]


def in_words(options: ConfigOptions) -> str:
    """What the line of an engine says of its options; empty where there are none."""
    named = ", ".join(each.words for each in options)
    return f", with {named}, which kvproof does not model" * bool(options)
