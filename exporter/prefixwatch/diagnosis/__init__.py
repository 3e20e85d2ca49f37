"""Figures to a cause, with its confidence, evidence and next steps. The rules stand in `rules`."""

from prefixwatch.diagnosis.hold import Hold
from prefixwatch.diagnosis.rules import diagnose
from prefixwatch.diagnosis.terms import CONFIDENCE, Cause, Confidence, Diagnosis, EventEvidence, Thresholds

__all__ = ["CONFIDENCE", "Cause", "Confidence", "Diagnosis", "EventEvidence", "Hold", "Thresholds", "diagnose"]
