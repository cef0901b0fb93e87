"""Reads HOCON configurations into frozen settings. `reference.conf` in this folder documents every option."""

from ticklake.config.bindings import Binding
from ticklake.config.loading import load
from ticklake.config.settings import NodeSettings, ResourceSettings, ServiceSettings

__all__ = ["Binding", "NodeSettings", "ResourceSettings", "ServiceSettings", "load"]
