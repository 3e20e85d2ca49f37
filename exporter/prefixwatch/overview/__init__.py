"""The page at `/`: what a person sees. Pure functions of data; the handler passes in all there is to show."""

from prefixwatch.overview.document import HEADERS, rendered
from prefixwatch.overview.views import (
    Choice,
    EngineView,
    Overview,
    State,
    TargetView,
    overview_of,
    trend_scale,
)

__all__ = [
    "HEADERS",
    "Choice",
    "EngineView",
    "Overview",
    "State",
    "TargetView",
    "overview_of",
    "rendered",
    "trend_scale",
]
