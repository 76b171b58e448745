"""Any settings at all: a config that survives its file, or a config error that names a field. Nothing else."""

from __future__ import annotations

from typing import Any, Literal, get_args, get_origin

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clearl.config import RunConfig, Setting, diff, from_yaml, to_yaml
from clearl.config import settings as all_settings
from clearl.config.engine import dump_yaml, parse_yaml
from clearl.errors import ConfigError

JUNK = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8),
    st.lists(st.text(max_size=4), max_size=3), st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)  # fmt: skip


def _plausible(setting: Setting) -> st.SearchStrategy[Any]:
    if get_origin(setting.kind) is Literal:
        return st.sampled_from(get_args(setting.kind))
    if setting.kind is bool:
        return st.booleans()
    if setting.kind is tuple:
        return st.lists(st.sampled_from(["breakout", "asterix", "a.b"]), max_size=3)
    if setting.kind is str or setting.limits is None:
        return st.sampled_from(["cpu", "cuda:1", "probe", "sequential", "clear"])
    low, high = setting.limits.low, setting.limits.high
    if setting.kind is int:
        return st.integers(int(low) - 1, min(int(high), 5000) + 1)
    return st.floats(low, high)


@st.composite
def any_settings(draw: st.DrawFn) -> dict[str, Any]:
    names = draw(st.lists(st.sampled_from(list(all_settings())), max_size=12, unique=True))
    return {name: draw(st.one_of(_plausible(all_settings()[name]), JUNK)) for name in names}


@settings(max_examples=500, deadline=None)
@given(any_settings())
def test_a_config_or_an_error_that_names_a_field(given_settings: dict[str, Any]):
    try:
        config = RunConfig(**given_settings)
    except ConfigError as error:
        words = str(error).replace(",", " ").replace(":", " ").replace(";", " ").split()
        assert any(word in all_settings() for word in words), str(error)
        assert "\n" not in str(error)
        return
    assert diff(from_yaml(to_yaml(config)), config) == {}


@pytest.mark.parametrize("text", ["\x85", "a\u2028b", "\u2029", "é", "naïve\x85 ü"])
def test_every_text_comes_back_from_yaml(text: str):
    assert parse_yaml(dump_yaml({"arm": text}), "a test") == {"arm": text}
