"""Block keys chain: equal keys mean equal prefixes under equal salts and adapters."""

import pytest

from prefixwatch.demo.keys import BlockKey, extend_keys

TOKENS = list(range(10))


def keys_of(tokens: list[int], **extra: str) -> list[BlockKey]:
    """Return the keys of a sequence in blocks of four tokens."""
    keys: list[BlockKey] = []
    extend_keys(keys, tokens, block_size=4, salt=extra.get("salt"), adapter=extra.get("adapter"))
    return keys


@pytest.mark.parametrize(
    ("tokens", "blocks"),
    [
        pytest.param([], 0, id="nothing"),
        pytest.param(TOKENS[:3], 0, id="a partly filled block has no key"),
        pytest.param(TOKENS[:4], 1, id="exactly one block"),
        pytest.param(TOKENS, 2, id="two blocks and a rest"),
    ],
)
def test_only_full_blocks_have_keys(tokens: list[int], blocks: int) -> None:
    assert len(keys_of(tokens)) == blocks


def test_keys_grow_as_tokens_do() -> None:
    keys = keys_of(TOKENS[:5])
    extend_keys(keys, TOKENS, block_size=4)
    assert keys == keys_of(TOKENS)


def test_a_hash_covers_the_whole_prefix() -> None:
    one, other = keys_of(TOKENS), keys_of([99, *TOKENS[1:]])
    assert one[1].hash != other[1].hash
    assert one[1].content == other[1].content


def test_a_salt_is_in_the_first_key_and_splits_the_chain() -> None:
    plain, salted = keys_of(TOKENS), keys_of(TOKENS, salt="tenant")
    assert [key.extra is None for key in salted] == [False, True]
    assert all(a.hash != b.hash and a.content == b.content for a, b in zip(plain, salted, strict=True))


def test_an_adapter_is_in_every_key() -> None:
    assert all(key.extra for key in keys_of(TOKENS, adapter="sql"))


def test_equal_names_of_salt_and_adapter_are_not_the_same_key() -> None:
    assert keys_of(TOKENS, salt="x")[0] != keys_of(TOKENS, adapter="x")[0]
