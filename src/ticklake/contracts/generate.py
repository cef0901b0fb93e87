"""Regenerates the Python code of the contracts beside their .proto files: `python -m ticklake.contracts.generate`."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
SOURCES = HERE.parent.parent


def generate(target: Path) -> None:
    """Writes `*_pb2.py` and `*_pb2.pyi` for every contract below `target`."""
    from grpc_tools import protoc

    protos = sorted(str(path) for path in HERE.glob("*.proto"))
    well_known = Path(protoc.__file__).parent / "_proto"
    arguments = ["protoc", f"-I{SOURCES}", f"-I{well_known}", f"--python_out={target}", f"--pyi_out={target}", *protos]
    if protoc.main(arguments) != 0:
        sys.exit("protoc failed; its message is above")


if __name__ == "__main__":
    generate(SOURCES)
