"""The doctor: finds problems of this machine or configuration, with a remedy for each."""

from ticklake.doctor.checks import CHECKS, examine
from ticklake.doctor.findings import Finding, Level
from ticklake.doctor.subject import Subject

__all__ = ["CHECKS", "Finding", "Level", "Subject", "examine"]
