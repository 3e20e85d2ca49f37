"""The page at `/`: what a person sees. Pure functions of data; the handler passes in all there is to show."""

from prefixwatch.overview.document import HEADERS, rendered
from prefixwatch.overview.views import (
    MIN_REFRESH,
    Choice,
    EngineView,
    Overview,
    State,
    TargetView,
    trend_scale,
    views_of,
)

__all__ = [
    "HEADERS",
    "MIN_REFRESH",
    "Choice",
    "EngineView",
    "Overview",
    "State",
    "TargetView",
    "rendered",
    "trend_scale",
    "views_of",
]
