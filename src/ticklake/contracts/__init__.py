"""The wire contracts: protobuf messages shared with other producers and readers."""

from ticklake.contracts.metadata_pb2 import EnvironmentConfig, SimulationMetadata
from ticklake.contracts.notifications_pb2 import BatchInfo, MetadataInfo, RunCompleted, TopicEnvelope
from ticklake.contracts.ticks_pb2 import CellState, OrganismState, TickData, Vector

FORMAT_VERSION = 1
"""What we write into `format_version`; 0 (absent) is what the original writes."""

__all__ = [
    "FORMAT_VERSION",
    "BatchInfo",
    "CellState",
    "EnvironmentConfig",
    "MetadataInfo",
    "OrganismState",
    "RunCompleted",
    "SimulationMetadata",
    "TickData",
    "TopicEnvelope",
    "Vector",
]
