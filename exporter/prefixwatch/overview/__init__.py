"""The page at `/`: what a person sees. Pure functions of data; a handler passes in all there is to show."""

from prefixwatch.overview.document import HEADERS, rendered
from prefixwatch.overview.views import Choice, Diagnosis, EngineView, Overview, State, TargetView, trend_span, trend_steps
from prefixwatch.overview.views import view as view

__all__ = [
    "HEADERS",
    "Choice",
    "Diagnosis",
    "EngineView",
    "Overview",
    "State",
    "TargetView",
    "rendered",
    "trend_span",
    "trend_steps",
    "view",
]
