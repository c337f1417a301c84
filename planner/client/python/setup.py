"""Makes the messages of proto/penstock/v1 as modules penstock.v1.*_pb2, with their types, before packages are looked for."""

from pathlib import Path

import grpc_tools
from grpc_tools import protoc
from setuptools import setup

HERE = Path(__file__).resolve().parent
PROTO = HERE.parents[2] / "proto"


def make_messages() -> None:
    """Raises SystemExit where a file cannot be compiled. In an unpacked source package the modules are there already."""
    if not PROTO.is_dir():
        return
    names = [str(path.relative_to(PROTO)) for path in sorted((PROTO / "penstock" / "v1").glob("*.proto"))]
    include = Path(grpc_tools.__file__).parent / "_proto"
    arguments = ["protoc", f"-I{PROTO}", f"-I{include}", f"--python_out={HERE}", f"--pyi_out={HERE}", *names]
    if protoc.main(arguments) != 0:
        raise SystemExit("setup.py: protoc failed")
    (HERE / "penstock" / "v1" / "__init__.py").touch()


make_messages()
setup()
