"""The doctor: what could keep this machine, or this configuration, from running, and what to do about it."""

from ticklake.doctor.checks import CHECKS, examine
from ticklake.doctor.findings import Finding, Level
from ticklake.doctor.subject import Patient

__all__ = ["CHECKS", "Finding", "Level", "Patient", "examine"]
