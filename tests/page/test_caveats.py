"""What is known of a release's counting, and how a page's release is bounded."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefixwatch.page.caveats import Era, era_of, parsed_release, release_caveats

V0 = "lifetime_hit_rate"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0.32.0", (0, 32, 0)),
        ("v0.9.0rc1", (0, 9, 0)),
        ("0.11.2.post1", (0, 11, 2)),
        ("0.32.1.dev4+gabc123", (0, 32, 1)),
        ("0.8.5.post1+cu121", (0, 8, 5)),
        (" 0.10 ", (0, 10)),
        ("1.0.0.1", (1, 0, 0, 1)),
        ("main", None),
        ("", None),
        (None, None),
        ("7", None),
        ("0." + "9" * 5000, None),
        ("9" * 5000 + ".1", None),
        ("\u0660.\u0663", None),
    ],
)
def test_a_release_is_read_as_numbers(text, expected):
    assert parsed_release(text) == expected


@pytest.mark.parametrize(
    ("release", "features", "labels", "first", "until"),
    [
        pytest.param("0.25.1", (), (), (0, 25, 1), (0, 25, 1, 0), id="what /version answers"),
        pytest.param(None, (), (), None, None, id="nothing known"),
        pytest.param("nightly", ("new_names",), (), (0, 9), None, id="no number in it"),
        pytest.param(None, (V0,), (), None, (0, 9), id="V0"),
        pytest.param(None, ("old_names",), (), None, (0, 12), id="old names"),
        pytest.param(None, ("old_names", "engine_label"), (), (0, 9), (0, 12), id="old names and engine label"),
        pytest.param(None, ("old_names", "new_names"), (), (0, 9), (0, 12), id="twins"),
        pytest.param(None, ("new_names",), (), (0, 9), None, id="new names"),
        pytest.param(None, ("external_queried_tokens",), (), (0, 11, 2), None, id="connector"),
        pytest.param(None, ("request_computed_tokens",), (), (0, 13), None, id="computed tokens"),
        pytest.param(None, ("cached_prompt_tokens",), (), (0, 16), None, id="cached tokens"),
        pytest.param(None, ("prompt_tokens_by_source",), (), (0, 16), None, id="tokens by source"),
        pytest.param(None, ("new_names",), ("block_size",), (0, 9), (0, 25), id="config without a size in tokens"),
        pytest.param(None, (), ("block_size", "kv_cache_size_tokens"), (0, 24), (0, 32), id="with one"),
        pytest.param(
            None, (), ("kv_cache_size_tokens", "cache_hit_alignment_tokens"), (0, 32), None, id="with the alignment"
        ),
        pytest.param("0.1.dev1+gabc", ("new_names",), (), (0, 9), None, id="a build from source"),
        pytest.param("0.32.0", ("old_names",), (), None, (0, 12), id="later than the page can be"),
        pytest.param("0.9.2", ("old_names", "new_names"), (), (0, 9, 2), (0, 9, 2, 0), id="as the page says"),
    ],
)  # fmt: skip
def test_the_release_of_a_page_is_bounded(release, features, labels, first, until):
    assert era_of(release, features, labels) == Era(first=first, until=until)


RELEASES = ("0.8.5", "0.9.2", "0.10.2", "0.11.2", "0.12.0", "0.13.0", "0.14.1", "0.16.0", "0.18.1", "0.20.2", "0.23.0",
            "0.25.1", "0.28.0", "0.30.0", "0.31.0", "0.32.0")  # fmt: skip


@pytest.mark.parametrize(
    ("caveat", "affected"),
    [
        pytest.param("preempted_counted_again", RELEASES[:3], id="up to 0.10"),
        pytest.param("lookups_retried", RELEASES[1:12], id="0.9 to 0.25"),
        pytest.param("no_request_level", RELEASES[:5], id="before 0.13"),
        pytest.param("no_cached_at_first_token", RELEASES[5:7], id="0.13 to 0.15"),
        pytest.param("alignment_unstated", RELEASES[:15], id="before 0.32"),
    ],
)
def test_a_caveat_stands_with_the_releases_that_it_is_true_of(caveat, affected):
    found = [
        release for release in RELEASES if caveat in {one.name for one in release_caveats(era_of(release, (), ()))}
    ]
    assert found == list(affected)


@pytest.mark.parametrize(
    ("era", "expected"),
    [
        pytest.param(Era(), set(), id="nothing known: nothing said"),
        pytest.param(Era(first=(0, 9)), set(), id="an open end: what later releases mended is not said"),
        pytest.param(Era(first=(0, 9), until=(0, 12)), {"lookups_retried", "no_request_level", "alignment_unstated"},
                     id="twins: preempted ones are counted once from 0.11 on, so that is not said"),
        pytest.param(Era(first=(0, 24), until=(0, 32)), {"alignment_unstated"}, id="up to 0.31"),
    ],
)  # fmt: skip
def test_only_what_is_true_of_every_possible_release_is_said(era, expected):
    assert {caveat.name for caveat in release_caveats(era)} == expected


@given(st.text(max_size=20) | st.from_regex(r"v?[0-9.]{1,30}", fullmatch=True), st.sets(st.sampled_from(
    ["new_names", "old_names", "engine_label", "lifetime_hit_rate", "cached_prompt_tokens"])))  # fmt: skip
def test_any_release_gives_an_era(release, features):
    era = era_of(release, features, ())
    assert era.contains(era)
    assert len({caveat.name for caveat in release_caveats(era)}) == len(list(release_caveats(era)))
